"""A module with its loss, packed: how it travels to other processes and what a flat vector (P,) means to it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cloudpickle
import torch
from torch import Tensor, nn

from hetsgd.models.module_workload import ModuleWorkload, Packed

LossFunction = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Where a parameter lies in the flat vector: its name, shape, and numbers [start, start + size)."""

    name: str
    shape: tuple[int, ...]
    start: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModuleParts:
    """What computes: the `module` without values (on the meta device), its `loss`, and the shape of one row."""

    module: nn.Module
    loss: LossFunction
    row_shape: tuple[int, ...]
    slices: tuple[Slice, ...]

    def views(self, flat_P: Tensor) -> dict[str, Tensor]:
        """The parameters by name, as views of a flat vector."""
        return {part.name: flat_P[part.start : part.start + part.size].view(part.shape) for part in self.slices}


def parts_of_module(module: nn.Module, loss: LossFunction, row_shape: tuple[int, ...]) -> ModuleParts:
    """The parts; parameters that are shared inside the module are one slice."""
    slices, start = [], 0
    for name, parameter in module.named_parameters():
        slices.append(Slice(name=name, shape=tuple(parameter.shape), start=start, size=parameter.numel()))
        start += parameter.numel()
    empty = copy.deepcopy(module).to("meta")
    return ModuleParts(module=empty, loss=loss, row_shape=row_shape, slices=tuple(slices))


def pack(parts: ModuleParts) -> Packed:
    """The parts as bytes; ValueError where the module or its loss cannot travel."""
    try:
        return Packed(cloudpickle.dumps(parts))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ValueError(
            f"module: must be picklable with its loss, since it computes in processes of its own: {error}"
        ) from error


@lru_cache(maxsize=4)
def _unpack(packed: Packed) -> ModuleParts:
    parts: ModuleParts = pickle.loads(packed.data)
    return parts


def unpack(workload: ModuleWorkload) -> ModuleParts:
    """The parts of a workload's module; a process opens them once."""
    return _unpack(workload.module)


def moved(loss: LossFunction, device: torch.device, dtype: torch.dtype) -> LossFunction:
    """The loss where it computes: one that is a module may hold tensors."""
    if isinstance(loss, nn.Module):
        there: Any = copy.deepcopy(loss).to(device=device, dtype=dtype)
        return there  # type: ignore[no-any-return]  # a module can be called as the function it stands for
    return loss
