"""A study: a question, and the runs that answer it. Values only; `study_file` reads them from TOML."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Final

from hetsgd.models.edge import nearest
from hetsgd.models.machine_names import LOCAL
from hetsgd.models.run import StopRule, seed_problem

Value = bool | int | float | str | tuple["Value", ...]
Settings = tuple[tuple[str, Value], ...]

METRICS: Final[dict[str, str]] = {
    "time_to_loss_s": "seconds to each level of normalised loss",
    "epoch_s": "seconds of an epoch",
    "final_loss": "training loss at the end",
    "update_share": "share of the updates made by each class of worker",
    "utilization": "busy share of each class of worker",
    "staleness": "mean staleness of each class of worker",
    "examples_per_s": "rows trained on in a second",
}
"""The metrics a study can ask for, with their meaning."""


MOST_POINTS: Final = 10_000
MOST_SEEDS: Final = 10_000
MOST_REPEATS: Final = 1_000
CALIBRATE_MINUTES: Final = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One policy as it enters a study: its name, settings that hold for it alone, and a grid of others.

    Keys of `settings` and `grid` are those of `--set`: `policy.KEY`, `run.KEY`, `machine.KEY`, `workload.KEY`.
    """

    label: str
    policy: str
    settings: Settings = ()
    grid: tuple[tuple[str, tuple[Value, ...]], ...] = ()

    def __post_init__(self) -> None:
        count = math.prod(len(choices) for _, choices in self.grid)
        if count > MOST_POINTS:
            raise ValueError(f"policies.{self.label}.grid: must make at most {MOST_POINTS:,} points, got {count:,}")

    @property
    def points(self) -> tuple[Settings, ...]:
        """The grid, point by point, each with the settings that hold for all.

        >>> Variant(label="h", policy="hogwild", grid=(("run.learning_rate", (0.1, 0.2)),)).points
        ((('run.learning_rate', 0.1),), (('run.learning_rate', 0.2),))
        """
        names = [name for name, _ in self.grid]
        return tuple(
            (*self.settings, *zip(names, values, strict=True))
            for values in product(*(choices for _, choices in self.grid))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """A budget of short simulated runs: each policy tries its own grid, all grids having the same size."""

    stop: StopRule
    seed: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Real runs of the policies on this machine, `repeats` of each, interleaved."""

    machine: str = "local"
    repeats: int = 3
    stop: StopRule | None = None

    def __post_init__(self) -> None:
        if self.repeats < 2:
            raise ValueError(
                f"validate.repeats must be >= 2, or there is no spread to compare with, got {self.repeats}"
            )
        if self.repeats > MOST_REPEATS:
            raise ValueError(f"validate.repeats must be at most {MOST_REPEATS}, got {self.repeats}")


@dataclass(frozen=True, slots=True, kw_only=True)
class On:
    """What differs on one machine, whose clock may tick a hundred times faster: stop rules and run settings."""

    machine: str
    stop: StopRule | None = None
    pilot_stop: StopRule | None = None
    settings: Settings = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A question with everything that is run to answer it. `level` of normalised loss decides who is first.

    Without a pilot every grid point is a variant of its own; with one, each policy enters with the point that was
    best in the pilot runs on the same machine and workload. `calibrate_minutes` > 0: so long `local` is calibrated for
    the workloads before anything runs; otherwise it is what `local` is elsewhere.
    """

    name: str
    question: str
    machines: tuple[str, ...]
    workloads: tuple[str, ...]
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    stop: StopRule
    settings: Settings = ()
    learner: str = "replay"
    level: float = 0.9
    metrics: tuple[str, ...] = tuple(METRICS)
    pilot: Pilot | None = None
    validation: Validation | None = None
    calibrate_minutes: float = 0.0
    on: tuple[On, ...] = ()

    def stop_on(self, machine: str) -> StopRule:
        """The stop rule of runs on a machine."""
        return next((on.stop for on in self.on if on.machine == machine and on.stop is not None), self.stop)

    def pilot_stop_on(self, machine: str) -> StopRule:
        """The stop rule of pilot runs on a machine."""
        own = (on.pilot_stop for on in self.on if on.machine == machine and on.pilot_stop is not None)
        return next(own, self.stop_on(machine) if self.pilot is None else self.pilot.stop)

    def settings_on(self, machine: str) -> Settings:
        """Settings of all runs on a machine; those of `on` win."""
        own = next((on.settings for on in self.on if on.machine == machine), ())
        return tuple({**dict(self.settings), **dict(own)}.items())

    def __post_init__(self) -> None:
        for name in ("machines", "workloads", "variants", "seeds", "metrics"):
            if not getattr(self, name):
                raise ValueError(f"{name}: there must be at least one, got none")
        for name in ("machines", "workloads", "seeds"):
            values = getattr(self, name)
            if len(set(values)) != len(values):
                raise ValueError(f"{name}: each may appear once, got {', '.join(map(str, values))}")
        if len(self.seeds) > MOST_SEEDS:
            raise ValueError(f"seeds: there must be at most {MOST_SEEDS:,}, got {len(self.seeds):,}")
        for field, seed in [*(("seeds", seed) for seed in self.seeds), *self._pilot_seeds()]:
            if problem := seed_problem(seed):
                raise ValueError(f"{field}: {problem}")
        for on in self.on:
            if on.machine not in self.machines:
                raise ValueError(
                    f"on.{on.machine}: must be a machine of the study, {nearest(on.machine, self.machines)}"
                )
        labels = [variant.label for variant in self.variants]
        if len(set(labels)) != len(labels):
            raise ValueError(f"policies: two have the same label, got {', '.join(labels)}; set label")
        if not 0.0 < self.level < 1.0:
            raise ValueError(f"level must be between 0 and 1 (a normalised loss), got {self.level}")
        if self.calibrate_minutes:
            from hetsgd.models.calibration_scope import LEAST_MINUTES, MOST_MINUTES

            if LOCAL not in self.machines:
                raise ValueError(f"calibrate: is for studies of machine {LOCAL}, got {', '.join(self.machines)}")
            if not LEAST_MINUTES <= self.calibrate_minutes <= MOST_MINUTES:
                given = f"got {self.calibrate_minutes:g}"
                raise ValueError(f"calibrate.minutes must be {LEAST_MINUTES} to {MOST_MINUTES} minutes, {given}")
        if self.pilot is not None:
            self._check_budget(self.pilot)
        if self.validation is not None and self.validation.machine not in self.machines:
            raise ValueError(
                f"validate.machine must be a machine of the study, got {self.validation.machine!r}, "
                f"{nearest(self.validation.machine, self.machines)}"
            )

    def _pilot_seeds(self) -> tuple[tuple[str, int], ...]:
        return () if self.pilot is None else (("pilot.seed", self.pilot.seed),)

    def _check_budget(self, pilot: Pilot) -> None:
        sizes = {variant.label: len(variant.points) for variant in self.variants}
        if len(set(sizes.values())) > 1:
            words = ", ".join(f"{label} {size}" for label, size in sizes.items())
            raise ValueError(
                f"policies: with a pilot every grid must have the same number of points, or the comparison favours "
                f"the policy that was tuned more, got {words}"
            )
        if pilot.seed in self.seeds:
            raise ValueError(f"pilot.seed must not be one of the study's seeds, got {pilot.seed}")
