"""What a module and its loss must be, found on two rows before anything is trained: each refusal has its fix."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.workload import Precision
from hetsgd.real.module_parts import ModuleParts, moved

_MEAN_ERROR: Final = 1e-6


def check_module(module: Any, precision: Precision) -> None:
    """ValueError where it is no module, or one whose parameters or parts cannot be trained alike everywhere."""
    if isinstance(module, type):
        raise ValueError(f"module: must be an object, got the class {module.__name__}; give {module.__name__}(...)")
    if not isinstance(module, nn.Module):
        raise ValueError(f"module: must be a torch.nn.Module, got {type(module).__name__}")
    if not any(True for _ in module.parameters()):
        raise ValueError("module: must have parameters to train, got none")
    for name, parameter in module.named_parameters():
        problem = _parameter_problem(parameter, getattr(torch, precision))
        if problem:
            raise ValueError(f"module: {name} {problem}")
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


def _parameter_problem(parameter: Tensor, dtype: torch.dtype) -> str | None:
    if isinstance(parameter, nn.parameter.UninitializedParameter):
        return "has no shape yet (a lazy module); run the module once on a batch"
    if parameter.is_meta:
        return "has no values (the meta device); make the module on the CPU"
    if parameter.dtype not in (torch.float32, dtype):
        fix = 'call module.float(), or give precision="float64" for a module of float64'
        return f"must be {str(dtype).removeprefix('torch.')} as training computes, got {parameter.dtype}; {fix}"
    if not parameter.requires_grad:
        return "is frozen (requires_grad=False), and all parameters are trained; make it a plain attribute"
    return None


def check_loss(parts: ModuleParts, dataset: Dataset, start_P: Tensor) -> None:
    """Two rows together must have the outputs and the mean loss of both alone, in double precision; else ValueError."""
    kind = torch.float64 if dataset.multilabel else torch.int64
    labels = np.asarray(dataset.train_y).reshape(dataset.rows, -1)
    rows = [0, int(np.argmax((labels != labels[0]).any(axis=1)))]  # of different classes, where there are several
    x = torch.as_tensor(dataset.train_x[rows]).to(torch.float64).reshape(2, *parts.row_shape)
    y = torch.as_tensor(dataset.train_y[rows]).to(kind)
    parameters = {name: view.detach().requires_grad_() for name, view in parts.views(start_P.double()).items()}
    both = _outputs(parts, parameters, x, dataset)
    if not torch.equal(both, _outputs(parts, parameters, x, dataset)):
        raise ValueError("module: must put out the same for the same rows, got two outputs; it may not draw at random")
    mean, first, second = (_loss(parts, both[part], y[part]) for part in (slice(0, 2), slice(0, 1), slice(1, 2)))
    for row in range(2):
        alone = _outputs(parts, parameters, x[row : row + 1], dataset)
        if not torch.allclose(alone, both[row : row + 1], rtol=_MEAN_ERROR, atol=_MEAN_ERROR):
            raise ValueError("module: must compute each row by itself, got another output for a row alone than in two")
    if not torch.isclose(mean, (first + second) / 2, rtol=_MEAN_ERROR, atol=_MEAN_ERROR):
        raise ValueError(
            f"loss: must be the mean over the rows, and each row's its own, got {mean.item():g} for two rows whose "
            f"losses are {first.item():g} and {second.item():g} (reduction='mean', no class weights)"
        )


def _outputs(parts: ModuleParts, parameters: dict[str, Tensor], x: Tensor, dataset: Dataset) -> Tensor:
    try:
        with torch.enable_grad():
            outputs: Any = functional_call(parts.module, parameters, (x,))
    except Exception as error:
        raise ValueError(
            f"module: cannot compute rows of shape {tuple(x.shape)}: {type(error).__name__}: {error}; row_shape says "
            "what shape a row has"
        ) from error
    wanted = (len(x), dataset.outputs)
    if not isinstance(outputs, Tensor) or tuple(outputs.shape) != wanted:
        got = tuple(outputs.shape) if isinstance(outputs, Tensor) else f"a {type(outputs).__name__}"
        raise ValueError(
            f"module: must put out (B, {dataset.outputs}), a number for each class or label of {dataset.name}, got "
            f"{got} for {len(x)} rows"
        )
    if not bool(torch.isfinite(outputs).all()):
        raise ValueError(f"module: its outputs must be finite, got {outputs.detach().flatten().tolist()[:4]}")
    if not outputs.requires_grad:
        raise ValueError("module: its outputs must have a gradient, got none; detach, no_grad and argmax take it away")
    return outputs


def _loss(parts: ModuleParts, outputs: Tensor, y: Tensor) -> Tensor:
    loss = moved(parts.loss, torch.device("cpu"), torch.float64)
    try:
        found: Any = loss(outputs, y)
    except Exception as error:
        raise ValueError(
            f"loss: cannot compute from outputs {tuple(outputs.shape)} and targets {tuple(y.shape)} of "
            f"{str(y.dtype).removeprefix('torch.')}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, Tensor) or found.ndim or not found.is_floating_point():
        got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise ValueError(f"loss: must be one number as a tensor, the mean over the rows, got {got}")
    if not found.requires_grad:
        raise ValueError("loss: must have a gradient, got a number without; detach, no_grad and argmax take it away")
    return found.detach()
