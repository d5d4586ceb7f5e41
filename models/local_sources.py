"""Where each figure of the machine at hand is from: said by the system, measured, or assumed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields
from typing import Final

from hetsgd.models.machine import Accelerator, Machine

_SYSTEM: Final = "said by the operating system"

_SOCKET: Final = {
    "cores": f"{_SYSTEM}: CPUs that this process may use",
    "threads_per_core": "assumed: each usable CPU counts as a core",
    "dram_bytes": _SYSTEM,
    "l2_bytes": _SYSTEM,
    "l3_bytes": _SYSTEM,
    "core_flops_float32": "matrix products of one thread",
    "core_flops_float64": "matrix products of one thread",
    "half_batch": "matrix products of one thread at two batches",
    "efficiency": "assumed: the measured rate of products is reached",
    "core_bandwidth_bytes_per_s": "copies of 96 MiB by one thread",
    "core_l3_bandwidth_bytes_per_s": "copies of 6 MiB by one thread",
    "dram_bandwidth_bytes_per_s": "copies by all cores at once",
    "line_transfer_s": "assumed: not measured, so that written lines cost nothing",
    "step_overhead_s": "assumed: calls of one step; a calibration measures them",
}
_MEASURED: Final = frozenset(
    {"core_flops_float32", "core_flops_float64", "half_batch", "core_bandwidth_bytes_per_s",
     "core_l3_bandwidth_bytes_per_s", "dram_bandwidth_bytes_per_s"}
)  # fmt: skip
_STAND_IN: Final = {
    "launch_s": "assumed: a call of a small operation on a core",
    "kernels_per_layer": "assumed: operations of a layer in one step",
    "copy_engines": "assumed: its core copies, one thing at a time",
    "l2_bandwidth_bytes_per_s": "assumed: what fits its L2 costs its arithmetic only",
    "efficiency": "assumed: the measured rate of products is reached",
}
_DEVICE: Final = {
    "memory_bytes": "said by its driver",
    "l2_bytes": "said by its driver, or assumed to be 4 MiB where it does not say",
    "flops_float32": "assumed: datasheet of its model where that is known, else of a mid-range device",
    "flops_float64": "assumed: datasheet of its model where that is known, else of a mid-range device",
    "memory_bandwidth_bytes_per_s": "assumed: datasheet of its model where that is known, else of a mid-range device",
}


def local_sources(machine: Machine, date: str, *, given: Collection[str]) -> tuple[tuple[str, str], ...]:
    """A source for every figure of the machine at hand; one that begins with `assumed: ` was neither said nor measured.

    `date`: when its rates were measured. `given`: links that came with their figures.
    """
    return tuple(_all(machine, f"measured on this machine, {date[:10]}", given))


def _all(machine: Machine, measured: str, given: Collection[str]) -> Iterator[tuple[str, str]]:
    yield "machine.cpu_lanes", f"{_SYSTEM}: the cores that no stand-in takes, at least one"
    yield "machine.message_s", "assumed: a message between two processes; a calibration measures it"
    yield "machine.decision_s", "assumed: a policy's decision; a calibration measures it"
    yield "machine.pinned", "assumed: the executor copies from pinned buffers"
    yield "machine.weights_on", "assumed: first touch by one thread"
    for field in fields(machine.noise):
        yield f"noise.{field.name}", "assumed: no noise; a calibration measures it"
    for socket in machine.sockets:
        for key, text in _SOCKET.items():
            words = text
            if key == "l2_bytes" and socket.l2_bytes == 1 << 20:
                words = f"{_SYSTEM}, or assumed to be 1 MiB where it does not say"
            yield f"socket.{socket.name}.{key}", f"{measured}: {words}" if key in _MEASURED else words
    for card in machine.accelerators:
        yield from _accelerator(card, measured)
    for link in machine.links:
        owner = f"link.{link.name}"
        if link.name in given:
            yield owner, "given with the device"
            continue
        stands_in = any(card.stand_in and card.name in link.ends for card in machine.accelerators)
        rate = f"{measured}: half of what one thread copies, which reads and writes" if stands_in else ""
        yield f"{owner}.latency_s", "assumed: set-up of a copy"
        for key in ("pinned_bytes_per_s", "pageable_bytes_per_s"):
            yield f"{owner}.{key}", rate or "assumed: PCIe 4 x16; a calibration measures it"


def _accelerator(card: Accelerator, measured: str) -> Iterator[tuple[str, str]]:
    known = _STAND_IN if card.stand_in else _DEVICE
    usual = f"{measured}: as a core of the host" if card.stand_in else "assumed: usual for its kind"
    for field in fields(card):
        if field.name not in ("name", "device", "calibration") and getattr(card, field.name) is not None:
            yield f"accelerator.{card.name}.{field.name}", known.get(field.name, usual)
