"""Rows of a feature matrix, dense or CSR: what the engines need to build batches.

A feature matrix is a C-contiguous `numpy.ndarray` or a canonical `scipy.sparse.csr_array` (columns rising within
a row, none twice), both float32 or float64. Nothing here imports scipy: a CSR matrix brings it along.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Features: TypeAlias = Any
"""`numpy.ndarray` or `scipy.sparse.csr_array`: Any, so that code for dense sets need not tell them apart."""

Rows: TypeAlias = slice | NDArray[np.integer[Any]]
"""A contiguous range or row numbers >= 0 in any order, repeats allowed."""


def is_sparse(x: Features) -> bool:
    """Whether the matrix is CSR rather than dense."""
    return not isinstance(x, np.ndarray)


def dense_bytes(x: Features) -> int:
    """Bytes of the matrix if it were dense.

    >>> dense_bytes(np.zeros((3, 5), np.float32))
    60
    """
    rows, features = x.shape
    return int(rows) * int(features) * int(x.dtype.itemsize)


def stored_bytes(x: Features) -> int:
    """Bytes the matrix takes in memory as it is."""
    if is_sparse(x):
        return int(x.data.nbytes + x.indices.nbytes + x.indptr.nbytes)
    return int(x.nbytes)


def nonzeros(x: Features) -> int:
    """Number of values that are not zero."""
    return int(np.count_nonzero(x.data if is_sparse(x) else x))


def take(x: Features, rows: Rows) -> Features:
    """The given rows as a matrix of the same kind; a slice of a dense matrix is a view.

    Raises IndexError for a row outside the matrix.
    """
    if not isinstance(rows, slice):
        _check_rows(rows, x.shape[0])
    return x[rows]


def gather(x: Features, rows: Rows, out: NDArray[Any]) -> NDArray[Any]:
    """Write the given rows, densified, to the start of `out` and return that part of it, a view (rows, features).

    `out` is a C-contiguous (at least that many rows, features) array that is kept from batch to batch; values are
    cast to its type. No loop over rows: two passes over the values of the batch, and for CSR one over the memory
    of the batch to clear it.

    >>> buffer = np.empty((4, 2))
    >>> gather(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, 0, 1]), buffer)
    array([[3., 4.],
           [1., 2.],
           [3., 4.]])

    Raises IndexError for a row outside the matrix, ValueError where `out` does not fit.
    """
    count = _count(rows, x.shape[0])
    if out.ndim != 2 or out.shape[0] < count or out.shape[1] != x.shape[1] or not out.flags.c_contiguous:
        raise ValueError(
            f"out must be C-contiguous, at least {count} rows x {x.shape[1]} features, got shape {out.shape}"
        )
    into = out[:count]
    if is_sparse(x):
        return _scatter(x, rows, into)
    if isinstance(rows, slice) or x.dtype != out.dtype:
        into[...] = x[rows]
    else:
        np.take(x, rows, axis=0, out=into, mode="clip")  # the rows are checked; "raise" would go by a copy
    return into


def entries(x: Features, rows: Rows) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Of a CSR matrix: how many values each of the rows has, and their columns and values row by row.

    Raises IndexError for a row outside the matrix.
    """
    if not isinstance(rows, slice):
        _check_rows(rows, x.shape[0])
    return _entries(x, rows)


def _entries(x: Features, rows: Rows) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    starts = x.indptr
    if isinstance(rows, slice):
        first, stop, step = rows.indices(x.shape[0])
        if step == 1:
            own = slice(int(starts[first]), int(starts[stop]))
            lengths = np.diff(starts[first : stop + 1])
            return lengths, x.indices[own], x.data[own]
        rows = np.arange(first, stop, step)
    begins = starts[rows]
    lengths = starts[rows + 1] - begins
    ends = np.cumsum(lengths)
    source = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(begins - (ends - lengths), lengths)
    return lengths, x.indices[source], x.data[source]


def _scatter(x: Features, rows: Rows, into: NDArray[Any]) -> NDArray[Any]:
    into.fill(0)
    return _put(into, *_entries(x, rows)) if len(into) else into


def _put(into: NDArray[Any], lengths: NDArray[Any], columns: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    """Values in their places; `into` is C-contiguous, so that its flat form is a view."""
    count, features = into.shape
    row_starts = np.arange(0, count * features, features, dtype=np.int64)
    into.reshape(-1)[np.repeat(row_starts, lengths) + columns] = values
    return into


def _count(rows: Rows, size: int) -> int:
    if isinstance(rows, slice):
        return len(range(*rows.indices(size)))
    _check_rows(rows, size)
    return len(rows)


def _check_rows(rows: NDArray[np.integer[Any]], size: int) -> None:
    if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer):
        raise IndexError(f"rows must be a slice or a list of row numbers, got {rows.dtype} of shape {rows.shape}")
    if len(rows) and (rows.min() < 0 or rows.max() >= size):
        raise IndexError(f"rows must lie in 0..{size - 1}, got {rows.min()}..{rows.max()}")
