"""The row orders of the epochs in flight, in shared memory; the next one is drawn while the current one is used."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from numpy.typing import NDArray

from hetsgd.models.run import Order
from hetsgd.models.streams import row_order


class RowOrders:
    """Gives each epoch's order a place that stays its own as long as an assignment of that epoch is in flight."""

    def __init__(self, places: NDArray[Any], seed: int, order: Order) -> None:
        self._places = places
        self._seed = seed
        self._order = order
        self._slots: dict[int, int] = {}
        self._next: tuple[int, Future[NDArray[Any] | None]] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="hetsgd-rows") if order != "file" else None

    def slot(self, epoch: int, in_flight: Iterable[int]) -> int:
        """The place of an epoch's order, or -1 for file order. `in_flight`: epochs whose orders are still used."""
        if self._pool is None:
            return -1
        slot = self._slots.get(epoch)
        if slot is not None:
            return slot
        keep = set(in_flight)
        self._slots = {old: place for old, place in self._slots.items() if old in keep}
        taken = set(self._slots.values())
        slot = next(place for place in range(len(self._places)) if place not in taken)
        self._places[slot] = self._drawn(epoch)
        self._slots[epoch] = slot
        self._next = (epoch + 1, self._pool.submit(self._draw, epoch + 1))
        return slot

    def close(self) -> None:
        """End the thread that draws ahead."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _drawn(self, epoch: int) -> NDArray[Any] | None:
        if self._next is not None and self._next[0] == epoch:
            return self._next[1].result()
        return self._draw(epoch)

    def _draw(self, epoch: int) -> NDArray[Any] | None:
        return row_order(self._seed, epoch, self._places.shape[1], self._order)
