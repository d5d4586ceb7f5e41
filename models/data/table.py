"""What a reader returns: all rows of one file, before split and scaling, in a compact exact form."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.data.dataset import DataError
from hetsgd.models.machine_local import memory_bytes

MAX_DENSE_BYTES = 16 * 2**30
MAX_FEATURES = 10_000_000
"""Largest feature matrix built, and half the memory at most: a wrong index would otherwise fill it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparseRows:
    """Rows of a sparse matrix: row i holds values[starts[i]:starts[i + 1]] in the columns of the same range."""

    values: NDArray[np.float64]
    columns: NDArray[np.int32]
    starts: NDArray[np.int64]
    features: int

    def __len__(self) -> int:
        return len(self.starts) - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """All rows of a file. `x` is dense (rows, features), float64 or, where exact, int16; or sparse.

    `y` is int64 (rows,), an index into `label_names`; or uint8 (rows, labels) of 0 and 1, one column per name.
    From row `test_start` on, where there is one, the rows are the set's own published test part.
    """

    x: NDArray[Any] | SparseRows
    y: NDArray[Any]
    label_names: tuple[str, ...]
    test_start: int | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.x)

    @property
    def features(self) -> int:
        """Number of feature columns."""
        return self.x.features if isinstance(self.x, SparseRows) else int(self.x.shape[1])

    @property
    def multilabel(self) -> bool:
        """Whether a row may carry several labels."""
        return self.y.ndim == 2


def join(first: Table, second: Table) -> Table:
    """The rows of both tables, the second one's being the test part: the two published parts of one data set.

    Raises DataError where their features or labels differ.
    """
    if (first.features, first.label_names) != (second.features, second.label_names):
        raise DataError(
            "both parts of a data set must have the same features and labels, got "
            f"{first.features} features with labels {', '.join(first.label_names[:5])} and "
            f"{second.features} with {', '.join(second.label_names[:5])}"
        )
    y = np.concatenate([first.y, second.y])
    if isinstance(first.x, SparseRows) and isinstance(second.x, SparseRows):
        x = SparseRows(
            values=np.concatenate([first.x.values, second.x.values]),
            columns=np.concatenate([first.x.columns, second.x.columns]),
            starts=np.concatenate([first.x.starts, second.x.starts[1:] + first.x.starts[-1]]),
            features=first.features,
        )
        return Table(x=x, y=y, label_names=first.label_names, test_start=first.rows)
    if isinstance(first.x, SparseRows) or isinstance(second.x, SparseRows):
        raise DataError("both parts of a data set must have the same format, got a sparse and a dense one")
    x_of_both = np.concatenate([first.x, second.x])
    return Table(x=x_of_both, y=y, label_names=first.label_names, test_start=first.rows)


def compact(x: NDArray[np.float64]) -> NDArray[Any]:
    """`x` as int16 where that is exact (a quarter of the memory and of the cache file), else unchanged."""
    limits = np.iinfo(np.int16)
    if x.min() < limits.min or x.max() > limits.max:
        return x
    small = x.astype(np.int16)
    return small if np.array_equal(small, x) else x


def dense(x: NDArray[Any] | SparseRows, rows: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The given rows as one C-contiguous matrix of `dtype`.

    Raises DataError where it would be larger than MAX_DENSE_BYTES or a value is beyond the range of `dtype`.
    """
    features = x.features if isinstance(x, SparseRows) else x.shape[1]
    size_bytes = len(rows) * features * dtype.itemsize
    limit = min(MAX_DENSE_BYTES, memory_bytes() // 2)
    if size_bytes > limit:
        raise DataError(
            f"{len(rows):,} rows x {features:,} features need {size_bytes / 2**30:.1f} GiB as {dtype}, "
            f"the limit is {limit / 2**30:.1f} GiB on this machine: keep fewer rows or features"
        )
    with np.errstate(over="ignore"):  # reported below, with the value
        if isinstance(x, SparseRows):
            out = _scatter(x, rows, dtype)
        else:
            own = _own_rows(x, rows)
            out = own.astype(dtype, order="C", copy=own is x)
    if out.dtype == np.float32 and not np.isfinite(out).all():
        row, feature = np.argwhere(~np.isfinite(out))[0]
        raise DataError(beyond_float32(int(rows[row]), int(feature)))
    return out


def beyond_float32(row: int, feature: int) -> str:
    """What is wrong with a value that single precision cannot hold; both count from 0 in what was read."""
    return (
        f"row {row}, feature {feature} (from 0): values must fit float32, this one is beyond 3.4e38; load as float64 "
        "(workload.precision, dtype)"
    )


def _own_rows(x: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """The rows; the matrix itself where they are all of its rows in order."""
    return x if len(rows) == len(x) and np.array_equal(rows, np.arange(len(x))) else x[rows]


def _scatter(x: SparseRows, rows: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[Any]:
    lengths = (x.starts[1:] - x.starts[:-1])[rows]
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    source = np.arange(total) + np.repeat(x.starts[rows] - (ends - lengths), lengths)
    out = np.zeros((len(rows), x.features), dtype)
    out[np.repeat(np.arange(len(rows)), lengths), x.columns[source]] = x.values[source]
    return out
