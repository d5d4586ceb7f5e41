"""One metric of one policy, predicted and measured, with the error and where it comes from."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal

from hetsgd.models.loss_curve import LossReference
from hetsgd.studies.results import Record

ErrorKind = Literal["relative", "absolute"]
_SMALL: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One metric that is predicted and measured; `absolute` errors are differences of shares.

    `of_losses`: it follows from the losses of a run and their times.
    """

    name: str
    error: ErrorKind
    value: Callable[[Record, LossReference | None], float | None]
    of_losses: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One policy and metric. `predicted` and `measured` are means (None: missing in some run); lists hold each run.

    `error`: (predicted - measured) / measured, or the difference where the metric is a share. `implied`: the metric
    of the real runs with the losses that their recorded order of events implies, which splits the error of a metric
    that depends on losses: `timing_error` (predicted - implied) / measured is what another order and other times make,
    `statistics_error` (implied - measured) / measured what the replay of gradients does not hold (torn reads, lost
    updates). The two add up to the error.
    """

    label: str
    metric: str
    kind: ErrorKind
    predicted_all: tuple[float | None, ...]
    measured_all: tuple[float | None, ...]
    implied_all: tuple[float | None, ...] = ()

    @property
    def predicted(self) -> float | None:
        """Mean over the simulated runs."""
        return _mean(self.predicted_all)

    @property
    def measured(self) -> float | None:
        """Mean over the real runs."""
        return _mean(self.measured_all)

    @property
    def spread(self) -> float | None:
        """Standard deviation over the real runs."""
        values = _complete(self.measured_all)
        return statistics.stdev(values) if values is not None and len(values) > 1 else None

    @property
    def error(self) -> float | None:
        """Error of the predicted mean against the measured mean."""
        return _error(self.predicted, self.measured, self.kind)

    @property
    def implied(self) -> float | None:
        """Mean over the real runs with the losses that their order of events implies."""
        return _mean(self.implied_all)

    @property
    def timing_error(self) -> float | None:
        """The part of the error that the order of events and its times make."""
        if self.predicted is None or self.implied is None or not self.measured:
            return None
        return (self.predicted - self.implied) / self.measured

    @property
    def statistics_error(self) -> float | None:
        """The part of the error that is there with the recorded order and times as well."""
        return _error(self.implied, self.measured, self.kind)

    @property
    def noise(self) -> tuple[float, ...]:
        """Errors of every real run against every later one: what repeating alone makes."""
        errors = [_error(b, a, self.kind) for a, b in combinations(self.measured_all, 2)]
        return tuple(abs(error) for error in errors if error is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Where the error of one policy's times to loss comes from: medians of the two parts over the levels reached.

    `dominates`: the larger part, or `neither` where both are below a twentieth.
    """

    label: str
    timing: float
    statistics: float

    @property
    def dominates(self) -> Literal["timing", "statistics", "neither"]:
        """Which part is larger."""
        if max(abs(self.timing), abs(self.statistics)) < _SMALL:
            return "neither"
        return "timing" if abs(self.timing) >= abs(self.statistics) else "statistics"


def _error(predicted: float | None, measured: float | None, kind: ErrorKind) -> float | None:
    if predicted is None or measured is None:
        return None
    if kind == "absolute":
        return predicted - measured
    return (predicted - measured) / measured if measured else None


def _complete(values: Sequence[float | None]) -> list[float] | None:
    """The values, or None where one is missing: a mean over the runs that happened to get there would mislead."""
    found = [value for value in values if value is not None]
    return found if found and len(found) == len(values) else None


def _mean(values: Sequence[float | None]) -> float | None:
    found = _complete(values)
    return None if found is None else math.fsum(found) / len(found)
