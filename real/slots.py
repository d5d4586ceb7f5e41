"""Places in shared memory where a seat hands in what it computed: one slot for each result that is not in place.

A slot of a worker with T lanes has 2T + 1 vectors (P,): the results of the lanes (a replica uses the first), what
they were started from, and the global model when a kept replica was read. Untouched vectors take no memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from hetsgd.models.workload import Workload
from hetsgd.real.shared_memory import Shape, SharedMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotShape:
    """How many slots a seat has, and how many lanes share each."""

    slots: int
    lanes: int

    def array(self, workload: Workload) -> tuple[Shape, str]:
        """Shape and type of the shared array of one seat."""
        return (self.slots, 2 * self.lanes + 1, workload.parameters), workload.precision


class Slots:
    """The slots of one seat."""

    def __init__(self, memory: SharedMemory, seat: str) -> None:
        slots = memory[f"slots/{seat}"]
        self.lanes: int = (slots.shape[1] - 1) // 2
        self.count: int = slots.shape[0]
        # The same array objects each time: a merge tells replicas apart by identity, a network caches by it.
        self._vectors: list[list[NDArray[Any]]] = [
            [slots[slot, row] for row in range(slots.shape[1])] for slot in range(self.count)
        ]

    def result(self, slot: int, position: int = 0) -> NDArray[Any]:
        """What lane number `position` of the assignment computed."""
        return self._vectors[slot][position]

    def start(self, slot: int, position: int = 0) -> NDArray[Any]:
        """The parameters it was started from."""
        return self._vectors[slot][self.lanes + position]

    def read(self, slot: int) -> NDArray[Any]:
        """The global model when a replica that the worker keeps was read."""
        return self._vectors[slot][2 * self.lanes]
