"""Find the coefficients of a step-time model: least squares on the logarithm of measured times, with scipy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hetsgd.models.calibration import mean_absolute_error
from hetsgd.models.policy import Write
from hetsgd.models.step_fit import StepCosts, StepFit, step_seconds
from hetsgd.models.workload import Workload

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAMES: Final = tuple(field.name for field in fields(StepCosts) if field.name != "forward_share")
_PRIOR: Final = 0.02
_FIRM_PRIOR: Final = 0.3
"""Weight of one e-fold away from where the search starts: what no measurement tells stays there."""
_FIRM: Final = frozenset({"l2_bytes_per_s", "l3_bytes_per_s", "dram_bytes_per_s", "half_batch", "gradient_passes"})
"""Coefficients that start from measurements of their own, or that trade off against those."""
_BOUND: Final = math.log(1e3)
_OUTLIER: Final = 0.1
"""From this relative error on, an error counts linearly: one disturbed measurement does not bend the fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSample:
    """A measured step: the median of its repeats in seconds and their relative spread."""

    workload: Workload
    batch: int
    write: Write
    seconds: float
    spread: float = 0.0


def fit_steps(start: StepFit, samples: Sequence[StepSample]) -> StepFit:
    """The fit whose times are nearest to the samples', from the coefficients and the kind of `start`.

    Its ranges, its error and its spread are those of the samples. Raises ValueError without samples.
    """
    if not samples:
        raise ValueError("fit: there must be at least one sample, got none")
    from scipy.optimize import least_squares

    origin = np.array([math.log(getattr(start.costs, name)) for name in _NAMES])
    prior = np.array([_FIRM_PRIOR if name in _FIRM else _PRIOR for name in _NAMES])
    truth = np.array([math.log(sample.seconds) for sample in samples])

    def residuals(point: NDArray[Any]) -> NDArray[Any]:
        costs = _costs(start.costs, point)
        guess = [math.log(step_seconds(start, costs, s.workload, s.batch, s.write)) for s in samples]
        return np.concatenate([np.array(guess) - truth, prior * (point - origin)])

    found = least_squares(
        residuals, origin, bounds=(origin - _BOUND, origin + _BOUND), loss="soft_l1", f_scale=_OUTLIER, max_nfev=200
    )
    costs = _costs(start.costs, found.x)
    fit = replace(
        start,
        costs=costs,
        batches=_range([sample.batch for sample in samples]),
        parameters=_range([sample.workload.parameters for sample in samples]),
        # Without repeats nothing is known of their spread.
        spread=float(np.median([sample.spread for sample in samples])) or None,
    )
    return replace(fit, fit_error=error_of(fit, samples))


def error_of(fit: StepFit, samples: Sequence[StepSample]) -> float | None:
    """Mean absolute relative error of the fit's times; None without samples."""
    guesses = [fit.step_s(sample.workload, sample.batch, sample.write) for sample in samples]
    return mean_absolute_error(guesses, [sample.seconds for sample in samples])


def _costs(start: StepCosts, point: NDArray[Any]) -> StepCosts:
    return replace(start, **{name: math.exp(value) for name, value in zip(_NAMES, point.tolist(), strict=True)})


def _range(values: Sequence[int]) -> tuple[int, int]:
    return min(values), max(values)
