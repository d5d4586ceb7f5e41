"""Which arrays a run shares between its processes, beside its data."""

from __future__ import annotations

from typing import Final

from hetsgd.models.plan import Plan
from hetsgd.models.policy import Fleet
from hetsgd.real.child import ERROR_BYTES
from hetsgd.real.logs import log_arrays
from hetsgd.real.shared_memory import Shape
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
