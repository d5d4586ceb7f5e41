"""The loss curve of a run, losses normalised over runs, and the time to a level of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hetsgd.models.trace import Array, Trace

LEVELS: Final[tuple[float, ...]] = (0.5, 0.8, 0.9, 0.95)
"""Levels of normalised loss that time to loss is reported for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossReference:
    """What losses are normalised by: `initial` at the common initial model, `best` the lowest of all runs compared."""

    initial: float
    best: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.initial) and math.isfinite(self.best)):
            raise ValueError(f"loss reference: both losses must be finite, got {self.initial:g},{self.best:g}")
        if self.best >= self.initial:
            raise ValueError(
                f"loss reference: the initial loss comes first and must be above the best, "
                f"got {self.initial:g},{self.best:g}"
            )

    def loss(self, level: float) -> float:
        """The loss at which `level` of the way from the initial to the best one is covered.

        >>> LossReference(initial=1.0, best=0.2).loss(0.5)
        0.6
        """
        return self.initial - level * (self.initial - self.best)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossPoint:
    """One point of the loss curve; `epochs` of rows processed by then (not a whole number within an epoch)."""

    t_s: float
    epochs: float
    update: int
    train: float
    test: float
    train_score: float
    test_score: float


def time_to_loss(times_s: Sequence[float], losses: Sequence[float], target: float) -> float | None:
    """When a loss curve, linear between evaluations, first is at or below `target`; None if it never is.

    A point that is not finite ends no line: the next finite point counts from its own time on.

    >>> time_to_loss([0.0, 10.0, 20.0], [1.0, 0.6, 0.2], 0.5)
    12.5
    """
    before: tuple[float, float] | None = None
    for t_s, loss in zip(times_s, losses, strict=True):
        if not math.isfinite(loss):
            before = None
            continue
        if loss <= target:
            if before is None:
                return t_s
            start_s, high = before
            return start_s + (t_s - start_s) * ((high - target) / (high - loss))
        before = (t_s, loss)
    return None


def time_to_levels(
    curve: Sequence[LossPoint], reference: LossReference | None, levels: Sequence[float] = LEVELS
) -> dict[float, float | None]:
    """Seconds to each level of normalised training loss; empty without a reference."""
    for level in levels:
        if not 0.0 < level <= 1.0:
            raise ValueError(f"loss level must be in (0, 1], got {level}")
    if reference is None:
        return {}
    times, losses = [point.t_s for point in curve], [point.train for point in curve]
    return {level: time_to_loss(times, losses, reference.loss(level)) for level in levels}


def reference_of(curves: Sequence[Sequence[LossPoint]]) -> LossReference | None:
    """The reference of runs that are compared: the first loss of the first curve, the lowest of all curves.

    None where no run improved on the initial loss or none computed losses.
    """
    finite = [point.train for curve in curves for point in curve if math.isfinite(point.train)]
    if not finite or not curves[0] or not math.isfinite(curves[0][0].train):
        return None
    initial, best = curves[0][0].train, min(finite)
    return LossReference(initial=initial, best=best) if best < initial else None


def loss_curve(trace: Trace, rows: int | None, examples: int) -> tuple[LossPoint, ...]:
    """The evaluations that were computed, in the order of their snapshots."""
    table = trace["evaluations"]
    table = table[in_order(table)]
    epochs = _epochs_at(trace, table, rows, examples)
    return tuple(
        LossPoint(
            t_s=float(row["at_s"]),
            epochs=float(epoch),
            update=int(row["update"]),
            train=float(row["train"]),
            test=float(row["test"]),
            train_score=float(row["train_score"]),
            test_score=float(row["test_score"]),
        )
        for row, epoch in zip(table, epochs, strict=True)
    )


def in_order(evaluations: Array) -> Array:
    """The rows of `evaluations` that were computed, by number, in the order of their snapshots."""
    computed = np.flatnonzero(~np.isnan(evaluations["train"]))
    ordered: Array = computed[np.argsort(evaluations["at_s"][computed], kind="stable")]
    return ordered


def _epochs_at(trace: Trace, evaluations: Array, rows: int | None, examples: int) -> Array:
    """Epochs of rows processed at each evaluation's snapshot."""
    at_s = evaluations["at_s"]
    results = trace["results"]
    if len(results) and rows:
        order = np.argsort(results["end_s"], kind="stable")
        processed = np.concatenate([[0], np.cumsum(results["rows"][order])])
        return np.asarray(processed[np.searchsorted(results["end_s"][order], at_s, side="right")] / rows)
    finished = trace["epochs"]
    times = np.concatenate([[0.0], finished["end_s"]])
    counts = np.concatenate([[0.0], finished["epoch"] + 1.0])
    total = examples / rows if rows else counts[-1]
    if trace.elapsed_s > times[-1]:
        times, counts = np.append(times, trace.elapsed_s), np.append(counts, max(total, counts[-1]))
    epochs = np.interp(at_s, times, counts)
    # A blocking evaluation closes its epoch: it began when the epoch's last row was in.
    closes = np.isin(evaluations["end_s"], finished["end_s"])
    fractional: Array = np.where(closes, np.interp(evaluations["end_s"], times, counts), epochs)
    return fractional
