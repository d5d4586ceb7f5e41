"""A workload from any module, loss and data: what both engines take."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset as TorchData
from torch.utils.data import TensorDataset

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.module_workload import ModuleWorkload, Packed
from hetsgd.models.workload import Precision
from hetsgd.models.workload_file import LoadedWorkload
from hetsgd.real.module_checks import check_loss, check_module
from hetsgd.real.module_parts import LossFunction, pack, parts_of_module
from hetsgd.real.module_tracing import trace_module
from hetsgd.real.torch_dataset import from_torch


def module_workload(
    module: nn.Module,
    loss: LossFunction,
    data: Dataset | TorchData[Any] | Sequence[Tensor],
    *,
    test: TorchData[Any] | Sequence[Tensor] | None = None,
    row_shape: Sequence[int] | None = None,
    name: str = "module",
    precision: Precision = "float32",
    test_fraction: float | None = None,
) -> LoadedWorkload:
    """A workload that trains `module` with `loss(outputs, targets)` on `data`; its `workload` and `data()` make a plan.

    `data` is a Dataset of this package, or what `from_torch` takes. The module gets batches (B, *row_shape): by
    default the shape of the torch data's x, or rows as a Dataset keeps them, (features,). It puts out (B, classes).
    Targets are class numbers (B,), or (B, labels) of 0.0 and 1.0. The loss is the mean over the rows of a batch.
    Training starts from the parameters that the module has, which it keeps: they are copied.

    What the module does must follow from parameters and rows alone, or the engines could not agree. So buffers are
    refused (batch norm: take group or layer norm) and dropout. Raises ValueError naming what is wrong and the fix.
    """
    check_module(module, precision)
    if not callable(loss):
        raise ValueError(f"loss: must be a function of outputs and targets, got {type(loss).__name__}")
    dataset, shape = _dataset(data, test, name, test_fraction, precision)
    shape = shape if row_shape is None else tuple(int(size) for size in row_shape)
    if int(np.prod(shape)) != dataset.features:
        raise ValueError(f"row_shape must hold the {dataset.features} features of a row, got {shape}")
    dtype: torch.dtype = getattr(torch, precision)
    if dataset.sparse:
        raise ValueError(f"data: {dataset.name} keeps its rows sparse, a module takes dense ones; load it sparse=False")
    parts = parts_of_module(module, loss, shape)
    target = _target(dataset, dtype)
    start_P = torch.cat([parameter.detach().reshape(-1).to("cpu", dtype) for parameter in module.parameters()])
    check_loss(parts, dataset, start_P)
    words = f"{type(module).__name__} with {getattr(loss, '__name__', type(loss).__name__)}"
    workload = ModuleWorkload(
        name=name, dataset=dataset.name, rows=dataset.rows, test_rows=dataset.test_rows, features=dataset.features,
        outputs=dataset.outputs, loss="sigmoid" if dataset.multilabel else "softmax", precision=precision,
        sparse=dataset.sparse, description=words, source="traced from a module",
        traced=trace_module(parts, dtype, target), module=pack(parts), start=Packed(start_P.numpy().tobytes()),
    )  # fmt: skip
    return LoadedWorkload(workload=workload, data=partial(_same, dataset))


def _same(dataset: Dataset) -> Dataset:
    return dataset


def _dataset(
    data: Dataset | TorchData[Any] | Sequence[Tensor], test: TorchData[Any] | Sequence[Tensor] | None, name: str,
    test_fraction: float | None, precision: Precision,
) -> tuple[Dataset, tuple[int, ...]]:  # fmt: skip
    """The data set, and the shape of a row."""
    if isinstance(data, Dataset):
        if test is not None or test_fraction is not None:
            raise ValueError("test, test_fraction: a Dataset is split already; leave them out")
        return data, (data.features,)
    tensors = data.tensors if isinstance(data, TensorDataset) else data
    dataset = from_torch(data, test=test, name=name, test_fraction=test_fraction, dtype=precision, sparse=False)
    first = tensors[0] if isinstance(tensors, (tuple, list)) else tensors[0][0]
    row = first[0] if isinstance(tensors, (tuple, list)) else first
    return dataset, tuple(torch.as_tensor(row).shape) or (1,)


def _target(dataset: Dataset, dtype: torch.dtype) -> Tensor:
    """The label of one row, as training gives it."""
    return torch.as_tensor(dataset.train_y[0]).to(dtype if dataset.multilabel else torch.int64)
