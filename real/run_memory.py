"""Which arrays a run shares between its processes, and what the data look like there."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.plan import Plan
from hetsgd.models.policy import Fleet
from hetsgd.models.workload import Workload
from hetsgd.real.child import ERROR_BYTES
from hetsgd.real.logs import log_arrays
from hetsgd.real.shared_memory import Shape, SharedMemory, layout_of
from hetsgd.real.slots import SlotShape

_PADDED: Final = 8  # numbers in a cache line


def run_arrays(plan: Plan, fleet: Fleet, children: int, capacity: int) -> dict[str, tuple[Shape, str]]:
    """The arrays of one run; `capacity`: assignments that a seat may hold.

    `parameters`: the global model. `snapshot`: a model to evaluate outside the clock, `evaluated`: one per worker,
    inside it. `own`: the workers' own replicas, with their versions. `deadline`: when children break off.
    `cancelled`: orders up to this serial are void, by child. `arrived`: the last replica a lane has copied its
    share of. `orders`: row orders of the epochs in flight. `errors`: what a child died of. Slots: see slots.py.
    """
    workload, workers, seats = plan.workload, len(fleet.members), len(fleet.seats)
    size, precision = workload.parameters, workload.precision
    orders = (1, 1) if plan.run.order == "file" else (seats * capacity + 2, fleet.rows)
    arrays: dict[str, tuple[Shape, str]] = {
        "parameters": ((size,), precision),
        "snapshot": ((size,), precision),
        "evaluated": ((workers, size), precision),
        "own": ((workers, size), precision),
        "own_version": ((workers, _PADDED), "i8"),
        "deadline": ((_PADDED,), "f8"),
        "cancelled": ((children, _PADDED), "i8"),
        "arrived": ((children, _PADDED), "i8"),
        "errors": ((children, ERROR_BYTES), "u1"),
        "orders": (orders, "i8"),
        **log_arrays(children),
    }
    for member in fleet.members:
        shape = SlotShape(slots=2 * capacity + 2, lanes=1 if member.free else member.lanes)
        arrays.update({f"slots/{seat}": shape.array(workload) for seat in member.seats})
    return arrays


def check_data(workload: Workload, dataset: Dataset) -> None:
    """Raise ValueError when a data set is not the one that the workload describes."""
    for field, wanted, given in (
        ("rows", workload.rows, dataset.rows),
        ("test_rows", workload.test_rows, dataset.test_rows),
        ("features", workload.features, dataset.features),
        ("outputs", workload.outputs, dataset.outputs),
        ("loss", workload.loss, "sigmoid" if dataset.multilabel else "softmax"),
    ):
        if wanted != given:
            raise ValueError(
                f"workload.{field} must be that of the data set {dataset.name}, {given!r}, got {wanted!r} "
                f"in workload {workload.name}"
            )


def share_data(workload: Workload, dataset: Dataset) -> SharedMemory:
    """The rows in shared memory at the workload's precision; labels of a multi-label set too."""
    target = workload.precision if dataset.multilabel else "i8"
    parts: dict[str, tuple[NDArray[Any], str]] = {
        "train_x": (dataset.train_x, workload.precision),
        "train_y": (dataset.train_y, target),
        "test_x": (dataset.test_x, workload.precision),
        "test_y": (dataset.test_y, target),
    }
    memory = SharedMemory(layout_of({name: (part.shape, dtype) for name, (part, dtype) in parts.items()}))
    for name, (part, _) in parts.items():
        np.copyto(memory[name], part, casting="same_kind")
    return memory
