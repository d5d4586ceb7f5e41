"""A data set as tensors at the workload's precision, and the rows of a batch in each epoch's order.

Shapes: R rows of a part, B rows of a batch, F features.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.run import Order
from hetsgd.models.streams import row_order
from hetsgd.models.workload import Workload

Span = tuple[int, int, int]
"""Epoch and positions [start, stop) of its row order."""

_KEPT_ORDERS = 2


@dataclass(frozen=True, slots=True)
class Part:
    """Training or test rows: `x_RF` features, `y` targets as `Network` takes them."""

    x_RF: Tensor
    y: Tensor

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.x_RF.shape[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetTensors:
    """Both parts of a data set on the host; memory is shared with the data set where its type already fits."""

    train: Part
    test: Part


def dataset_tensors(dataset: Dataset, workload: Workload) -> DatasetTensors:
    """The data set at the workload's precision; ValueError when the two do not belong together."""
    for name, wanted, got in (
        ("rows", workload.rows, dataset.rows),
        ("features", workload.features, dataset.features),
        ("outputs", workload.outputs, dataset.outputs),
        ("loss", workload.loss, "sigmoid" if dataset.multilabel else "softmax"),
    ):
        if wanted != got:
            raise ValueError(
                f"workload.{name} must be that of its data set {dataset.name} ({got!r}), got {wanted!r}; "
                f"resolve the workload against the data set that is loaded"
            )
    target: type[np.generic] = np.dtype(workload.precision).type if dataset.multilabel else np.int64
    return DatasetTensors(
        train=Part(_tensor(dataset.train_x, workload.precision), _tensor(dataset.train_y, target)),
        test=Part(_tensor(dataset.test_x, workload.precision), _tensor(dataset.test_y, target)),
    )


def _tensor(array: NDArray[Any], dtype: str | type[np.generic]) -> Tensor:
    fitting = np.ascontiguousarray(array, dtype=dtype)
    with warnings.catch_warnings():
        # Data sets may be mapped read-only; nothing here writes to them.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(fitting)


class EpochRows:
    """Training rows by epoch and position. A batch is a view where its rows lie together, else a gathered copy."""

    def __init__(self, part: Part, *, seed: int, order: Order) -> None:
        self._x_RF, self._y = part.x_RF, part.y
        self._seed = seed
        self._order: Order = order
        self._orders: dict[int, tuple[NDArray[np.int64], Tensor]] = {}

    def order(self, epoch: int) -> tuple[NDArray[np.int64], Tensor] | None:
        """Row indices of the epoch as array and tensor; None for file order. The last two are kept."""
        if self._order == "file":
            return None
        known = self._orders.get(epoch)
        if known is None:
            indices = row_order(self._seed, epoch, self._x_RF.shape[0], self._order)
            if indices is None:
                return None
            if len(self._orders) >= _KEPT_ORDERS:
                del self._orders[min(self._orders)]
            known = self._orders[epoch] = (indices, torch.from_numpy(indices))
        return known

    def batch(self, span: Span) -> tuple[Tensor, Tensor]:
        """Features and targets of the positions of one span."""
        epoch, start, stop = span
        order = self.order(epoch)
        if order is not None:
            if stop - start > 1:
                indices = order[1][start:stop]
                return self._x_RF.index_select(0, indices), self._y.index_select(0, indices)
            start = int(order[0][start])
            stop = start + 1
        return self._x_RF[start:stop], self._y[start:stop]

    def gather(self, spans: Sequence[Span], out_BF: Tensor) -> Tensor:
        """Write the features of the spans, one after the other, to `out_BF`; returns their targets."""
        epoch, start, stop = spans[0]
        if all(span[0] == epoch for span in spans) and all(
            left[2] == right[1] for left, right in itertools.pairwise(spans)
        ):
            stop = spans[-1][2]
            order = self.order(epoch)
            if order is None:
                out_BF.copy_(self._x_RF[start:stop])
                return self._y[start:stop]
            indices = order[1][start:stop]
        else:
            indices = torch.cat([self._indices(span) for span in spans])
        torch.index_select(self._x_RF, 0, indices, out=out_BF)
        return self._y.index_select(0, indices)

    def _indices(self, span: Span) -> Tensor:
        epoch, start, stop = span
        order = self.order(epoch)
        return torch.arange(start, stop) if order is None else order[1][start:stop]
