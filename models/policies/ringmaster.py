"""Ringmaster ASGD (arXiv:2501.16168): asynchronous gradients, those that are too stale are ignored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hetsgd.models.keys import check_keys, key
from hetsgd.models.policies.shared_keys import (
    FAR_AHEAD,
    accelerator_batch,
    accelerator_rate,
    cpu_batch,
    cpu_rate,
    kind_of,
)
from hetsgd.models.policy import Fleet, Kind, LaneMode, Merge, Result, Schedule, View, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Ringmaster:
    """w -= rate g_i as each gradient arrives, unless its staleness is above the threshold.

    The variant that ignores late gradients; the one that also stops their computation is not this one.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ("cpu", "accelerator")
    lane_modes: ClassVar[tuple[LaneMode, ...]] = ("barrier", "free")
    max_lookahead: ClassVar[int] = FAR_AHEAD
    reads_losses: ClassVar[bool] = False
    compensates: ClassVar[bool] = False

    threshold: int = key(16, "largest staleness (updates since its model was read) of a gradient that is used", low=0)
    cpu_batch: int = cpu_batch(16)
    cpu_rate: float = cpu_rate()
    accelerator_batch: int = accelerator_batch(512)
    accelerator_rate: float = accelerator_rate()

    def __post_init__(self) -> None:
        check_keys(self)

    def begin(self, fleet: Fleet) -> Schedule:
        """A schedule; it keeps no state."""
        return _OnArrival(self, fleet)


class _OnArrival:
    """Applies each gradient when it arrives, or drops it."""

    def __init__(self, recipe: Ringmaster, fleet: Fleet) -> None:
        self._threshold = recipe.threshold
        self._momentum = fleet.momentum
        self._works: dict[str, Work] = {}
        for name, kind in kind_of(fleet).items():
            batch, scale = recipe.accelerator_batch, recipe.accelerator_rate
            if kind == "cpu":
                batch, scale = recipe.cpu_batch, recipe.cpu_rate
            rate = fleet.learning_rate * scale
            self._works[name] = Work(batch=batch, rate=rate, write="gradient", reason="asynchronous")

    def next(self, view: View, worker: str) -> Work:
        """The gradient of the worker's class."""
        return self._works[worker]

    def on_result(self, view: View, result: Result) -> Sequence[Merge]:
        """Apply the gradient at its class's rate, or drop it for its age."""
        staleness = view.staleness(result)
        if staleness > self._threshold:
            reason = f"staleness {staleness} > {self._threshold}"
            return (Merge(inputs=(result.id,), rule="discard", reason=reason),)
        merge = Merge(
            inputs=(result.id,), rule="gradient", weights=(1.0,), rate=result.work.rate, momentum=self._momentum,
            reason="on arrival",
        )  # fmt: skip
        return (merge,)
