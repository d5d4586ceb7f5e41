"""Synchronous minibatch SGD over all workers, with server momentum (the TensorFlow-like baseline)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsgd.models.keys import check_keys
from hetsgd.models.policies.rounds import Rounds
from hetsgd.models.policies.shared_keys import accelerator_batch, accelerator_rate, cpu_batch, cpu_rate
from hetsgd.models.policy import Fleet, Kind, LaneMode, Schedule, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Synchronous:
    """w -= rate sum_i (rows_i / sum rows) g_i over all workers i, all gradients of the same model.

    A round takes T x cpu_batch + sum of accelerator_batch rows. With batches in proportion to the workers'
    throughput (Omnivore) nobody waits.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ("cpu", "accelerator")
    lane_modes: ClassVar[tuple[LaneMode, ...]] = ("barrier",)
    max_lookahead: ClassVar[int] = 0
    reads_losses: ClassVar[bool] = False
    compensates: ClassVar[bool] = False

    cpu_batch: int = cpu_batch(16)
    cpu_rate: float = cpu_rate()
    accelerator_batch: int = accelerator_batch(512)
    accelerator_rate: float = accelerator_rate()

    def __post_init__(self) -> None:
        check_keys(self)

    def begin(self, fleet: Fleet) -> Schedule:
        """A schedule before its first round."""
        works: dict[Kind, Work] = {
            "cpu": Work(batch=self.cpu_batch, rate=fleet.learning_rate, write="gradient", reason="its share"),
            "accelerator": Work(
                batch=self.accelerator_batch, rate=fleet.learning_rate, write="gradient", reason="its share"
            ),
        }
        return Rounds(fleet, works, {"cpu": self.cpu_rate, "accelerator": self.accelerator_rate})
