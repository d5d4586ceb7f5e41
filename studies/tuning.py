"""Choose each policy's grid point from short pilot runs, the same budget for every policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hetsgd.studies.case import Case
from hetsgd.studies.record import StoredRun
from hetsgd.studies.results import ended_above, final_loss, reference_over, time_to
from hetsgd.studies.study import Settings, Study


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The settings that a policy enters with on one machine and workload, and why.

    `time_s` to the level in the pilot (None: not reached), `loss` at its end, `tried` grid points, `at_edge` the
    grid keys with more than two values of which the smallest or largest was chosen: a better one may lie outside.
    `rejected` of the points diverged: their loss ended above where it began.
    """

    machine: str
    workload: str
    label: str
    policy: str
    settings: Settings
    time_s: float | None
    loss: float
    tried: int
    at_edge: tuple[str, ...]
    rejected: int = 0

    @property
    def diverged(self) -> bool:
        """Whether every point that was tried diverged, the chosen one with them."""
        return 0 < self.tried == self.rejected


def pilot_cases(study: Study) -> list[Case]:
    """Every grid point of every policy on every machine, once; none where the study has no pilot."""
    if study.pilot is None:
        return []
    seed = study.pilot.seed
    return [
        Case(role="pilot", machine=machine, workload=workload, label=variant.label, policy=variant.policy, seed=seed,
             settings=(*study.settings_on(machine), *point))
        for machine in study.machines
        for workload in study.workloads
        for variant in study.variants
        for point in variant.points
    ]  # fmt: skip


def choose(study: Study, found: Mapping[Case, StoredRun]) -> tuple[Choice, ...]:
    """The best grid point of each policy: the first to the study's level of the best pilot loss, else lowest loss.

    A point whose loss ends above where it began is taken only where all do, however early it passed the level.
    The level is relative to the pilots of all policies on that machine and workload. Ties go to the first point.
    """
    choices = []
    for machine in study.machines:
        for workload in study.workloads:
            own = {case: run for case, run in found.items() if (case.machine, case.workload) == (machine, workload)}
            choices += [
                _choose(study, machine, workload, variant.label, own)
                for variant in study.variants
                if any(case.label == variant.label for case in own)
            ]
    return tuple(choices)


def _choose(study: Study, machine: str, workload: str, label: str, own: Mapping[Case, StoredRun]) -> Choice:
    reference = reference_over(run.record for run in own.values())
    mine = {case: run.record for case, run in own.items() if case.label == label}

    diverged = {case for case, record in mine.items() if ended_above(record)}

    def order(case: Case) -> tuple[bool, float, float]:
        time_s = None if case in diverged else time_to(mine[case], reference, study.level)
        return case in diverged, math.inf if time_s is None else time_s, final_loss(mine[case])

    best = min(mine, key=order)
    _, time_s, loss = order(best)
    variant = next(variant for variant in study.variants if variant.label == label)
    return Choice(
        machine=machine,
        workload=workload,
        label=label,
        policy=best.policy,
        settings=best.settings,
        time_s=time_s if math.isfinite(time_s) else None,
        loss=loss,
        tried=len(mine),
        at_edge=_edges(variant.grid, dict(best.settings)),
        rejected=len(diverged),
    )


def _edges(grid: Sequence[tuple[str, Sequence[object]]], chosen: Mapping[str, object]) -> tuple[str, ...]:
    at_edge = []
    for key, values in grid:
        numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        if len(numbers) > 2 and len(numbers) == len(values) and chosen.get(key) in (min(numbers), max(numbers)):
            at_edge.append(key)
    return tuple(at_edge)


def untuned(study: Study) -> tuple[Choice, ...]:
    """Without a pilot every grid point enters as it is, labelled by its point where there are several."""
    return tuple(
        Choice(machine=machine, workload=workload, policy=variant.policy,
               label=_label(variant.label, variant.settings, point, variant.points),
               settings=(*study.settings_on(machine), *point), time_s=None, loss=math.nan, tried=0, at_edge=())
        for machine in study.machines
        for workload in study.workloads
        for variant in study.variants
        for point in variant.points
    )  # fmt: skip


def _label(label: str, fixed: Settings, point: Settings, points: Sequence[Settings]) -> str:
    if len(points) == 1:
        return label
    varied = [f"{key.split('.', 1)[-1]}={value}" for key, value in point[len(fixed) :]]
    return f"{label} {' '.join(varied)}"
