"""What the runs of a study add up to: one loss reference per machine and workload, times, rankings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hetsgd.models.loss_curve import LEVELS, LossReference, time_to_loss
from hetsgd.studies.case import Case
from hetsgd.studies.ranking import Ranking, rank
from hetsgd.studies.record import StoredRun

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """The runs on one machine with one workload: what is compared with each other.

    `reference` is None where no run improved on the initial loss. Records are by label and seed (runs), and by
    label in the order of repeats (predicted, measured).
    """

    machine: str
    workload: str
    reference: LossReference | None
    runs: Mapping[str, Mapping[int, Record]]
    predicted: Mapping[str, Sequence[Record]]
    measured: Mapping[str, Sequence[Record]]
    levels: tuple[float, ...]

    def ranking(self, level: float) -> Ranking:
        """The policies by time to `level` in the simulated runs."""
        times = {
            label: {seed: time_to(record, self.reference, level) for seed, record in by_seed.items()}
            for label, by_seed in self.runs.items()
        }
        losses = {label: mean_final_loss(by_seed.values()) for label, by_seed in self.runs.items()}
        return rank(self.machine, self.workload, level, times, losses, self.diverged)

    @property
    def diverged(self) -> Mapping[str, int]:
        """In how many seeds the simulated runs of each policy diverged."""
        return {label: sum(map(ended_above, by_seed.values())) for label, by_seed in self.runs.items()}


def panels_of(found: Mapping[Case, StoredRun], level: float) -> tuple[Panel, ...]:
    """Group results (pilots left out) by machine and workload, in the order of the cases."""
    keys = dict.fromkeys((case.machine, case.workload) for case in found if case.role != "pilot")
    levels = tuple(sorted({*LEVELS, level}))
    return tuple(_panel(machine, workload, found, levels) for machine, workload in keys)


def _panel(machine: str, workload: str, found: Mapping[Case, StoredRun], levels: tuple[float, ...]) -> Panel:
    runs: dict[str, dict[int, Record]] = {}
    sides: dict[str, dict[str, list[Record]]] = {"predicted": {}, "measured": {}}
    records = []
    for case, run in found.items():
        if (case.machine, case.workload) != (machine, workload) or case.role == "pilot":
            continue
        records.append(run.record)
        if case.role == "run":
            runs.setdefault(case.label, {})[case.seed] = run.record
        else:
            sides[case.role].setdefault(case.label, []).append(run.record)
    return Panel(
        machine=machine,
        workload=workload,
        reference=reference_over(records),
        runs=runs,
        predicted=sides["predicted"],
        measured=sides["measured"],
        levels=levels,
    )


def reference_over(records: Iterable[Record]) -> LossReference | None:
    """Initial loss (the mean over the seeds' initial models) and the lowest of all runs; None without progress."""
    initial, best = [], math.inf
    for record in records:
        losses = [point["train"] for point in record["loss"] if point["train"] is not None]
        if losses and record["loss"][0]["train"] is not None:
            initial.append(losses[0])
            best = min(best, *losses)
    if not initial:
        return None
    start = math.fsum(initial) / len(initial)
    return LossReference(initial=start, best=best) if best < start else None


def time_to(record: Record, reference: LossReference | None, level: float) -> float | None:
    """Seconds of one run to a level of normalised loss; None where it is not reached."""
    if reference is None:
        return None
    curve = record["loss"]
    losses = [math.nan if point["train"] is None else point["train"] for point in curve]
    return time_to_loss([point["t_s"] for point in curve], losses, reference.loss(level))


def ended_above(record: Record) -> bool:
    """Whether a run diverged: its training loss ended above where it began, or was not finite any more."""
    if record["status"] == "diverged":
        return True
    losses = [point["train"] for point in record["loss"]]
    if not losses or losses[0] is None:
        return False  # no losses were computed
    return losses[-1] is None or bool(losses[-1] > losses[0])


def final_loss(record: Record) -> float:
    """Training loss of the last evaluation; infinite where it is not finite or was not computed."""
    last = record["loss"][-1]["train"] if record["loss"] else None
    return math.inf if last is None or record["status"] == "diverged" else float(last)


def mean_final_loss(records: Iterable[Record]) -> float:
    """Mean of `final_loss` over runs."""
    losses = [final_loss(record) for record in records]
    return math.fsum(losses) / len(losses) if losses else math.inf


def mean_epoch_s(record: Record) -> float | None:
    """Mean seconds of the finished epochs; None where none finished."""
    epochs_s = record["epoch_s"]
    return math.fsum(epochs_s) / len(epochs_s) if epochs_s else None


def examples_per_s(record: Record) -> float | None:
    """Rows trained on in a second of training."""
    return record["examples"] / record["elapsed_s"] if record["elapsed_s"] else None
