"""The torch accelerators of this machine, as values of a machine: what the driver says, and peak rates by model."""

from __future__ import annotations

from typing import Any, Final

import psutil
import torch

from hetsgd.models.machine import Accelerator

# Model name -> (float32 FLOP/s, float64 FLOP/s, memory bytes/s), from the makers' datasheets. The first match counts.
_PEAKS: Final[dict[str, tuple[float, float, float]]] = {
    "H200": (66.9e12, 33.5e12, 4.8e12),
    "H100": (66.9e12, 33.5e12, 3.35e12),
    "A100": (19.5e12, 9.7e12, 1.555e12),
    "V100": (15.7e12, 7.8e12, 0.9e12),
    "K80": (4.37e12, 1.46e12, 0.24e12),
}
_UNKNOWN: Final = (10e12, 0.3e12, 0.4e12)
_DEFAULT_L2_BYTES: Final = 4 << 20


def find_accelerators() -> tuple[Accelerator, ...]:
    """The accelerators that torch can use here, in torch's order; empty where there is none.

    Peak rates are those of the datasheet for a known model, else assumed (10 TFLOP/s float32); `half_batch`,
    `launch_s` and `kernels_per_layer` are assumed throughout: a calibration replaces them.
    """
    current = torch.accelerator.current_accelerator(check_available=True)
    if current is None:
        return ()
    count = torch.accelerator.device_count()
    return tuple(_accelerator(current.type, index) for index in range(count))


def open_device(name: str) -> torch.device:
    """The torch device called `name`, made the current one of this process.

    Raises ValueError, naming the device and what there is, when torch has no such device here.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device {name!r}: {error}") from error
    if device.type == "cpu":
        return device
    current = torch.accelerator.current_accelerator(check_available=True)
    count = 0 if current is None else torch.accelerator.device_count()
    if current is None or current.type != device.type or (device.index or 0) >= count:
        here = "no accelerator" if current is None else f"{count} of type {current.type}"
        raise ValueError(f"device {name!r} is not there: torch finds {here} on this machine; 'cpu' stands in for one")
    torch.accelerator.set_device_index(device.index or 0)
    return device


def _accelerator(kind: str, index: int) -> Accelerator:
    properties = _properties(kind, index)
    name = str(getattr(properties, "name", kind))
    float32, float64, bandwidth = next((peak for model, peak in _PEAKS.items() if model in name), _UNKNOWN)
    device = f"{kind}:{index}"
    return Accelerator(
        name=device,
        device=device,
        flops_float32=float32,
        flops_float64=float64,
        half_batch=256.0,
        memory_bandwidth_bytes_per_s=bandwidth,
        memory_bytes=int(getattr(properties, "total_memory", 0)) or int(psutil.virtual_memory().total),
        l2_bytes=int(getattr(properties, "L2_cache_size", 0)) or _DEFAULT_L2_BYTES,
        launch_s=6e-6,
        kernels_per_layer=8.0,
        copy_engines=2 if kind == "cuda" else 1,
    )


def _properties(kind: str, index: int) -> Any:
    module = torch.get_device_module(kind)
    describe = getattr(module, "get_device_properties", None)
    return None if describe is None else describe(index)
