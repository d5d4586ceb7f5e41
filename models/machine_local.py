"""The machine at hand: its cores, caches and memory, with rates measured once and kept.

No torch here: accelerators are found by whoever may import it and handed in. Without any, a core stands in for one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.local_rates import Kept, Rates, host, rates_of
from hetsgd.models.local_sources import local_sources
from hetsgd.models.machine import Accelerator, Link, Machine, Socket
from hetsgd.models.machine_names import LOCAL

_DRAM_BYTES: Final = 96 << 20
_L3_BYTES: Final = 6 << 20
_WIDTH: Final = 512
_BATCHES: Final = (8, 256)
_CALL_S: Final = 60e-6
_ROUNDS: Final = 3
_CACHE_FOLDER: Final = Path("/sys/devices/system/cpu/cpu0/cache")


def available_cores() -> int:
    """Cores that this process may use: its affinity, cut by the CPU quota of its cgroup; at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_cores()
    return max(1, cores if quota is None else min(cores, int(quota)))


def _cgroup_cores() -> float | None:
    """Cores that the cgroup's quota allows (v2, then v1), or None without one."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return None if quota == "max" else max(1.0, int(quota) / int(period))
    except (OSError, ValueError):
        pass
    folder = Path("/sys/fs/cgroup/cpu")
    try:
        limit = int((folder / "cpu.cfs_quota_us").read_text(encoding="ascii"))
        period_us = int((folder / "cpu.cfs_period_us").read_text(encoding="ascii"))
        return max(1.0, limit / period_us) if limit > 0 else None
    except (OSError, ValueError):
        return None


def cache_bytes(level: int) -> int | None:
    """Size of the data cache of this level that the first CPU uses, where the system says it."""
    for folder in sorted(_CACHE_FOLDER.glob("index*")):
        try:
            if int((folder / "level").read_text(encoding="ascii")) != level:
                continue
            if (folder / "type").read_text(encoding="ascii").strip() == "Instruction":
                continue
            text = (folder / "size").read_text(encoding="ascii").strip()
            scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
            return int(text.rstrip("KMG")) * scale
        except (OSError, ValueError):
            return None
    return None


def memory_bytes() -> int:
    """Memory of this machine, cut by the limit of its cgroup."""
    import psutil

    total = int(psutil.virtual_memory().total)
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        return total if limit == "max" else min(total, int(limit))
    except (OSError, ValueError):
        return total


def _best_s(work: Callable[[], Any], repeats: int, budget_s: float) -> float:
    """The shortest of some runs after a first one that warms up: other processes only ever make it longer."""
    work()
    best, begun = float("inf"), time.perf_counter()
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        now = time.perf_counter()
        best = min(best, now - start)
        if now - begun > budget_s:
            break
    return best


def _copy_rate(size_bytes: int, repeats: int, budget_s: float) -> float:
    source = np.ones(size_bytes // 8)
    target = np.zeros_like(source)
    return 2.0 * source.nbytes / _best_s(lambda: np.copyto(target, source), repeats, budget_s)


def _copy_rate_of_all(cores: int, budget_s: float) -> float:
    """Bytes/s of copies by all cores at once (numpy releases the interpreter lock in a copy)."""
    size = max(_DRAM_BYTES // cores, 4 << 20) // 8
    pairs = [(np.ones(size), np.zeros(size)) for _ in range(cores)]

    def together() -> None:
        threads = [threading.Thread(target=np.copyto, args=(target, source)) for source, target in pairs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return 2.0 * size * 8 * cores / _best_s(together, 6, budget_s)


def _product_rate(dtype: str, batch: int, budget_s: float) -> float:
    """FLOP/s of (batch x 512) times (512 x 512)."""
    rows: NDArray[Any] = np.ones((batch, _WIDTH), dtype=dtype)
    weights: NDArray[Any] = np.ones((_WIDTH, _WIDTH), dtype=dtype)
    target: NDArray[Any] = np.empty((batch, _WIDTH), dtype=dtype)
    seconds = _best_s(lambda: np.matmul(rows, weights, out=target), 30, budget_s)
    return 2.0 * batch * _WIDTH * _WIDTH / seconds


def measure(cores: int) -> Rates:
    """Measure the rates of this machine in well under 1.5 s.

    The rate of products is affine in 1 / batch: 1 / r = (1 / R)(1 + half / B), read off two batches.
    """
    from threadpoolctl import threadpool_limits

    core = _copy_rate(_DRAM_BYTES, 4, 0.15)
    core_l3 = _copy_rate(_L3_BYTES, 20, 0.05)
    everything = _copy_rate_of_all(cores, 0.2) if cores > 1 else core
    with threadpool_limits(limits=1):
        small, large = (_product_rate("float32", batch, 0.08) for batch in _BATCHES)
        double = _product_rate("float64", _BATCHES[1], 0.08)
    slope = max((1.0 / small - 1.0 / large) / (1.0 / _BATCHES[0] - 1.0 / _BATCHES[1]), 0.0)
    peak = 1.0 / max(1.0 / large - slope / _BATCHES[1], 0.25 / large)
    half = slope * peak
    return Rates(
        core_bytes_per_s=core,
        core_l3_bytes_per_s=max(core_l3, core),
        all_bytes_per_s=max(everything, core),
        flops_float32=peak,
        flops_float64=double * (1.0 + half / _BATCHES[1]),
        half_batch=half,
    )


def best_of(rounds: Sequence[Rates]) -> Rates:
    """The highest of each rate, since other programs only ever make it lower; products are of one round."""
    products = max(rounds, key=lambda rates: rates.flops_float32)
    core, l3, together = (
        max(getattr(rates, name) for rates in rounds)
        for name in ("core_bytes_per_s", "core_l3_bytes_per_s", "all_bytes_per_s")
    )
    return replace(
        products, core_bytes_per_s=core, core_l3_bytes_per_s=max(l3, core), all_bytes_per_s=max(together, core)
    )


@lru_cache(maxsize=4)
def known_rates(cores: int, fresh: bool = False) -> Kept:
    """The rates of this machine, kept from an earlier command or measured now; once per process."""
    sizes = {"memory": memory_bytes(), "l2": cache_bytes(2) or 0, "l3": cache_bytes(3) or 0}
    return rates_of(host(cores, sizes), lambda: best_of([measure(cores) for _ in range(_ROUNDS)]), fresh=fresh)


def local_machine(
    accelerators: Sequence[Accelerator] = (), links: Sequence[Link] = (), *, used: int | None = None,
    fresh: bool = False,
) -> Machine:  # fmt: skip
    """The machine at hand with these accelerators (none: stand-ins, each a core); `used`: how many, 1 or all.

    Lanes of the CPU team: the cores that no stand-in takes, at least one. `fresh`: measured anew, not as it was kept.
    """
    cores = available_cores()
    kept = known_rates(cores, fresh)
    socket = _socket(cores, kept.rates)
    if accelerators:
        if used is not None and used > len(accelerators):
            raise ValueError(f"machine local: machine.accelerators must be <= {len(accelerators)}, got {used}")
        chosen = tuple(accelerators[:used])
    else:
        chosen = tuple(_stand_in(index, socket) for index in range(1 if used is None else used))
    joined = {end for link in links for end in link.ends}
    joining = [link for link in links if {accelerator.name for accelerator in chosen} & set(link.ends)]
    joining += [_default_link(acc, socket) for acc in chosen if acc.name not in joined]
    taken = sum(accelerator.stand_in for accelerator in chosen)
    machine = Machine(
        name=LOCAL,
        description=f"this machine: {cores} cores, {len(chosen)} accelerator(s): "
        + (", ".join(f"{acc.name} ({acc.device})" for acc in chosen) or "none")
        + f"; rates measured {kept.date[:10]}",
        sockets=(socket,),
        accelerators=chosen,
        links=tuple(joining),
        cpu_lanes=max(1, cores - taken),
        message_s=100e-6,
        decision_s=30e-6,
    )
    sources = local_sources(machine, kept.date, given={link.name for link in links})
    assumed = tuple(field for field, text in sources if text.startswith("assumed: "))
    return replace(machine, sources=sources, assumed=assumed)


def _socket(cores: int, rates: Rates) -> Socket:
    return Socket(
        name="cpu0",
        cores=cores,
        threads_per_core=1,
        core_flops_float32=rates.flops_float32,
        core_flops_float64=rates.flops_float64,
        half_batch=rates.half_batch,
        core_bandwidth_bytes_per_s=rates.core_bytes_per_s,
        core_l3_bandwidth_bytes_per_s=rates.core_l3_bytes_per_s,
        dram_bandwidth_bytes_per_s=rates.all_bytes_per_s,
        dram_bytes=memory_bytes(),
        l2_bytes=cache_bytes(2) or 1 << 20,
        l3_bytes=cache_bytes(3) or 0,
        step_overhead_s=_CALL_S,
    )


def _stand_in(index: int, socket: Socket) -> Accelerator:
    """A core that stands in for an accelerator: its rates are those of the core, its memory that of the host."""
    return Accelerator(
        name=f"cpu:{index}",
        device="cpu",
        flops_float32=socket.core_flops_float32,
        flops_float64=socket.core_flops_float64,
        half_batch=socket.half_batch,
        memory_bandwidth_bytes_per_s=max(socket.core_l3_bandwidth_bytes_per_s, socket.core_bandwidth_bytes_per_s),
        memory_bytes=socket.dram_bytes,
        l2_bytes=socket.l2_bytes,
        launch_s=2e-6,
        kernels_per_layer=10.0,
    )


def _default_link(accelerator: Accelerator, socket: Socket) -> Link:
    """A link for an accelerator that came without one: copies by a core for a stand-in, else PCIe 4 x16."""
    if accelerator.stand_in:
        # A copy counts its bytes once, and reads and writes each of them.
        rate = socket.core_bandwidth_bytes_per_s / 2.0
        return Link(
            name=f"{accelerator.name}-copy",
            ends=(socket.name, accelerator.name),
            latency_s=5e-6,
            pinned_bytes_per_s=rate,
            pageable_bytes_per_s=rate,
        )
    return Link(
        name=f"{accelerator.name}-pcie",
        ends=(socket.name, accelerator.name),
        latency_s=10e-6,
        pinned_bytes_per_s=25.2e9,
        pageable_bytes_per_s=12.6e9,
    )
