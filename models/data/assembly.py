"""From all rows of a table to a data set: split, dense or CSR, scaled."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.data.dataset import DataError, Dataset
from hetsgd.models.data.preparation import Scaling, fit_scaler, split_rows
from hetsgd.models.data.rows import Features
from hetsgd.models.data.table import MAX_FEATURES, SparseRows, Table, beyond_float32, dense

DEFAULT_TEST_FRACTION = 0.2

DENSE_BYTES = 2**30
"""A matrix that comes sparse is kept dense up to this size, and beyond it where CSR would not be smaller."""

"""Widest data set: a wrong index would otherwise ask for a network that no machine holds."""

_INDEX_BYTES = 4

_SCALING_WORDS: dict[Scaling, str] = {
    "none": "features as read",
    "unit": "features scaled to [0, 1] by their training range",
    "standard": "features scaled to mean 0 and deviation 1 on the training rows",
}
_SPARSE_WORDS: dict[Scaling, str] = {
    "none": "features as read, kept sparse",
    "unit": "features scaled to [0, 1] by their largest training value, kept sparse",
}


def assemble(
    table: Table,
    *,
    name: str,
    words: str,
    test_fraction: float | None,
    scaling: Scaling,
    seed: int,
    dtype: np.dtype[Any],
    sparse: bool | None = None,
) -> Dataset:
    """The data set that the table makes; `words` say what was read, for its `source`.

    `sparse` keeps the features CSR (True) or dense (False); None decides by size (`DENSE_BYTES`). The other
    options are those of `load`. Raises DataError.
    """
    if table.features > MAX_FEATURES:
        raise DataError(f"{name}: features must be <= {MAX_FEATURES:,}, got {table.features:,}: keep or hash fewer")
    train, test, split = _split(table, test_fraction, seed)
    build = csr if _keeps_sparse(table, dtype, sparse) else dense
    try:
        train_x: Features = build(table.x, train, dtype)
        test_x: Features = build(table.x, test, dtype)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    scaler = fit_scaler(train_x, scaling)
    if scaler is not None:
        scaler.apply(train_x)
        scaler.apply(test_x)
    y = table.y.astype(np.float32 if table.multilabel else np.int64, copy=False)
    scaled = (_SPARSE_WORDS if build is csr else _SCALING_WORDS)[scaling]
    return Dataset(
        name=name,
        train_x=train_x,
        train_y=y[train],
        test_x=test_x,
        test_y=y[test],
        classes=len(table.label_names),
        multilabel=table.multilabel,
        label_names=table.label_names,
        source=(
            f"{words}: {table.rows:,} rows x {table.features} features, {len(table.label_names)} "
            f"{'labels' if table.multilabel else 'classes'}; {len(train):,} rows for training and {len(test):,} "
            f"for testing ({split}); {scaled}"
        ),
    )


def _keeps_sparse(table: Table, dtype: np.dtype[Any], sparse: bool | None) -> bool:
    if sparse is not None:
        return sparse
    if not isinstance(table.x, SparseRows):
        return False
    dense_size = table.rows * table.features * dtype.itemsize
    sparse_size = len(table.x.values) * (dtype.itemsize + _INDEX_BYTES)
    return dense_size > DENSE_BYTES and sparse_size < dense_size


def csr(x: NDArray[Any] | SparseRows, rows: NDArray[np.int64], dtype: np.dtype[Any]) -> Features:
    """The given rows as a canonical `scipy.sparse.csr_array` of `dtype`, explicit zeros left out.

    Raises DataError where a value is beyond the range of `dtype`.
    """
    from scipy.sparse import csr_array

    with np.errstate(over="ignore"):  # reported below
        if isinstance(x, SparseRows):
            matrix = csr_array((x.values, x.columns, x.starts), shape=(len(x), x.features))[rows].astype(dtype)
        else:
            matrix = csr_array(x[rows].astype(dtype, copy=False))
    matrix.eliminate_zeros()
    matrix.sort_indices()
    if dtype == np.float32 and not np.isfinite(matrix.data).all():
        place = int(np.argmin(np.isfinite(matrix.data)))
        row = int(np.searchsorted(matrix.indptr, place, side="right")) - 1
        raise DataError(beyond_float32(int(rows[row]), int(matrix.indices[place])))
    return matrix


def _split(table: Table, test_fraction: float | None, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64], str]:
    if test_fraction is None and table.test_start is not None:
        rows = np.arange(table.rows, dtype=np.int64)
        return rows[: table.test_start], rows[table.test_start :], "the published parts"
    share = DEFAULT_TEST_FRACTION if test_fraction is None else test_fraction
    train, test = split_rows(table.y, share, np.random.default_rng(seed))
    drawn = "drawn at random" if table.multilabel else "stratified over the classes"
    return train, test, f"{drawn}, seed {seed}" if share else "no test part asked for"
