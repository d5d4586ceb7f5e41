"""A machine whose accelerators differ in speed, for simulated runs of small networks."""

from __future__ import annotations

from hetsgd.models.machine import Accelerator, Link, Machine, Noise, Socket


def uneven_machine(lanes: int, accelerators: int, noise: Noise) -> Machine:
    socket = Socket(
        name="socket0", cores=max(lanes, 1), threads_per_core=1, core_flops_float32=5e10, core_flops_float64=2e10,
        half_batch=8.0, core_bandwidth_bytes_per_s=1e10, dram_bandwidth_bytes_per_s=5e10, dram_bytes=1 << 34,
        l2_bytes=1 << 20, l3_bytes=1 << 24, step_overhead_s=1e-5,
    )  # fmt: skip
    names = [f"gpu{k}" for k in range(accelerators)]
    cards = tuple(
        Accelerator(
            name=name, device="cuda", flops_float32=1e13 / (k + 1), flops_float64=5e12, half_batch=64.0,
            memory_bandwidth_bytes_per_s=5e11, memory_bytes=1 << 33, l2_bytes=1 << 22, launch_s=5e-6,
            kernels_per_layer=6.0,
        )
        for k, name in enumerate(names)
    )  # fmt: skip
    links = tuple(
        Link(name=f"pcie{k}", ends=("socket0", name), latency_s=1e-5, pinned_bytes_per_s=1e10, pageable_bytes_per_s=6e9)
        for k, name in enumerate(names)
    )
    return Machine(
        name="m", description="", sockets=(socket,), accelerators=cards, links=links, cpu_lanes=lanes,
        message_s=2e-6, decision_s=1e-6, noise=noise,
    )  # fmt: skip
