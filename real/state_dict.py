"""The trained model as a plain `state_dict`, for use outside of hetsgd."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from hetsgd.models.module_workload import ModuleWorkload
from hetsgd.models.workload import Workload
from hetsgd.real.module_parts import unpack


def state_dict(workload: Workload, parameters_P: NDArray[Any]) -> dict[str, Tensor]:
    """Tensors by name from the flat parameters (P,): `layers.0.weight` (outputs, inputs), `layers.0.bias`, ...

    The names and shapes are those of `torch.nn.Linear` modules in a list called `layers`, or, of a module, its own; a
    copy is made.
    Raises ValueError where the number of parameters is not the workload's.
    """
    if parameters_P.shape != (workload.parameters,):
        raise ValueError(f"parameters must have shape ({workload.parameters},), got {parameters_P.shape}")
    flat_P = torch.from_numpy(parameters_P.copy())
    if isinstance(workload, ModuleWorkload):
        return {name: view.clone() for name, view in unpack(workload).views(flat_P).items()}
    tensors: dict[str, Tensor] = {}
    for index, layer in enumerate(workload.layers):
        size = layer.inputs * layer.outputs
        weight_IO = flat_P[layer.weight_offset : layer.weight_offset + size].view(layer.inputs, layer.outputs)
        tensors[f"layers.{index}.weight"] = weight_IO.T.contiguous()
        if layer.bias_offset >= 0:
            tensors[f"layers.{index}.bias"] = flat_P[layer.bias_offset : layer.bias_offset + layer.outputs].clone()
    return tensors


def save_state_dict(path: Path, workload: Workload, parameters_P: NDArray[Any]) -> None:
    """Write the state_dict with `torch.save`; `torch.load(path, weights_only=True)` reads it."""
    buffer = io.BytesIO()
    torch.save(state_dict(workload, parameters_P), buffer)
    path.write_bytes(buffer.getvalue())  # torch's own writer hides why a file cannot be written
