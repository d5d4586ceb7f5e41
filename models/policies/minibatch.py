"""Minibatch SGD on the accelerators alone ("Hogbatch GPU" of Ma and Rusu 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsgd.models.keys import check_keys
from hetsgd.models.policies.in_place import FixedWork
from hetsgd.models.policies.shared_keys import (
    FAR_AHEAD,
    IN_PLACE,
    accelerator_batch,
    accelerator_rate,
    refuse_momentum,
)
from hetsgd.models.policy import Fleet, Kind, LaneMode, Schedule, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Minibatch:
    """Accelerators only: one step on a large fixed batch, copied back over the model. Alone it is serial SGD."""

    kinds: ClassVar[tuple[Kind, ...]] = ("accelerator",)
    lane_modes: ClassVar[tuple[LaneMode, ...]] = ("barrier",)
    max_lookahead: ClassVar[int] = FAR_AHEAD
    reads_losses: ClassVar[bool] = False

    accelerator_batch: int = accelerator_batch(8192)
    accelerator_rate: float = accelerator_rate()

    def __post_init__(self) -> None:
        check_keys(self)

    def begin(self, fleet: Fleet) -> Schedule:
        """A schedule that always gives the same work; PolicyError when the run has momentum."""
        refuse_momentum(fleet, "minibatch", IN_PLACE)
        rate = fleet.learning_rate * self.accelerator_rate
        return FixedWork(fleet, {"accelerator": Work(batch=self.accelerator_batch, rate=rate, reason="fixed batch")})
