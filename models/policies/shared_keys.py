"""Parameters and checks that several policies share, so that one name means the same everywhere."""

from __future__ import annotations

from typing import Any, Final

from hetsgd.models.keys import key
from hetsgd.models.policy import MOST_ROWS, Fleet, Kind, PolicyError

# Asynchronous policies lose nothing by holding rows ahead; the bound only keeps the queues short.
FAR_AHEAD: Final = 16


def cpu_batch(default: int) -> Any:
    """Rows per lane and step."""
    return key(default, "rows per CPU lane and step", low=1, high=MOST_ROWS)


def cpu_steps() -> Any:
    """Local steps per assignment of a CPU team."""
    meaning = "local steps of a CPU lane per assignment; more steps mean fewer round trips"
    return key(1, meaning, low=1, high=MOST_ROWS)


def accelerator_batch(default: int) -> Any:
    """Rows per step of an accelerator."""
    return key(default, "rows per step of an accelerator", low=1, high=MOST_ROWS)


def cpu_rate() -> Any:
    """Multiplier of the learning rate for CPU teams."""
    return key(1.0, "learning rate of the CPU lanes, as a multiple of run.learning_rate", low=0.0, high=1e6)


def accelerator_rate() -> Any:
    """Multiplier of the learning rate for accelerators."""
    return key(1.0, "learning rate of the accelerators, as a multiple of run.learning_rate", low=0.0, high=1e6)


def kind_of(fleet: Fleet) -> dict[str, Kind]:
    """The class of each worker by name."""
    return {member.name: member.kind for member in fleet.members}


def refuse_momentum(fleet: Fleet, policy: str, why: str) -> None:
    """PolicyError unless the run's momentum is 0, for policies without a server that could keep a velocity."""
    if fleet.momentum != 0.0:
        raise PolicyError(
            f"run.momentum must be 0 for {policy}, got {fleet.momentum:g}: {why}; "
            f"synchronous, backup-workers and ringmaster support it"
        )


IN_PLACE: Final = "workers write into the model in place and no server keeps a velocity"
