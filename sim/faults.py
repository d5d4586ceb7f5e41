"""Faults on a schedule: workers and lanes that are lost at given times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hetsgd.models.policy import Fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """At `at_s` this worker is lost, or (lane >= 0) one lane of the CPU team: the rest of the team goes on."""

    at_s: float
    worker: str
    lane: int = -1

    def __post_init__(self) -> None:
        if not 0.0 <= self.at_s < math.inf:
            raise ValueError(f"fault: at_s must be >= 0 and finite, got {self.at_s}")


def check_faults(faults: Sequence[Injected], fleet: Fleet) -> None:
    """Raise ValueError when a fault names a worker or lane that this run does not have."""
    lanes = {member.name: member.lanes for member in fleet.members}
    for fault in faults:
        if fault.worker not in lanes:
            raise ValueError(f"fault: worker must be one of {', '.join(lanes)}, got {fault.worker!r}")
        if not -1 <= fault.lane < lanes[fault.worker]:
            raise ValueError(
                f"fault: lane of {fault.worker} must be in -1..{lanes[fault.worker] - 1} (-1: the whole worker), "
                f"got {fault.lane}"
            )
