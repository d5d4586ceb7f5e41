"""Which rows stand at which positions of an epoch: in file order, or in an order of row numbers.

Shapes: N training rows, B rows of a batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from hetsgd.models.run import Order
from hetsgd.models.streams import row_order
from hetsgd.real.features import Rows

Span = tuple[int, int, int]
"""Epoch and positions [start, stop) of its row order."""

_KEPT_ORDERS = 2


def rows_at(order_N: Tensor | None, start: int, stop: int) -> Rows:
    """The rows at positions [start, stop) of an order; None is file order. A single row is a range too."""
    if order_N is None:
        return slice(start, stop)
    if stop - start == 1:
        row = int(order_N[start])
        return slice(row, row + 1)
    return order_N[start:stop]


class EpochRows:
    """The training rows by epoch and position, in orders drawn when they are first asked for."""

    def __init__(self, rows: int, *, seed: int, order: Order) -> None:
        self._rows = rows
        self._seed = seed
        self._order: Order = order
        self._orders: dict[int, Tensor] = {}
        self._plain: dict[int, memoryview] = {}  # the same numbers: one of a tensor takes twenty times as long

    def order(self, epoch: int) -> Tensor | None:
        """Row numbers of the epoch (N,); None for file order. The last two are kept."""
        if self._order == "file":
            return None
        known = self._orders.get(epoch)
        if known is None:
            indices = row_order(self._seed, epoch, self._rows, self._order)
            if indices is None:
                return None
            if len(self._orders) >= _KEPT_ORDERS:
                oldest = min(self._orders)
                del self._orders[oldest], self._plain[oldest]
            known = self._orders[epoch] = torch.from_numpy(indices)
            self._plain[epoch] = indices.data
        return known

    def at(self, span: Span) -> Rows:
        """The rows of one span."""
        epoch, start, stop = span
        order_N = self.order(epoch)
        if order_N is not None and stop - start == 1:
            row = self._plain[epoch][start]
            return slice(row, row + 1)
        return rows_at(order_N, start, stop)

    def at_all(self, spans: Sequence[Span]) -> Rows:
        """The rows of several spans, one after the other."""
        if len(spans) == 1:
            return self.at(spans[0])
        epoch, start, _ = spans[0]
        if all(span[0] == epoch for span in spans) and all(
            left[2] == right[1] for left, right in itertools.pairwise(spans)
        ):
            return self.at((epoch, start, spans[-1][2]))
        return torch.cat([self._numbers(span) for span in spans])

    def _numbers(self, span: Span) -> Tensor:
        epoch, start, stop = span
        order = self.order(epoch)
        return torch.arange(start, stop) if order is None else order[start:stop]
