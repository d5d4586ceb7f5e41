"""Records as runs leave them, made by hand, for tests of what is computed from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hetsgd.studies.case import Case, Role
from hetsgd.studies.record import StoredRun
from hetsgd.studies.study import Settings


def record(curve: Sequence[tuple[float, float | None]], *, status: str = "done", **changes: Any) -> dict[str, Any]:
    """A run's record with this loss curve, as (seconds, training loss)."""
    made: dict[str, Any] = {
        "status": status, "stop_reason": "", "elapsed_s": curve[-1][0], "wall_s": 1.0, "examples": 1000, "epochs": 2.0,
        "epoch_s": [0.5, 0.7], "updates": {"cpu": 90, "accelerator": 10},
        "update_share": {"cpu": 0.9, "accelerator": 0.1},
        "utilization": {"cpu": 0.8, "accelerator": 0.4, "accelerator_driver": 0.5},
        "staleness": {"cpu": {"mean": 1.0, "p50": 1, "p95": 2, "max": 3}}, "batch": {"cpu": 4},
        "loss": [
            {"t_s": t_s, "epoch": t_s, "update": number, "train": loss, "test": loss, "train_score": 0.5,
             "test_score": 0.6}
            for number, (t_s, loss) in enumerate(curve)
        ],
        "time_to_loss_s": None, "faults": [],
    }  # fmt: skip
    return {**made, **changes}


def stored(content: dict[str, Any]) -> StoredRun:
    """A record as if it had been read from a folder."""
    return StoredRun(folder=Path("runs") / "key", record=content, resolved={})


def case(
    label: str, *, role: Role = "run", seed: int = 0, machine: str = "m", settings: Settings = (), repeat: int = 0
) -> Case:
    """A case of the workload `w`."""
    return Case(
        role=role, machine=machine, workload="w", label=label, policy=label, seed=seed, settings=settings, repeat=repeat
    )
