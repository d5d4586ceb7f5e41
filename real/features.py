"""Features of a part of a data set as a network takes them: dense, or CSR that is densified or multiplied as it is.

Rows are asked for as a range in file order or as row numbers. Shapes: N rows, B rows of a batch, F features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hetsgd.models.data.rows import entries, gather
from hetsgd.real.sparse_batch import SparseBatch

Rows: TypeAlias = slice | Tensor
"""A range of rows in file order, or row numbers (B,) int64."""

Batch: TypeAlias = Tensor | SparseBatch
"""Features of some rows: dense (B, F), or sparse where the first layer is to be multiplied without the zeros."""


class RowBuffer:
    """Memory for the rows of one batch at a time. It grows in powers of two; views of it are kept."""

    def __init__(self, like: Tensor | None = None, *, width: int = 0, dtype: torch.dtype = torch.float32) -> None:
        self._memory = like[:0] if like is not None else torch.empty((0, width), dtype=dtype)
        self._views: dict[int, Tensor] = {}

    def rows(self, count: int) -> Tensor:
        """A view of `count` rows with anything in it."""
        view = self._views.get(count)
        if view is None:
            if count > self._memory.shape[0]:
                self._memory = self._memory.new_empty((room_for(count), *self._memory.shape[1:]))
                self._views.clear()
            view = self._views[count] = self._memory[:count]
        return view


def room_for(rows: int) -> int:
    """The size of a buffer that holds `rows` rows and grows seldom.

    >>> room_for(1), room_for(5), room_for(512)
    (1, 8, 512)
    """
    return 1 << (rows - 1).bit_length()


class Features(Protocol):
    """What takes batches out of the features."""

    width: int
    dtype: torch.dtype

    def take(self, rows: Rows) -> Batch:
        """The rows, valid until the next call."""
        ...

    def put(self, rows: Rows, out_BF: Tensor) -> Batch:
        """The rows in `out_BF`, which lies in host memory; where zeros are left out, in memory of their own."""
        ...


class DenseFeatures:
    """Dense features: a range is a view, other rows are gathered."""

    def __init__(self, x_NF: Tensor) -> None:
        self._x_NF = x_NF
        self.width = x_NF.shape[1]
        self.dtype = x_NF.dtype
        self._buffer = RowBuffer(x_NF)

    def take(self, rows: Rows) -> Tensor:
        """See Features."""
        if isinstance(rows, slice):
            return self._x_NF[rows]
        return torch.index_select(self._x_NF, 0, rows, out=self._buffer.rows(rows.shape[0]))

    def put(self, rows: Rows, out_BF: Tensor) -> Tensor:
        """See Features."""
        if isinstance(rows, slice):
            return out_BF.copy_(self._x_NF[rows])
        return torch.index_select(self._x_NF, 0, rows, out=out_BF)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Csr:
    """A canonical CSR matrix in plain arrays, wherever they lie; the names are scipy's."""

    data: NDArray[Any]
    indices: NDArray[np.int32]
    indptr: NDArray[np.int64]
    shape: tuple[int, int]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.data.dtype


class CsrFeatures:
    """CSR features, densified batch by batch, or left sparse with `multiply`."""

    def __init__(self, matrix: Csr, *, multiply: bool) -> None:
        self._matrix = matrix
        self._multiply = multiply
        self._columns, self._values = torch.from_numpy(matrix.indices), torch.from_numpy(matrix.data)
        self.width = matrix.shape[1]
        self.dtype = self._values.dtype
        self._buffer = RowBuffer(width=self.width, dtype=self.dtype)

    def take(self, rows: Rows) -> Batch:
        """See Features."""
        if self._multiply:
            return self._sparse(rows)
        count = rows.shape[0] if isinstance(rows, Tensor) else len(range(*rows.indices(self._matrix.shape[0])))
        return self.put(rows, self._buffer.rows(count))

    def put(self, rows: Rows, out_BF: Tensor) -> Batch:
        """See Features."""
        if self._multiply:
            return self._sparse(rows)
        gather(self._matrix, rows if isinstance(rows, slice) else rows.numpy(), out_BF.numpy())
        return out_BF

    def _sparse(self, rows: Rows) -> SparseBatch:
        if isinstance(rows, slice):
            low, high, _ = rows.indices(self._matrix.shape[0])
            begins = self._matrix.indptr[low : high + 1]
            first, last = int(begins[0]), int(begins[-1])
            starts = torch.from_numpy((begins - first).astype(np.int32))
            return SparseBatch(self._columns[first:last], self._values[first:last], starts, self.width)
        lengths, columns, values = entries(self._matrix, rows.numpy())
        starts = torch.zeros(len(lengths) + 1, dtype=torch.int32)
        torch.cumsum(torch.from_numpy(lengths), 0, out=starts[1:])
        return SparseBatch(torch.from_numpy(columns), torch.from_numpy(values), starts, self.width)
