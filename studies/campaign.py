"""Run a whole study: pilots, the runs that answer the question, real runs, and the folder that holds it all."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hetsgd.studies.case import Case, Role
from hetsgd.studies.record import StoredRun
from hetsgd.studies.results import Panel, panels_of
from hetsgd.studies.runner import Runner
from hetsgd.studies.screen import say
from hetsgd.studies.study import Study
from hetsgd.studies.tuning import Choice, choose, pilot_cases, untuned
from hetsgd.studies.validation import Validation, validate_panel


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResult:
    """A study with everything it found. `found` has every run, pilots included; `failures` those that broke."""

    study: Study
    found: Mapping[Case, StoredRun]
    choices: tuple[Choice, ...]
    failures: tuple[str, ...]
    wall_s: float

    @property
    def panels(self) -> tuple[Panel, ...]:
        """The results by machine and workload."""
        return panels_of(self.found, self.study.level)

    @property
    def validations(self) -> tuple[Validation, ...]:
        """Predicted against measured, where there are real runs."""
        return tuple(validate_panel(panel, self.study.level) for panel in self.panels if panel.measured)


def run_campaign(study: Study, runner: Runner) -> StudyResult:
    """Run what is not there yet, and hand back everything.

    Raises BadInput before anything runs where a policy, machine or setting is wrong.
    """
    begun_s = time.perf_counter()
    found: dict[Case, StoredRun] = {}
    _check(study, runner)
    choices = untuned(study)
    if study.pilot is not None:
        cases = pilot_cases(study, study.pilot)
        say(f"pilots: {len(cases)} short runs, {len(cases) // len(study.variants)} for each policy")
        pilots = runner.simulate("pilots", cases, study.pilot.stop, "none")
        found |= pilots
        choices = choose(study, pilots)
    found |= _simulated(study, runner, choices)
    if study.validation is not None:
        found |= _validated(study, runner, choices)
    return StudyResult(
        study=study, found=found, choices=choices, failures=tuple(runner.failures),
        wall_s=time.perf_counter() - begun_s,
    )  # fmt: skip


def _check(study: Study, runner: Runner) -> None:
    """Resolve every run that is known now, so that bad input ends the study before its first run."""
    if study.pilot is not None:
        runner.resolve_all(pilot_cases(study, study.pilot), study.pilot.stop, "none")
    first = study.seeds[:1]
    runner.resolve_all(_cases(untuned(study), "run", first), study.stop, "full")


def _simulated(study: Study, runner: Runner, choices: Sequence[Choice]) -> dict[Case, StoredRun]:
    """The runs that answer the question; the first seed keeps its full trace for the figures over time."""
    first, rest = study.seeds[:1], study.seeds[1:]
    found = runner.simulate("simulation, first seed", _cases(choices, "run", first), study.stop, "full")
    if rest:
        found |= runner.simulate("simulation, other seeds", _cases(choices, "run", rest), study.stop, "none")
    return found


def _validated(study: Study, runner: Runner, choices: Sequence[Choice]) -> dict[Case, StoredRun]:
    validation = study.validation
    if validation is None:
        return {}
    stop = validation.stop or study.stop
    own = [choice for choice in choices if choice.machine == validation.machine]
    seeds = [study.seeds[repeat % len(study.seeds)] for repeat in range(validation.repeats)]
    found: dict[Case, StoredRun] = {}
    predicted = _cases(own, "predicted", list(dict.fromkeys(seeds)))
    for level, cases in (("full", [c for c in predicted if c.seed == study.seeds[0]]),
                         ("none", [c for c in predicted if c.seed != study.seeds[0]])):  # fmt: skip
        if cases:
            found |= runner.simulate("predictions", cases, stop, level)
    # Interleaved: what changes on the machine over time meets every policy.
    measured = [
        replace(case, role="measured", repeat=repeat)
        for repeat, seed in enumerate(seeds)
        for case in _cases(own, "measured", [seed])
    ]
    found |= runner.measure("real runs", measured, stop)
    return found


def _cases(choices: Sequence[Choice], role: Role, seeds: Sequence[int]) -> list[Case]:
    return [
        Case(
            role=role,
            machine=choice.machine,
            workload=choice.workload,
            label=choice.label,
            policy=choice.policy,
            seed=seed,
            settings=choice.settings,
        )
        for seed in seeds
        for choice in choices
    ]
