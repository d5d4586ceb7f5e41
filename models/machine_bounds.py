"""Bounds of a machine's figures.

Two of each: what any value of a machine keeps to, so that no load is zero, infinite or not a number; and the narrower
range of hardware, which figures of files and of the command line keep to, so that a figure in the wrong unit is told.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from hetsgd.models.edge import shown_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The range of one kind of figure. `values`: of any value, `hardware`: of files; `zero`: 0 is allowed as well.

    `unit` in words, `example` of how a figure is written.
    """

    values: tuple[float, float]
    hardware: tuple[float, float]
    unit: str
    example: str
    zero: bool = False


_RATE: Final = Bounds(values=(1e-6, 1e30), hardware=(1e3, 1e18), unit="bytes/s", example="900 GB/s is 900e9")
_FLOPS: Final = Bounds(values=(1e-6, 1e30), hardware=(1e6, 1e21), unit="FLOP/s", example="15.7 TFLOP/s is 15.7e12")
_SECONDS: Final = Bounds(values=(0.0, 1e6), hardware=(0.0, 10.0), unit="s", example="10 us is 10e-6")
_MEMORY: Final = Bounds(values=(1, 1e18), hardware=(1e6, 1e18), unit="bytes", example="16 GB is 16_000_000_000")
_CACHE: Final = Bounds(
    values=(0, 1e18), hardware=(1e3, 1e12), unit="bytes", example="45 MiB is 47_185_920, 0 is none", zero=True
)
_CACHE_RATE: Final = Bounds(
    values=(1e-6, 1e30), hardware=(1e3, 1e18), unit="bytes/s", example="30 GB/s is 30e9, 0 is not known", zero=True
)
_WATTS: Final = Bounds(values=(0.0, 1e6), hardware=(0.0, 1e6), unit="W", example="300")

BOUNDS: Final[dict[str, Bounds]] = {
    "cores": Bounds(values=(1, 65536), hardware=(1, 65536), unit="cores", example="16"),
    "threads_per_core": Bounds(values=(1, 16), hardware=(1, 16), unit="threads", example="2"),
    "core_flops_float32": _FLOPS,
    "core_flops_float64": _FLOPS,
    "flops_float32": _FLOPS,
    "flops_float64": _FLOPS,
    "half_batch": Bounds(values=(0.0, 1e9), hardware=(0.0, 1e7), unit="rows", example="64"),
    "efficiency": Bounds(values=(1e-6, 1.0), hardware=(1e-6, 1.0), unit="of the peak", example="90 % is 0.9"),
    "core_bandwidth_bytes_per_s": _RATE,
    "dram_bandwidth_bytes_per_s": _RATE,
    "core_l3_bandwidth_bytes_per_s": _CACHE_RATE,
    "memory_bandwidth_bytes_per_s": _RATE,
    "l2_bandwidth_bytes_per_s": _CACHE_RATE,
    "pinned_bytes_per_s": _RATE,
    "pageable_bytes_per_s": _RATE,
    "dram_bytes": _MEMORY,
    "memory_bytes": _MEMORY,
    "l2_bytes": _CACHE,
    "l3_bytes": _CACHE,
    "step_overhead_s": _SECONDS,
    "line_transfer_s": _SECONDS,
    "launch_s": _SECONDS,
    "latency_s": _SECONDS,
    "message_s": _SECONDS,
    "decision_s": _SECONDS,
    "kernels_per_layer": Bounds(values=(0.0, 1e6), hardware=(0.0, 1e4), unit="launches", example="9"),
    "copy_engines": Bounds(values=(1, 64), hardware=(1, 64), unit="engines", example="2"),
    "cpu_sigma": Bounds(values=(0.0, 3.0), hardware=(0.0, 3.0), unit="of the logarithm", example="0.1"),
    "accelerator_sigma": Bounds(values=(0.0, 3.0), hardware=(0.0, 3.0), unit="of the logarithm", example="0.1"),
    "idle_watts": _WATTS,
    "busy_watts": _WATTS,
    "price_usd_per_hour": Bounds(values=(0.0, 1e9), hardware=(0.0, 1e6), unit="US dollars", example="24.48"),
}
"""The bounds of every figure of a machine by its name."""


def check_values(owner: str, value: Any) -> None:
    """Raise ValueError where a figure of this part of a machine is beyond what any value may be."""
    for field in fields(value):
        bounds, figure = BOUNDS.get(field.name), getattr(value, field.name)
        if bounds is not None and figure is not None:
            low, high = bounds.values
            if not (low <= figure <= high or (bounds.zero and figure == 0)):
                raise ValueError(
                    f"machine: {owner}.{field.name} must be {_range(low, high, bounds)}, got {shown_value(figure)}"
                )


def hardware_problem(key: str, figure: Any) -> str | None:
    """What is wrong with a figure of a file: rule, value and fix in words; None where nothing is."""
    bounds = BOUNDS.get(key)
    if bounds is None or figure is None or isinstance(figure, str):
        return None
    low, high = bounds.hardware
    if low <= figure <= high or (bounds.zero and figure == 0):
        return None
    return f"must be {_range(low, high, bounds)}, got {shown_value(figure)}; {_fix(bounds)}"


def unit_hint(key: str) -> str:
    """How a figure is written, for one that is no number; empty for what has no unit.

    >>> unit_hint("memory_bandwidth_bytes_per_s")
    'give the number alone, in bytes/s: 900 GB/s is 900e9'
    """
    bounds = BOUNDS.get(key)
    return "" if bounds is None else f"give the number alone, in {bounds.unit}: {_fix(bounds)}"


def _fix(bounds: Bounds) -> str:
    return bounds.example if " is " in bounds.example else f"such as {bounds.example}"


def _range(low: float, high: float, bounds: Bounds) -> str:
    zero = "0 or " if bounds.zero and low > 0 else ""
    return f"{zero}{low:g} to {high:g} {bounds.unit}"
