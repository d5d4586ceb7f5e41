"""Hogwild on the CPU (Niu et al. 2011; "Hogbatch CPU" of Ma and Rusu 2020): lanes write unlocked, in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsgd.models.keys import check_keys
from hetsgd.models.policies.in_place import FixedWork
from hetsgd.models.policies.shared_keys import FAR_AHEAD, IN_PLACE, cpu_batch, cpu_rate, cpu_steps, refuse_momentum
from hetsgd.models.policy import Fleet, Kind, LaneMode, Schedule, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Hogwild:
    """CPU team only: each lane steps on its own rows and writes the model in place."""

    kinds: ClassVar[tuple[Kind, ...]] = ("cpu",)
    lane_modes: ClassVar[tuple[LaneMode, ...]] = ("barrier", "free")
    max_lookahead: ClassVar[int] = FAR_AHEAD
    reads_losses: ClassVar[bool] = False

    cpu_batch: int = cpu_batch(1)
    cpu_steps: int = cpu_steps()
    cpu_rate: float = cpu_rate()

    def __post_init__(self) -> None:
        check_keys(self)

    def begin(self, fleet: Fleet) -> Schedule:
        """A schedule that always gives the same work; PolicyError when the run has momentum."""
        refuse_momentum(fleet, "hogwild", IN_PLACE)
        rate = fleet.learning_rate * self.cpu_rate
        work = Work(batch=self.cpu_batch, steps=self.cpu_steps, rate=rate, reason="fixed batch")
        return FixedWork(fleet, {"cpu": work})
