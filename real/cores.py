"""Which cores the children of a run are pinned to."""

from __future__ import annotations

import os

from hetsgd.models.machine_local import available_cores


def usable_cores() -> list[int]:
    """Numbers of the cores that this process may use: its affinity, at most as many as its quota of time fills."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))[: available_cores()]
    return list(range(available_cores()))


def pinning(children: int) -> list[int | None]:
    """A core for each child, or none for any: with more children than cores the system places them better."""
    cores = usable_cores()
    if not hasattr(os, "sched_setaffinity") or children > len(cores):
        return [None] * children
    return list(cores[:children])
