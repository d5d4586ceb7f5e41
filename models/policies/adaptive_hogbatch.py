"""Adaptive Hogbatch (Ma and Rusu 2020): batch sizes follow the update counts of the workers.

Every worker has a batch size b between two thresholds and a count u of its updates. When a worker asks for work
and its count is below that of every other worker, its batch is divided by alpha; when above, multiplied. An
accelerator batch counts as one update, a CPU assignment as beta times the updates its lanes made (T lanes: T beta),
beta being the share of concurrent updates that survive. The constants of the paper are not known: alpha = 2 and
beta = 1 are assumed, and so are all thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from hetsgd.models.keys import check_keys, key
from hetsgd.models.policies.shared_keys import (
    FAR_AHEAD,
    IN_PLACE,
    accelerator_batch,
    accelerator_rate,
    cpu_batch,
    cpu_rate,
    cpu_steps,
    kind_of,
    refuse_momentum,
)
from hetsgd.models.policy import MOST_ROWS, Fleet, Kind, LaneMode, Merge, PolicyError, Result, Schedule, View, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveHogbatch:
    """Hogbatch that balances update counts by batch size; counts are of the epoch, as the authors' code resets them."""

    kinds: ClassVar[tuple[Kind, ...]] = ("cpu", "accelerator")
    lane_modes: ClassVar[tuple[LaneMode, ...]] = ("barrier", "free")
    max_lookahead: ClassVar[int] = FAR_AHEAD
    reads_losses: ClassVar[bool] = False

    alpha: float = key(2.0, "factor by which a batch grows or shrinks; > 1", low=1.0)
    beta: float = key(1.0, "share of the concurrent CPU updates that survive: what one counts for", low=0.0, high=1.0)
    cpu_batch: int = cpu_batch(1)
    cpu_lower: int = key(1, "lower threshold of the CPU batch, rows per lane and step", low=1, high=MOST_ROWS)
    cpu_upper: int = key(64, "upper threshold of the CPU batch, rows per lane and step", low=1, high=MOST_ROWS)
    cpu_steps: int = cpu_steps()
    cpu_rate: float = cpu_rate()
    accelerator_batch: int = accelerator_batch(8192)
    accelerator_lower: int = key(256, "lower threshold of the accelerator batch, rows per step", low=1, high=MOST_ROWS)
    accelerator_upper: int = key(8192, "upper threshold of the accelerator batch, rows per step", low=1, high=MOST_ROWS)
    accelerator_rate: float = accelerator_rate()
    counts: Literal["epoch", "run"] = key(
        "epoch", "what the update counts are of: this epoch or the whole run", choices=("epoch", "run")
    )

    def __post_init__(self) -> None:
        check_keys(self)
        if self.alpha == 1.0:
            raise PolicyError("policy.alpha must be > 1, got 1: the batch sizes would never change; use hogbatch")
        for kind in ("cpu", "accelerator"):
            low, batch, high = (getattr(self, f"{kind}_{name}") for name in ("lower", "batch", "upper"))
            if not low <= batch <= high:
                raise PolicyError(
                    f"policy.{kind}_batch must lie between {kind}_lower and {kind}_upper, "
                    f"got {low} <= {batch} <= {high}"
                )

    def begin(self, fleet: Fleet) -> Schedule:
        """A schedule with all counts at 0; PolicyError when the run has momentum."""
        refuse_momentum(fleet, "adaptive-hogbatch", IN_PLACE)
        return _Balance(self, fleet)


class _Balance:
    """Counts and batch sizes of one run."""

    def __init__(self, recipe: AdaptiveHogbatch, fleet: Fleet) -> None:
        self._recipe = recipe
        self._kinds = kind_of(fleet)
        self._count: dict[str, float] = dict.fromkeys(self._kinds, 0.0)
        self._epoch = 0
        rate = fleet.learning_rate
        self._batch: dict[str, int] = {}
        self._bounds: dict[str, tuple[int, int]] = {}
        self._steps: dict[str, tuple[int, float]] = {}
        self._work: dict[str, Work] = {}
        for name, kind in self._kinds.items():
            if kind == "cpu":
                self._batch[name] = recipe.cpu_batch
                self._bounds[name] = (recipe.cpu_lower, recipe.cpu_upper)
                self._steps[name] = (recipe.cpu_steps, rate * recipe.cpu_rate)
            else:
                self._batch[name] = recipe.accelerator_batch
                self._bounds[name] = (recipe.accelerator_lower, recipe.accelerator_upper)
                self._steps[name] = (1, rate * recipe.accelerator_rate)

    def next(self, view: View, worker: str) -> Work:
        """Work with the batch that the counts ask for."""
        self._roll(view)
        batch, reason = self._adapted(view, worker)
        self._batch[worker] = batch
        work = self._work.get(worker)
        # Most of a run is spent at a threshold, with the same answer every time.
        if work is None or work.batch != batch or work.reason != reason:
            steps, rate = self._steps[worker]
            work = self._work[worker] = Work(batch=batch, steps=steps, rate=rate, reason=reason)
        return work

    def on_result(self, view: View, result: Result) -> Sequence[Merge]:
        """Count the updates that came in; they are in the model already."""
        self._roll(view)
        worker = result.seat.worker
        self._count[worker] += result.updates * (self._recipe.beta if self._kinds[worker] == "cpu" else 1.0)
        return ()

    def _roll(self, view: View) -> None:
        epoch = view.epoch
        if epoch != self._epoch:
            self._epoch = epoch
            if self._recipe.counts == "epoch":
                self._count = dict.fromkeys(self._kinds, 0.0)

    def _adapted(self, view: View, worker: str) -> tuple[int, str]:
        """The new batch and why. Grows are rounded up and shrinks down, so that no factor leaves it stuck."""
        batch, (low, high), alpha = self._batch[worker], self._bounds[worker], self._recipe.alpha
        others = [self._count[name] for name, tally in view.workers.items() if name != worker and tally.alive]
        if not others:
            return batch, "no other worker to balance with"
        count, least, most = self._count[worker], min(others), max(others)
        if count < least:
            adapted = max(math.floor(batch / alpha), low)
            if adapted == batch:
                return batch, "below every other, at the lower threshold"
            return adapted, f"u {count:g} below every other ({least:g}): {batch} -> {adapted}"
        if count > most:
            adapted = math.ceil(min(alpha * batch, high))
            if adapted == batch:
                return batch, "above every other, at the upper threshold"
            return adapted, f"u {count:g} above every other ({most:g}): {batch} -> {adapted}"
        return batch, "neither below nor above every other"
