"""The answer of a study in a few sentences, and what it does not establish."""

from __future__ import annotations

from collections.abc import Iterator

from hetsgd.models.words import counted
from hetsgd.studies.campaign import StudyResult
from hetsgd.studies.disturbance import disturbed_words
from hetsgd.studies.interval import percent
from hetsgd.studies.presented import presented
from hetsgd.studies.results import Panel


def answer_lines(result: StudyResult) -> list[str]:
    """Which policy is first on each machine, by how much, and whether the prediction held here."""
    result = presented(result)
    level = result.study.level
    lines = []
    for panel in result.panels:
        if panel.runs:
            where = "" if len(result.study.workloads) == 1 else f" ({panel.workload})"
            lines.append(panel.ranking(level).verdict() + where)
    lines += [validation.verdict() for validation in result.validations]
    return lines


def not_established(result: StudyResult) -> list[str]:
    """The limits of the answer, each one that applies to this study."""
    return list(_limits(presented(result)))


def _limits(result: StudyResult) -> Iterator[str]:
    study, level = result.study, result.study.level
    yield (
        f"First means: first to {percent(level)} of the way from the initial training loss to the lowest that any run "
        "here reached on that machine. It says nothing about the test loss, nor about the loss after longer training. "
        "A policy that diverged in some seed cannot be first."
    )
    yield (
        f"The intervals are over {counted(len(study.seeds), 'seed')} (model, data order and service times), 95 %, "
        "Student's t. They do not hold the error of the machine's model."
    )
    measured = {validation.machine for validation in result.validations}
    for machine in study.machines:
        if machine not in measured:
            yield f"Nothing was measured on {machine}: its times are predictions from its machine file alone."
    yield from _disturbed(result)
    for panel in result.panels:
        close = [lead.other for lead in panel.ranking(level).leads if not lead.established]
        first = panel.ranking(level).first
        if close and first is not None:
            yield f"On {panel.machine}, whether {first.label} is faster than {' or '.join(close)}."
        yield from _missed(panel, level)
    yield from _diverged(result)
    yield from _tuning(result)
    for failure in result.failures:
        yield f"A run failed and is left out: {failure}"


def _disturbed(result: StudyResult) -> Iterator[str]:
    """Machines whose calibration was disturbed: their step times are too long, which the intervals do not hold."""
    machines = {case.machine: run.resolved.get("machine") for case, run in result.found.items()}
    for name, machine in machines.items():
        record = machine and machine.get("calibrated")
        if record and (words := disturbed_words(record["disturbed"])):
            yield (
                f"How fast {name} is when nothing else runs on it: {words} of its calibration, so that its "
                "predicted times may be off. Run the study anew with another --out when the machine is quiet."
            )


def _missed(panel: Panel, level: float) -> Iterator[str]:
    entries = panel.ranking(level).entries
    missed = [f"{entry.label} ({entry.shortfall} seeds)" for entry in entries if not (entry.always or entry.diverged)]
    if missed:
        words = ", ".join(missed)
        yield f"On {panel.machine}, when these would get there, which did not in every seed within the run: {words}."


def _tuning(result: StudyResult) -> Iterator[str]:
    pilot = result.study.pilot
    if pilot is None:
        if not any(variant.grid for variant in result.study.variants):
            yield "No policy was tuned: another learning rate or batch size may change the order."
        return
    tried = max((choice.tried for choice in result.choices), default=0)
    yield f"Each policy was tuned over {counted(tried, 'point')} with one seed; a larger budget may change the order."
    for machine in result.study.machines:
        edges = [choice for choice in result.choices if choice.at_edge and choice.machine == machine]
        if edges:
            words = "; ".join(
                f"{choice.label} ({', '.join(key.split('.', 1)[-1] for key in choice.at_edge)})" for choice in edges
            )
            yield f"On {machine}, whether a better value lies outside the grid, at whose edge the best was: {words}."


def _diverged(result: StudyResult) -> Iterator[str]:
    """The settings with which a policy diverged, and whether its pilots could have ruled them out."""
    for panel in result.panels:
        fixed = {key for key, _ in result.study.settings_on(panel.machine)}
        for choice in result.choices:
            seeds = panel.diverged.get(choice.label, 0)
            if (choice.machine, choice.workload) != (panel.machine, panel.workload) or not seeds:
                continue
            at = ", ".join(f"{key.split('.', 1)[-1]} {value}" for key, value in choice.settings if key not in fixed)
            pilots = "every point of its grid did in the pilots" if choice.diverged else "its pilot run there did not"
            yield (
                f"On {panel.machine}, how well {choice.label} can do: it diverged in {seeds} of "
                f"{counted(len(panel.runs[choice.label]), 'seed')} at the {'tuned ' if choice.tried else ''}settings "
                f"{at or 'that all have'}{f'; {pilots}' if choice.tried else ''}. A smaller learning rate may mend it."
            )
