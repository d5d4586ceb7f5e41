"""Rows of an assignment out of the shared data: a view where they lie together, else gathered into a buffer.

Shapes: B rows of a batch, F features, N training rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hetsgd.real.messages import Order
from hetsgd.real.shared_memory import SharedMemory


class Rows:
    """The training rows as one child sees them."""

    def __init__(self, memory: SharedMemory, data: SharedMemory) -> None:
        self.x_NF = torch.from_numpy(data["train_x"])
        self.y_N = torch.from_numpy(data["train_y"])
        self._orders = [torch.from_numpy(order) for order in memory["orders"]]
        self._buffers: tuple[Tensor, Tensor] = (self.x_NF[:0], self.y_N[:0])
        self._views: dict[int, tuple[Tensor, Tensor]] = {}

    def take(self, order: Order, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Features (B, F) and targets of positions [start, stop) of the epoch's order; valid until the next call."""
        if order.rows_slot < 0:
            return self.x_NF[start:stop], self.y_N[start:stop]
        rows = self._orders[order.rows_slot]
        if stop - start == 1:
            row = int(rows[start])
            return self.x_NF[row : row + 1], self.y_N[row : row + 1]
        x_BF, y_B = self._buffer(stop - start)
        self.gather(order, start, stop, x_BF, y_B)
        return x_BF, y_B

    def gather(self, order: Order, start: int, stop: int, x_BF: Tensor, y_B: Tensor) -> None:
        """Copy positions [start, stop) of the epoch's order into buffers of that many rows."""
        if order.rows_slot < 0:
            x_BF.copy_(self.x_NF[start:stop])
            y_B.copy_(self.y_N[start:stop])
        else:
            index_B = self._orders[order.rows_slot][start:stop]
            torch.index_select(self.x_NF, 0, index_B, out=x_BF)
            torch.index_select(self.y_N, 0, index_B, out=y_B)

    def _buffer(self, rows: int) -> tuple[Tensor, Tensor]:
        if rows > self._buffers[0].shape[0]:
            size = room_for(rows)
            self._buffers = (
                self.x_NF.new_empty((size, *self.x_NF.shape[1:])),
                self.y_N.new_empty((size, *self.y_N.shape[1:])),
            )
            self._views.clear()
        views = self._views.get(rows)
        if views is None:
            views = self._views[rows] = (self._buffers[0][:rows], self._buffers[1][:rows])
        return views


def room_for(rows: int) -> int:
    """The size of a buffer that holds `rows` rows and grows seldom.

    >>> room_for(1), room_for(5), room_for(512)
    (1, 8, 512)
    """
    return 1 << (rows - 1).bit_length()
