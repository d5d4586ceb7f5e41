"""A workload from any module, loss and data: what both engines take."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.data import Dataset as TorchData
from torch.utils.data import TensorDataset

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.module_workload import ModuleWorkload, Packed
from hetsgd.models.workload import Precision
from hetsgd.models.workload_file import LoadedWorkload
from hetsgd.real.module_parts import LossFunction, ModuleParts, moved, pack, parts_of_module
from hetsgd.real.module_tracing import trace_module
from hetsgd.real.torch_dataset import from_torch

_MEAN_ERROR: Final = 1e-6


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
    dataset, shape = _dataset(data, test, name, test_fraction, precision)
    shape = shape if row_shape is None else tuple(int(size) for size in row_shape)
    if int(np.prod(shape)) != dataset.features:
        raise ValueError(f"row_shape must hold the {dataset.features} features of a row, got {shape}")
    dtype: torch.dtype = getattr(torch, precision)
    _check_module(module, dataset)
    parts = parts_of_module(module, loss, shape)
    target = _target(dataset, dtype)
    start_P = torch.cat([parameter.detach().reshape(-1).to("cpu", dtype) for parameter in module.parameters()])
    _check_loss(parts, dataset, start_P)
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
    first = tensors[0] if isinstance(tensors, (tuple, list)) else tensors[0][0]
    row = first[0] if isinstance(tensors, (tuple, list)) else first
    dataset = from_torch(data, test=test, name=name, test_fraction=test_fraction, dtype=precision, sparse=False)
    return dataset, tuple(torch.as_tensor(row).shape) or (1,)


def _check_module(module: nn.Module, dataset: Dataset) -> None:
    if not any(True for _ in module.parameters()):
        raise ValueError("module: must have parameters to train, got none")
    for buffer, _ in module.named_buffers():
        raise ValueError(
            f"module: {buffer} is a buffer, which workers would not share; batch norm can be group or layer norm, "
            "and a constant can be a plain attribute"
        )
    for where, part in module.named_modules():
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0.0:
            raise ValueError(
                f"module: {where or 'it'} is {type(part).__name__}, which draws at random, so that a replay would not "
                "compute the same gradients; take it out, or set p=0"
            )
    if dataset.sparse:
        raise ValueError(f"data: {dataset.name} keeps its rows sparse, a module takes dense ones; load it sparse=False")


def _target(dataset: Dataset, dtype: torch.dtype) -> Tensor:
    """The label of one row, as training gives it."""
    return torch.as_tensor(dataset.train_y[0]).to(dtype if dataset.multilabel else torch.int64)


def _check_loss(parts: ModuleParts, dataset: Dataset, start_P: Tensor) -> None:
    """Two rows together must have the outputs and the mean loss of both alone, in double precision."""
    kind = torch.float64 if dataset.multilabel else torch.int64
    labels = np.asarray(dataset.train_y).reshape(dataset.rows, -1)
    rows = [0, int(np.argmax((labels != labels[0]).any(axis=1)))]  # of different classes, where there are several
    x = torch.as_tensor(dataset.train_x[rows]).to(torch.float64).reshape(2, *parts.row_shape)
    y = torch.as_tensor(dataset.train_y[rows]).to(kind)
    loss = moved(parts.loss, torch.device("cpu"), torch.float64)
    parameters = parts.views(start_P.double())

    def of(part: slice) -> tuple[Tensor, Tensor]:
        outputs = functional_call(parts.module, parameters, (x[part],))
        return outputs, loss(outputs, y[part])

    with torch.no_grad():
        (both, mean), (_, first), (_, second) = of(slice(0, 2)), of(slice(0, 1)), of(slice(1, 2))
    if tuple(both.shape) != (2, dataset.outputs):
        raise ValueError(
            f"module: must put out (B, {dataset.outputs}), a number for each class or label of {dataset.name}, got "
            f"{tuple(both.shape)} for 2 rows"
        )
    if mean.ndim:
        raise ValueError(f"loss: must be one number, the mean over the rows, got shape {tuple(mean.shape)}")
    wanted = (first + second) / 2
    if not torch.isclose(mean, wanted, rtol=_MEAN_ERROR, atol=_MEAN_ERROR):
        raise ValueError(
            f"loss: must be the mean over the rows, and each row's its own, got {mean.item():g} for two rows whose "
            f"losses are {first.item():g} and {second.item():g} (reduction='mean', no class weights)"
        )
