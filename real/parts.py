"""Training and test rows at the workload's precision, in memory of this process or shared with others."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.data.rows import is_sparse
from hetsgd.models.workload import Workload
from hetsgd.real.features import Batch, Csr, CsrFeatures, DenseFeatures, Features, RowBuffer, Rows
from hetsgd.real.shared_memory import SharedMemory, layout_of

PARTS = ("train", "test")


class Part:
    """Training or test rows: their features, and targets `y` as `Network` takes them."""

    def __init__(self, features: Features, y: Tensor) -> None:
        self.features = features
        self.y = y
        self.rows = y.shape[0]
        self._buffer = RowBuffer(y)

    def take(self, rows: Rows) -> tuple[Batch, Tensor]:
        """Features and targets of some rows, valid until the next call; views where the rows lie together."""
        x = self.features.take(rows)
        if isinstance(rows, slice):
            return x, self.y[rows]
        return x, torch.index_select(self.y, 0, rows, out=self._buffer.rows(rows.shape[0]))

    def put(self, rows: Rows, x_BF: Tensor, y_B: Tensor) -> None:
        """Write features and targets of some rows to buffers of that many rows in host memory."""
        self.features.put(rows, x_BF)
        if isinstance(rows, slice):
            y_B.copy_(self.y[rows])
        else:
            torch.index_select(self.y, 0, rows, out=y_B)

    def targets(self, rows: Rows) -> Tensor:
        """The targets of some rows: a view, or a copy of its own."""
        return self.y[rows] if isinstance(rows, slice) else self.y.index_select(0, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Both parts of a data set."""

    train: Part
    test: Part


def check_data(workload: Workload, dataset: Dataset) -> None:
    """Raise ValueError when a data set is not the one that the workload describes."""
    for field, wanted, given in (
        ("rows", workload.rows, dataset.rows),
        ("test_rows", workload.test_rows, dataset.test_rows),
        ("features", workload.features, dataset.features),
        ("outputs", workload.outputs, dataset.outputs),
        ("loss", workload.loss, "sigmoid" if dataset.multilabel else "softmax"),
        ("sparse", workload.sparse, dataset.sparse),
    ):
        if wanted != given:
            raise ValueError(
                f"workload.{field} must be that of the data set {dataset.name}, {given!r}, got {wanted!r} "
                f"in workload {workload.name}; resolve the workload against the data set that is loaded"
            )


def parts_of(dataset: Dataset, workload: Workload, *, dense: bool = False) -> Parts:
    """Both parts; memory is shared with the data set where its type already fits. `dense`: batches keep their zeros.

    Raises ValueError when the two do not belong together.
    """
    check_data(workload, dataset)
    kinds = _kinds(workload, dataset)
    arrays = {name: np.ascontiguousarray(array, dtype=kinds[name]) for name, array in _arrays(dataset).items()}
    with warnings.catch_warnings():
        # Data sets may be mapped read-only; nothing here writes to them.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return _parts(arrays, workload, multiply=workload.multiplies_sparse and not dense)


def share_data(workload: Workload, dataset: Dataset) -> SharedMemory:
    """The rows in shared memory at the workload's precision; labels of a multi-label set too."""
    arrays, kinds = _arrays(dataset), _kinds(workload, dataset)
    memory = SharedMemory(layout_of({name: (array.shape, kinds[name]) for name, array in arrays.items()}))
    for name, array in arrays.items():
        np.copyto(memory[name], array, casting="same_kind")
    return memory


def shared_parts(memory: SharedMemory, workload: Workload, *, multiply: bool) -> Parts:
    """Both parts in memory made by `share_data`. `multiply`: leave batches sparse where the workload says so."""
    arrays = {name: memory[name] for name in memory.layout.fields}
    return _parts(arrays, workload, multiply=multiply and workload.multiplies_sparse)


def _arrays(dataset: Dataset) -> dict[str, NDArray[Any]]:
    """The arrays of both parts by name: `train_x`, or `train_values`, `train_columns` and `train_starts`."""
    arrays: dict[str, NDArray[Any]] = {}
    for part in PARTS:
        x = getattr(dataset, f"{part}_x")
        named = {"values": x.data, "columns": x.indices, "starts": x.indptr} if is_sparse(x) else {"x": x}
        arrays |= {f"{part}_{name}": array for name, array in named.items()}
        arrays[f"{part}_y"] = getattr(dataset, f"{part}_y")
    return arrays


def _kinds(workload: Workload, dataset: Dataset) -> dict[str, str]:
    """The type in which each array is kept."""
    kinds = {"x": workload.precision, "values": workload.precision, "columns": "int32", "starts": "int64"}
    kinds["y"] = workload.precision if dataset.multilabel else "int64"
    return {f"{part}_{name}": kind for part in PARTS for name, kind in kinds.items()}


def _parts(arrays: dict[str, NDArray[Any]], workload: Workload, *, multiply: bool) -> Parts:
    parts = []
    for part in PARTS:
        features: Features
        if f"{part}_x" in arrays:
            features = DenseFeatures(torch.from_numpy(arrays[f"{part}_x"]))
        else:
            starts = arrays[f"{part}_starts"]
            matrix = Csr(
                data=arrays[f"{part}_values"], indices=arrays[f"{part}_columns"], indptr=starts,
                shape=(len(starts) - 1, workload.features),
            )  # fmt: skip
            features = CsrFeatures(matrix, multiply=multiply)
        parts.append(Part(features, torch.from_numpy(arrays[f"{part}_y"])))
    return Parts(train=parts[0], test=parts[1])
