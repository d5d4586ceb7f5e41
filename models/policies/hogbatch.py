"""CPU+GPU Hogbatch (Ma and Rusu 2020): small CPU batches and large accelerator batches, all in place."""

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
    cpu_batch,
    cpu_rate,
    cpu_steps,
    refuse_momentum,
)
from hetsgd.models.policy import Fleet, Kind, LaneMode, Schedule, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Hogbatch:
    """Every worker asks for work when it is done; nobody waits, batch sizes stay as they are.

    The paper's accelerator batch is not published; 8192 is what its figures make plausible.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ("cpu", "accelerator")
    lane_modes: ClassVar[tuple[LaneMode, ...]] = ("barrier", "free")
    max_lookahead: ClassVar[int] = FAR_AHEAD
    reads_losses: ClassVar[bool] = False

    cpu_batch: int = cpu_batch(1)
    cpu_steps: int = cpu_steps()
    cpu_rate: float = cpu_rate()
    accelerator_batch: int = accelerator_batch(8192)
    accelerator_rate: float = accelerator_rate()

    def __post_init__(self) -> None:
        check_keys(self)

    def begin(self, fleet: Fleet) -> Schedule:
        """A schedule that always gives the same work; PolicyError when the run has momentum."""
        refuse_momentum(fleet, "hogbatch", IN_PLACE)
        rate, why = fleet.learning_rate, "fixed batch"
        cpu = Work(batch=self.cpu_batch, steps=self.cpu_steps, rate=rate * self.cpu_rate, reason=why)
        accelerator = Work(batch=self.accelerator_batch, rate=rate * self.accelerator_rate, reason=why)
        return FixedWork(fleet, {"cpu": cpu, "accelerator": accelerator})
