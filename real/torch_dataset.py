"""Any torch data as a data set of this package: tensors, a `TensorDataset`, or any `Dataset` of (x, y) pairs."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset as TorchData
from torch.utils.data import TensorDataset

from hetsgd.models.data.assembly import assemble
from hetsgd.models.data.dataset import DataError, Dataset
from hetsgd.models.data.npz import dense_features
from hetsgd.models.data.preparation import Scaling
from hetsgd.models.data.table import SparseRows, Table, join
from hetsgd.models.data.targets import declared_classes, index_labels

LARGEST_ITEMS = 100_000_000
"""Longest data set taken: one that yields without end must not hold a program for ever."""


def from_torch(
    dataset: TorchData[Any] | Sequence[torch.Tensor],
    *,
    test: TorchData[Any] | Sequence[torch.Tensor] | None = None,
    name: str = "torch",
    classes: int | Sequence[str] | None = None,
    test_fraction: float | None = None,
    scaling: Scaling = "none",
    seed: int = 0,
    dtype: Literal["float32", "float64"] = "float32",
    sparse: bool | None = None,
) -> Dataset:
    """The rows of `dataset`, and of `test` as its published test part, split and scaled as `load` does it.

    `dataset` is a pair of tensors (x, y), a `TensorDataset` of two, or any torch `Dataset`, indexed or iterable,
    whose items are pairs (x, y): it is read once, item by item, so random transforms are frozen. Each x is
    flattened to a row of features; x may be a sparse tensor (rows, features). y is a class index per row from 0
    on, or a vector of 0 and 1 per row for several labels. `classes` is their number or their names; without it
    the largest index counts. `scaling` is off by default, since transforms usually scale.

    Raises DataError naming the data set, the item, the rule and the value.
    """
    if dtype not in ("float32", "float64"):
        raise DataError(f"{name}: dtype must be float32 or float64, got {dtype!r}")
    declared = declared_classes(classes)
    parts = [_arrays(part, where) for part, where in ((dataset, name), (test, f"{name}, test")) if part is not None]
    labels = declared or _names([y for _, y in parts], name)
    tables = [_table(x, y, labels, where) for (x, y), where in zip(parts, (name, f"{name}, test"), strict=False)]
    table = tables[0] if len(tables) == 1 else join(*tables)
    return assemble(
        table,
        name=name,
        words=f"{name}, from torch",
        test_fraction=test_fraction,
        scaling=scaling,
        seed=seed,
        dtype=np.dtype(dtype),
        sparse=sparse,
    )


Pair = tuple[NDArray[Any] | SparseRows, NDArray[Any]]


def _arrays(data: TorchData[Any] | Sequence[torch.Tensor], where: str) -> Pair:
    """Features and labels of all items."""
    tensors = data.tensors if isinstance(data, TensorDataset) else data
    if not isinstance(tensors, (tuple, list)):
        return _collected(_items(data, where), where)
    if len(tensors) != 2 or not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        raise DataError(f"{where}: must be two tensors (x, y), got {[type(tensor).__name__ for tensor in tensors]}")
    x, y = tensors
    if x.ndim < 1 or y.ndim < 1 or len(x) != len(y) or not len(x):
        raise DataError(f"{where}: x and y must have the same rows, at least one, got {x.shape} and {y.shape}")
    if x.layout is not torch.strided:
        return _sparse_rows(x, where), _numpy(y, where)
    return _numpy(x, where), _numpy(y, where)


def _items(data: Any, where: str) -> Iterator[Any]:
    """The items in order; the length counts where there is one, since indexing need not end by IndexError."""
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return (data[place] for place in range(len(data)))
    if isinstance(data, Iterable):
        return iter(data)
    raise DataError(f"{where}: must be a torch Dataset or two tensors, got {type(data).__name__}")


def _collected(items: Iterator[Any], where: str) -> Pair:
    first = next(items, None)
    if first is None:
        raise DataError(f"{where}: must hold items, found none")
    rows: list[NDArray[Any]] = []
    labels: list[NDArray[Any]] = []
    for place, item in enumerate(chain([first], items)):
        at = f"{where}, item {place}"
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise DataError(f"{at}: must be a pair (x, y), got {type(item).__name__}")
        row, label = _numpy(item[0], f"{at}, x").reshape(-1), _numpy(item[1], f"{at}, y")
        if rows and (row.shape != rows[0].shape or label.shape != labels[0].shape):
            raise DataError(
                f"{at}: must have {rows[0].size} features and a label of shape {labels[0].shape} as item 0 has, "
                f"got {row.size} and {label.shape}"
            )
        if place >= LARGEST_ITEMS:
            raise DataError(f"{at}: there must be at most {LARGEST_ITEMS:,} items")
        rows.append(row)
        labels.append(label)
    return np.stack(rows), np.stack(labels)


def _numpy(value: Any, where: str) -> NDArray[Any]:
    """A tensor, array or number as an array in host memory."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        half = value.dtype in (torch.float16, torch.bfloat16)
        array: NDArray[Any] = (value.float() if half else value).cpu().numpy()
    elif isinstance(value, (bool, int, float, np.ndarray, np.generic)):
        array = np.asarray(value)
    else:
        raise DataError(
            f"{where}: must be a tensor, an array or a number, got {type(value).__name__} "
            "(give the data set a transform that makes tensors)"
        )
    if array.dtype.kind not in "biuf":
        raise DataError(f"{where}: must be real numbers, got {array.dtype}")
    return array


def _sparse_rows(x: torch.Tensor, where: str) -> SparseRows:
    if x.ndim != 2 or 0 in x.shape:
        raise DataError(f"{where}: a sparse x must be (rows, features), none of them 0, got {tuple(x.shape)}")
    coo = (x if x.layout is torch.sparse_coo else x.to_sparse()).detach().coalesce().cpu()  # sorted by row, column
    rows, columns = coo.indices().numpy()
    values = _numpy(coo.values(), where).astype(np.float64)
    if not np.isfinite(values).all():
        place = int(np.argmin(np.isfinite(values)))
        raise DataError(f"{where}, item {rows[place]}, feature {columns[place]}: must be finite, got {values[place]}")
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=x.shape[0]))]).astype(np.int64)
    return SparseRows(values=values, columns=columns.astype(np.int32), starts=starts, features=int(x.shape[1]))


def _names(labels: list[NDArray[Any]], name: str) -> tuple[str, ...]:
    """Names of classes nobody declared: indices up to the largest, or one per label column."""
    if labels[0].ndim == 2 and labels[0].shape[1] > 1:
        return tuple(str(column) for column in range(labels[0].shape[1]))
    largest = max(float(part.max()) for part in labels)
    if largest == 0:
        raise DataError(f"{name}: there must be rows of two classes or more, got class 0 alone; or declare `classes`")
    if not 0 < largest < 2**20:
        raise DataError(f"{name}: the largest class index must lie in 1..{2**20 - 1}, got {largest:g}")
    return tuple(str(index) for index in range(int(largest) + 1))


def _table(x: NDArray[Any] | SparseRows, labels: NDArray[Any], names: tuple[str, ...], where: str) -> Table:
    indices = declared_classes(len(names))
    y, _ = index_labels(labels, origin=where, place_of=lambda place: f"item {place}", classes=indices)
    return Table(x=x if isinstance(x, SparseRows) else dense_features(x, where), y=y, label_names=names)
