"""What was measured on one device: step-time tables of some networks, and a fitted model for all others.

A table counts where it is of that very network: between its batch sizes the ratio of measured to fitted time is
interpolated in the logarithm of the batch. Beyond what was calibrated the nearest that was is stretched by the fit, and
`outside` says along which axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hetsgd.models.policy import Write
from hetsgd.models.step_fit import StepFit
from hetsgd.models.step_table import Shape, StepCurve, between
from hetsgd.models.workload import Precision, Workload

MEASURED_FIELDS: Final = frozenset(
    {
        "cores", "threads_per_core", "core_flops_float32", "core_flops_float64", "half_batch", "l2_bytes", "l3_bytes",
        "core_l3_bandwidth_bytes_per_s", "step_overhead_s", "flops_float32", "flops_float64", "launch_s",
        "memory_bandwidth_bytes_per_s", "kernels_per_layer", "efficiency", "line_transfer_s",
    }
)  # fmt: skip
"""Values of a socket or accelerator that count for nothing beside a calibration: what they stand for was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The fits of one device (one for each precision and number of lanes) and its measured tables.

    They are of steps at their best. `slowdown`: how many times as long steps take on average, over all networks.
    """

    fits: tuple[StepFit, ...]
    curves: tuple[StepCurve, ...] = ()
    slowdown: float = 1.0

    def __post_init__(self) -> None:
        if not self.fits:
            raise ValueError("calibration: there must be at least one fit, got none")
        if not 1.0 <= self.slowdown < math.inf:
            raise ValueError(f"calibration: slowdown must be >= 1 and finite, got {self.slowdown}")
        keys = [(fit.precision, fit.lanes) for fit in self.fits]
        if len(set(keys)) < len(keys):
            raise ValueError(f"calibration: one fit for each precision and number of lanes, got {keys}")
        for curve in self.curves:
            if (curve.shape.precision, curve.lanes) not in keys:
                raise ValueError(f"calibration: no fit for {curve.shape.precision} with {curve.lanes} lanes")

    def covers(self, workload: Workload) -> bool:
        """Whether steps of this kind were measured: fully connected, at this precision, no zeros left out."""
        measured = workload.fully_connected and not workload.multiplies_sparse
        return measured and any(fit.precision == workload.precision for fit in self.fits)

    def step_s(self, workload: Workload, batch: int, *, lanes: int = 1, write: Write = "in_place") -> float:
        """Seconds of one step on average, with `lanes` lanes at work.

        Raises KeyError when the workload is not covered.
        """
        return self.slowdown * self.best_s(workload, batch, lanes=lanes, write=write)

    def best_s(self, workload: Workload, batch: int, *, lanes: int = 1, write: Write = "in_place") -> float:
        """Seconds of one step at its best; between measured numbers of lanes as between batches."""
        fits = self._fits(workload.precision)
        kind: Write = "gradient" if write == "gradient" else "in_place"
        times = [fit.step_s(workload, batch, kind) * self._ratio(fit, workload, batch, kind) for fit in fits]
        return between(lanes, [fit.lanes for fit in fits], times)

    def forward_s(self, workload: Workload, rows: int, *, lanes: int = 1) -> float:
        """Seconds of the loss over `rows` rows."""
        fits = self._fits(workload.precision)
        times = [self.slowdown * fit.forward_s(workload, rows) for fit in fits]
        return between(lanes, [fit.lanes for fit in fits], times)

    def outside(self, workload: Workload, batch: int, *, lanes: int = 1) -> Iterator[str]:
        """The axes along which this is beyond what was measured, in words; none where it is within."""
        if workload.multiplies_sparse:
            yield f"density {workload.density:g} (calibrated: dense features)"
            return
        if not workload.fully_connected:
            yield "a traced module (calibrated: fully connected networks)"
            return
        if not self.covers(workload):
            yield f"precision {workload.precision} (calibrated: {', '.join(sorted({f.precision for f in self.fits}))})"
            return
        fits = self._fits(workload.precision)
        if lanes > fits[-1].lanes:
            yield f"lanes {lanes} (calibrated: up to {fits[-1].lanes})"
        known = self._curves(fits[0], workload, "in_place")
        low, high = _range(known[0].batches) if known else fits[0].batches
        if not low <= batch <= high:
            yield f"batch {batch} (calibrated: {low} to {high})"
        low, high = fits[0].parameters
        if not known and not low <= workload.parameters <= high:
            yield f"parameters {workload.parameters:,} (calibrated: {low:,} to {high:,})"

    def _fits(self, precision: Precision) -> list[StepFit]:
        fits = sorted((fit for fit in self.fits if fit.precision == precision), key=lambda fit: fit.lanes)
        if not fits:
            raise KeyError(f"calibration: nothing was measured at precision {precision}")
        return fits

    def _ratio(self, fit: StepFit, workload: Workload, batch: int, write: Write) -> float:
        """Measured over fitted time, where this network was measured; else 1."""
        ratio = 1.0
        for curve in self._curves(fit, workload, "in_place"):
            ratio = between(batch, curve.batches, _ratios(fit, curve, workload))
        if write == "gradient":
            # Fewer batches were measured for gradients: what they add is taken from the fit between them.
            for curve in self._curves(fit, workload, "gradient"):
                ratio = between(batch, curve.batches, _ratios(fit, curve, workload))
        return ratio

    def _curves(self, fit: StepFit, workload: Workload, write: Write) -> list[StepCurve]:
        shape = Shape.of(workload)
        return [
            curve for curve in self.curves
            if curve.shape == shape and curve.lanes == fit.lanes and curve.write == write and not curve.held_out
        ]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RawSamples:
    """Repeated measurements of one thing: `what` was measured, in `unit`; all `values`, in the order of time.

    Of steps, `values` are at their best and `means` on average; `disturbed`: whether something else had the core
    meanwhile.
    """

    what: str
    unit: str
    values: tuple[float, ...]
    means: tuple[float, ...] = ()
    disturbed: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRecord:
    """How a machine was calibrated.

    `raw` is in the file only: a machine that is read from it leaves that out.

    `date` in ISO form (UTC), `duration_s` of the measurements, `host` the hardware and system in words, `versions` of
    what was measured with, `disturbed`: the share of measurements during which other programs took the processor.
    """

    date: str
    duration_s: float
    host: str
    versions: tuple[tuple[str, str], ...]
    disturbed: float
    raw: tuple[RawSamples, ...] = ()


def _range(batches: Sequence[int]) -> tuple[int, int]:
    return batches[0], batches[-1]


def _ratios(fit: StepFit, curve: StepCurve, workload: Workload) -> list[float]:
    return [
        seconds / fit.step_s(workload, batch, curve.write)
        for batch, seconds in zip(curve.batches, curve.seconds, strict=True)
    ]


def mean_absolute_error(predicted: Sequence[float], measured: Sequence[float]) -> float | None:
    """Mean of |predicted / measured - 1|; None without any.

    >>> round(mean_absolute_error([1.1, 1.8], [1.0, 2.0]), 9)
    0.1
    """
    if not measured:
        return None
    return sum(abs(guess / truth - 1.0) for guess, truth in zip(predicted, measured, strict=True)) / len(measured)
