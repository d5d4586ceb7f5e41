"""Copies to and from a real accelerator, pinned and pageable, both ways; and what launching a kernel costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

from hetsgd.models.machine import Direction
from hetsgd.real.devices import open_device

Memory = Literal["pinned", "pageable"]

SIZES: Final = (1 << 12, 1 << 16, 1 << 20, 1 << 24)
_PINNED: Final = ("cuda", "xpu")
_REPEATS: Final = 5
_LAUNCHES: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """The seconds of one copy of so many bytes, the shortest of a few."""

    direction: Direction
    memory: Memory
    size_bytes: int
    seconds: float


def transfers(device_name: str) -> list[Transfer]:
    """Copies of several sizes; only pageable ones where the device knows no pinned memory."""
    device = open_device(device_name)
    memories: tuple[Memory, ...] = ("pinned", "pageable") if device.type in _PINNED else ("pageable",)
    found = []
    for size in SIZES:
        there = torch.empty(size, dtype=torch.uint8, device=device)
        for memory in memories:
            here = torch.zeros(size, dtype=torch.uint8, pin_memory=memory == "pinned")
            for direction, target, source in (("down", there, here), ("up", here, there)):
                seconds = _shortest_s(_copier(target, source, device, memory == "pinned"))
                found.append(
                    Transfer(
                        direction="down" if direction == "down" else "up", memory=memory, size_bytes=size,
                        seconds=seconds,
                    )
                )  # fmt: skip
    return found


def launch_seconds(device_name: str) -> float:
    """Seconds of one small kernel among many that are launched one after the other."""
    device = open_device(device_name)
    tensor = torch.zeros(1, device=device)

    def launches() -> None:
        for _ in range(_LAUNCHES):
            tensor.add_(1.0)
        _synchronize(device)

    return _shortest_s(launches) / _LAUNCHES


def memory_rate(device_name: str, size_bytes: int) -> float:
    """Bytes per second of a copy within the device's memory: read and written count each."""
    device = open_device(device_name)
    source = torch.zeros(size_bytes // 2, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2.0 * source.nbytes / _shortest_s(_copier(target, source, device, False))


def _copier(target: Tensor, source: Tensor, device: torch.device, pinned: bool) -> Callable[[], None]:
    def copy() -> None:
        target.copy_(source, non_blocking=pinned)
        _synchronize(device)

    return copy


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def _shortest_s(work: Callable[[], None]) -> float:
    work()
    seconds = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)
