"""What pilot runs of a workload taught its surrogates, and what these may be asked."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from hetsgd.models.plan import Plan
from hetsgd.models.stability import StabilityLimit
from hetsgd.models.surrogates.axes import AxisError
from hetsgd.models.surrogates.loss_map import LossMap
from hetsgd.models.surrogates.one_step import GradientStatistics, OneStepModel
from hetsgd.models.workload import Workload

MODELS: Final = ("path", "quadratic", "one-step")
_WIDER: Final = 4.0
"""Rates up to so many times the pilots' are answered; small ones are the easy end."""
_HOTTER: Final = 2.0
"""Rate per row, which sets the temperature: beyond twice the pilots' hottest, hot pilots have spoilt every fit."""
_LEFT_OUT: Final = ("name", "description", "source", "rows", "test_rows", "density", "precision")


def fingerprint(workload: Workload) -> str:
    """What a calibration belongs to (hex): network, initial model and data set, however many of its rows."""
    content = {name: value for name, value in asdict(workload).items() if name not in _LEFT_OUT}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotRun:
    """One pilot: what ran, and how far each surrogate, fitted without it, was off (rms of log loss, by model)."""

    label: str
    policy: str
    seeds: tuple[int, ...]
    updates: int
    batches: tuple[int, ...]
    rates: tuple[float, ...]
    staleness: float
    residuals: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """All that the surrogates of one workload know.

    `curvatures` (K,) of the spectrum's modes with `samples` noise samples each. `statistics`: measured along the
    pilots, at the initial model first. `preferred`: the model with the smallest residuals. `seed_spread`: rms of log
    loss of one seed against the mean of the others, the floor below which no prediction of one run can come.
    """

    workload: str
    fingerprint: str
    versions: Mapping[str, str]
    pilots: tuple[PilotRun, ...]
    curvatures: tuple[float, ...]
    samples: int
    maps: Mapping[str, LossMap]
    one_step: OneStepModel | None
    statistics: tuple[GradientStatistics, ...]
    preferred: str
    seed_spread: float

    def __post_init__(self) -> None:
        if not self.pilots:
            raise ValueError("surrogate calibration: there must be pilots, got none")
        if self.preferred not in self.models:
            raise ValueError(f"surrogate calibration: preferred must be one of {self.models}, got {self.preferred!r}")
        for name, found in self.maps.items():
            if len(found.heat) != len(self.curvatures):
                raise ValueError(f"surrogate calibration: {name} has {len(found.heat)} heats for "
                                 f"{len(self.curvatures)} curvatures")  # fmt: skip

    @property
    def models(self) -> tuple[str, ...]:
        """The surrogates that were fitted."""
        return (*self.maps, *(("one-step",) if self.one_step is not None else ()))

    @property
    def limit(self) -> StabilityLimit:
        """Where training is predicted to diverge, by the curvatures of the initial model.

        Later ones follow the run: cold runs sharpen up to what their steps bear, hot ones flatten.
        """
        first = self.statistics[0]
        return StabilityLimit(curvature=first.curvature, row_curvature=first.row_curvature)

    @property
    def fastest(self) -> float:
        """Largest learning rate of a pilot's update."""
        return max(rate for pilot in self.pilots for rate in pilot.rates)

    @property
    def hottest(self) -> float:
        """Largest learning rate per row of a pilot's batch."""
        return max(
            rate / batch for pilot in self.pilots for rate, batch in zip(pilot.rates, pilot.batches, strict=True)
        )

    def check(self, plan: Plan, model: str) -> None:
        """AxisError where the run has an axis that `model` does not: see `axes`."""
        run = plan.run
        if model not in self.models:
            raise AxisError(f"surrogate: model must be one of {', '.join(self.models)}, got {model!r}")
        if fingerprint(plan.workload) != self.fingerprint:
            raise AxisError(
                f"surrogate: axis workload: calibrated for {self.workload}, and {plan.workload.name} has another "
                "network, initial model or data set; run hetsgd pilots for it"
            )
        if run.weight_decay:
            raise AxisError(f"surrogate: axis run.weight_decay is not modelled, got {run.weight_decay:g}; use replay")
        if run.order != "shuffled":
            raise AxisError(
                f"surrogate: axis run.order: only shuffled rows are modelled, got {run.order!r}; use replay"
            )
        if run.momentum and model == "one-step":
            raise AxisError(f"surrogate: axis run.momentum is not modelled by one-step, got {run.momentum:g}")

    def guard(self, batch: int, rate: float) -> None:
        """AxisError where a step lies far outside the pilots: learning rate, or learning rate per row of its batch."""
        high = self.fastest * _WIDER
        if rate > high:
            raise AxisError(
                f"surrogate: axis learning rate: up to {high:.3g} is modelled for {self.workload}, got {rate:.3g} "
                f"(batch {batch}); use replay, or run hetsgd pilots"
            )
        if rate / batch > self.hottest * _HOTTER * (1.0 + 1e-9):
            raise AxisError(
                f"surrogate: axis learning rate per row: up to {self.hottest * _HOTTER:.3g} is modelled for "
                f"{self.workload}, got {rate / batch:.3g} (rate {rate:.3g}, batch {batch}); use replay"
            )


def beyond(calibration: Calibration, model: str, progress: float) -> str:
    """A note for a run that went farther than the pilots, or an empty text."""
    found = calibration.maps.get(model)
    reach = found.farthest if found is not None else math.inf
    if progress <= reach:
        return ""
    return f"surrogate {model}: the run goes {progress / reach:.2g} times as far as the pilots; its end is extrapolated"
