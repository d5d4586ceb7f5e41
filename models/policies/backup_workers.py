"""Synchronous SGD with backup workers (Chen et al. 2016, arXiv:1604.00981)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsgd.models.keys import check_keys, key
from hetsgd.models.policies.rounds import Rounds
from hetsgd.models.policies.shared_keys import accelerator_batch, accelerator_rate, cpu_batch, cpu_rate
from hetsgd.models.policy import Fleet, Kind, LaneMode, PolicyError, Schedule, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupWorkers:
    """The first N of N + `backups` gradients make the update of a round, the others are dropped as stale.

    A worker whose gradient comes too late goes on with the round under way. A free lane is a worker of its own.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ("cpu", "accelerator")
    lane_modes: ClassVar[tuple[LaneMode, ...]] = ("barrier", "free")
    max_lookahead: ClassVar[int] = 0
    reads_losses: ClassVar[bool] = False
    compensates: ClassVar[bool] = False

    backups: int = key(1, "gradients of a round that are not waited for; less than the number of workers", low=0)
    cpu_batch: int = cpu_batch(16)
    cpu_rate: float = cpu_rate()
    accelerator_batch: int = accelerator_batch(512)
    accelerator_rate: float = accelerator_rate()

    def __post_init__(self) -> None:
        check_keys(self)

    def begin(self, fleet: Fleet) -> Schedule:
        """A schedule before its first round; PolicyError when nobody would be left to wait for."""
        workers = len(fleet.seats)
        if self.backups >= workers:
            raise PolicyError(
                f"policy.backups must be less than the number of workers (free lanes count one each), "
                f"got {self.backups} of {workers}"
            )
        works: dict[Kind, Work] = {
            "cpu": Work(batch=self.cpu_batch, rate=fleet.learning_rate, write="gradient", reason="its share"),
            "accelerator": Work(
                batch=self.accelerator_batch, rate=fleet.learning_rate, write="gradient", reason="its share"
            ),
        }
        return Rounds(fleet, works, {"cpu": self.cpu_rate, "accelerator": self.accelerator_rate}, self.backups)
