"""Bytes that a run keeps in each memory, and the refusal of what does not fit."""

from __future__ import annotations

from hetsgd.models.machine import Accelerator, Machine
from hetsgd.models.plan import Plan
from hetsgd.models.policy import Recipe
from hetsgd.models.workload import Workload


class CapacityError(ValueError):
    """Something does not fit a memory; the message gives both sizes."""


def size_text(size_bytes: float) -> str:
    """A size in words.

    >>> size_text(16e9), size_text(2048)
    ('16.0 GB', '2.0 kB')
    """
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:.1f} {unit}"
    return f"{size_bytes:.0f} bytes"


def accelerator_bytes(workload: Workload, batch: int, *, batches_held: int = 1) -> int:
    """Memory of an accelerator: replica, gradient, activations with their errors, and the batches it holds.

    >>> w = Workload(name="w", dataset="d", rows=1, test_rows=0, features=3, outputs=2, hidden=(4,))
    >>> accelerator_bytes(w, 10) == 2 * w.model_bytes + 10 * (2 * (4 + 2) * w.item_bytes + w.row_bytes)
    True
    """
    activations = 2 * sum(workload.widths[1:]) * workload.item_bytes
    return 2 * workload.model_bytes + batch * (activations + batches_held * workload.row_bytes)


def host_bytes(workload: Workload) -> int:
    """Host memory that every run needs: the data set, as CSR where it is kept so, and the global model.

    >>> w = Workload(name="w", dataset="d", rows=10, test_rows=0, features=3, outputs=2, hidden=(4,))
    >>> host_bytes(w) == 10 * w.row_bytes + w.model_bytes
    True
    """
    return (workload.rows + workload.test_rows) * workload.stored_row_bytes + workload.model_bytes


def check_memory_here(plan: Plan, there_bytes: int, *, copies: int) -> None:
    """Raise CapacityError when data and `copies` of the model do not fit the memory of the machine that computes.

    The least that a run needs: what each copy is for, the engine knows; the weights of the largest layer are drawn in
    double precision.
    """
    workload = plan.workload
    widest = max(operator.parameters for operator in workload.operators)
    needed = host_bytes(workload) + (copies - 1) * workload.model_bytes + 8 * widest
    if needed > there_bytes:
        raise CapacityError(
            f"workload {workload.name}: its data and {copies} copies of its model ({size_text(workload.model_bytes)} "
            f"each) need {size_text(needed)} of memory on this host, which has {size_text(there_bytes)}; take smaller "
            f"hidden layers (workload.hidden) or fewer rows; timing alone (learner none) needs no such memory"
        )


def check_host(machine: Machine, workload: Workload) -> None:
    """Raise CapacityError when the data set and the model do not fit the DRAM of the machine."""
    needed, there = host_bytes(workload), sum(socket.dram_bytes for socket in machine.sockets)
    if needed > there:
        raise CapacityError(
            f"machine {machine.name}: the data of workload {workload.name} and its model need {size_text(needed)} of "
            f"DRAM, it has {size_text(there)}; take fewer rows (workload.rows) or a machine with more DRAM"
        )


def largest_batch(recipe: Recipe) -> int:
    """The largest batch that a recipe's parameters let an accelerator have, as far as they say it; at least 1."""
    names = ("accelerator_batch", "accelerator_upper")
    return max(1, *(value for name in names if isinstance(value := getattr(recipe, name, 1), int)))


def check_capacity(plan: Plan) -> None:
    """Raise CapacityError when data, model or a batch do not fit the memories of the plan's machine."""
    check_host(plan.machine, plan.workload)
    fleet = plan.fleet()
    batch = min(largest_batch(plan.recipe), plan.workload.rows)
    for member in fleet.members:
        if member.kind == "accelerator":
            accelerator = plan.machine.accelerator(member.name)
            check_accelerator(accelerator, plan.workload, batch, batches_held=1 + fleet.lookahead)


def check_accelerator(accelerator: Accelerator, workload: Workload, batch: int, *, batches_held: int = 1) -> int:
    """The bytes that an accelerator needs at this batch; CapacityError when it does not have them."""
    needed = accelerator_bytes(workload, batch, batches_held=batches_held)
    if needed > accelerator.memory_bytes:
        replica = accelerator_bytes(workload, 0)
        raise CapacityError(
            f"accelerator {accelerator.name}: a batch of {batch} rows needs {size_text(needed)} (replica and gradient "
            f"{size_text(replica)}, rows and activations {size_text(needed - replica)}), it has "
            f"{size_text(accelerator.memory_bytes)}; use a smaller batch or network"
        )
    return needed
