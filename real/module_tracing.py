"""The operators of a module, found by running it once without values: what a step costs on any machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from hetsgd.models.workload import Operator
from hetsgd.real.module_parts import ModuleParts

_ROWS: Final = 2  # one row alone might be taken for a vector


@dataclass(slots=True)
class _Found:
    name: str
    flops: float
    parameters: int
    outputs: int


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Notes each operator that computes: one with operations that count or parameters of its own begins a new one."""

    def __init__(self, sizes: dict[int, int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types here
        self.found: list[_Found] = []
        self._sizes = sizes  # numbers of the parameters that have not been read yet, by storage

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        packet = func.overloadpacket
        flops = (
            float(flop_registry[packet](*args, **(kwargs or {}), out_val=result)) if packet in flop_registry else 0.0
        )
        read = sum(self._sizes.pop(_storage(value), 0) for value in _tensors((args, kwargs)) if not func.is_view)
        outputs = 0 if func.is_view else sum(value.numel() for value in _tensors(result))
        if flops or read or (outputs and not self.found):
            self.found.append(_Found(str(packet).rpartition(".")[2], flops, read, outputs))
        elif outputs:
            self.found[-1].outputs += outputs
        return result


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Sums up the operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types here
        self.flops = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        packet = func.overloadpacket
        if packet in flop_registry:
            self.flops += float(flop_registry[packet](*args, **(kwargs or {}), out_val=result))
        return result


def trace_module(parts: ModuleParts, features_dtype: torch.dtype, target: Tensor) -> tuple[Operator, ...]:
    """The operators of one forward pass, and of the backward pass its operations, spread over them as the forward's.

    `target`: the label of one row, of which only shape and type count. Operations are counted as torch counts them
    (products and convolutions, 2 for a multiplication with its addition); what works element by element counts by
    what it puts out. Parameters that nothing reads belong to the last operator.

    Raises ValueError where the module does not run without values.
    """
    leaves = {
        part.name: torch.empty(part.shape, dtype=features_dtype, device="meta").requires_grad_()
        for part in parts.slices
    }
    x = torch.empty((_ROWS, *parts.row_shape), dtype=features_dtype, device="meta")
    y = torch.empty((_ROWS, *target.shape), dtype=target.dtype, device="meta")
    recorder, counter = _Recorder({_storage(leaf): leaf.numel() for leaf in leaves.values()}), _Counter()
    try:
        with torch.enable_grad():
            with recorder:
                outputs = functional_call(parts.module, leaves, (x,))
            loss = parts.loss(outputs, y)
            with counter:
                torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    except (RuntimeError, NotImplementedError, TypeError) as error:
        raise ValueError(
            f"module: must run on tensors without values (the meta device) to be traced, so that nothing it does may "
            f"depend on the values: {error}"
        ) from error
    return _operators(recorder, counter.flops, sum(part.size for part in parts.slices))


def _operators(recorder: _Recorder, backward: float, parameters: int) -> tuple[Operator, ...]:
    found = recorder.found
    forward = sum(item.flops for item in found)
    ratio = backward / forward if forward else 0.0
    operators = [
        Operator(
            name=f"{number} {item.name}", flops=item.flops / _ROWS, backward_flops=ratio * item.flops / _ROWS,
            parameters=item.parameters, outputs=-(-item.outputs // _ROWS),
        )
        for number, item in enumerate(found, 1)
    ]  # fmt: skip
    unread = parameters - sum(item.parameters for item in found)
    if operators and unread:
        operators[-1] = replace(operators[-1], parameters=operators[-1].parameters + unread)
    return tuple(operators)


def _storage(value: Tensor) -> int:
    return int(value.untyped_storage()._cdata)


def _tensors(value: Any) -> list[Tensor]:
    """The tensors in arguments or results."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in _tensors(item)]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in _tensors(item)]
    return []
