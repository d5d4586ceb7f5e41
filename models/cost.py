"""What a step, a transfer, a merge and an evaluation cost on a machine: rooflines over shared memory and links.

A `Load` says how long a piece of work takes when nothing else runs, and what it draws from shared DRAM meanwhile.
An engine in virtual time stretches it when the DRAM is short; on its own it takes `alone_s`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from hetsgd.models.machine import Accelerator, Link, Machine, Socket
from hetsgd.models.policy import Merge, Write
from hetsgd.models.workload import Precision, Workload

EVALUATION_CHUNK_ROWS: Final = 4096
"""Rows of one forward pass of an evaluation (as in the code of arXiv:2004.08771)."""

LINE_BYTES: Final = 64
LINE_FILL_BUFFERS: Final = 10
"""Cache lines that a core can wait for at the same time (x86 servers: 10 to 16 line fill buffers)."""

Tier = Literal["l2", "l3", "dram"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One piece of work: seconds when nothing else runs, and bytes that it draws from shared DRAM meanwhile."""

    alone_s: float
    dram_bytes: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 < self.alone_s < math.inf:
            raise ValueError(f"load: alone_s must be > 0 and finite, got {self.alone_s}")


def batch_efficiency(batch: int, half_batch: float) -> float:
    """Share of its peak that a processor reaches at this batch: B / (B + half_batch).

    Follows from a step time that is affine in the batch, as measured step times of fully connected nets are.

    >>> batch_efficiency(32, 32.0)
    0.5
    """
    return batch / (batch + half_batch)


def flops_s(flops: float, peak_per_s: float, batch: int, half_batch: float) -> float:
    """Seconds of arithmetic at a batch: flops / (peak x efficiency).

    >>> flops_s(1e9, 1e9, 10, 10.0)
    2.0
    """
    return flops / (peak_per_s * batch_efficiency(batch, half_batch))


def roofline_s(arithmetic_s: float, memory_bytes: float, bytes_per_s: float) -> float:
    """The longer of arithmetic and memory traffic, which overlap (Williams et al. 2009, the roofline model).

    >>> roofline_s(2.0, 30.0, 10.0), roofline_s(5.0, 30.0, 10.0)
    (3.0, 5.0)
    """
    return max(arithmetic_s, memory_bytes / bytes_per_s)


def weight_passes(write: Write, *, fused: bool) -> int:
    """How often a step goes through the weights in memory.

    The forward and the backward pass read them (2) and a `gradient` is written once (3). An update reads weights
    and gradient and writes weights (6 in all); fused into the product that makes the gradient, as a core does when
    it accumulates into the weights, it reads and writes the weights only (4). With 4 passes of 8 bytes the published
    CPU epochs of arXiv:2004.08771 come to one DRAM bandwidth per server.

    >>> weight_passes("gradient", fused=True), weight_passes("in_place", fused=True), weight_passes("keep", fused=False)
    (3, 4, 6)
    """
    if write == "gradient":
        return 3
    return 4 if fused else 6


def activation_bytes(workload: Workload, batch: int) -> float:
    """Bytes of one step's rows and activations: rows read once; outputs and their errors written and read once each.

    >>> w = Workload(name="w", dataset="d", rows=1, test_rows=0, features=3, outputs=2, hidden=(4,))
    >>> activation_bytes(w, 10) == 10 * (w.row_bytes + 4 * (4 + 2) * w.item_bytes)
    True
    """
    return batch * (workload.row_bytes + 4.0 * sum(workload.widths[1:]) * workload.item_bytes)


def untouched_weights(workload: Workload, batch: int) -> float:
    """First-layer weights that a core's step leaves out with their zeros: those of features that are 0 in all rows.

    F O (1 - density)^B, with non-zeros spread evenly over the features; 0 where zeros are multiplied too.

    >>> shape = {"rows": 9, "test_rows": 0, "features": 100, "outputs": 2, "hidden": (8,), "density": 0.01}
    >>> untouched_weights(Workload(name="w", dataset="d", **shape), 2)
    0.0
    >>> round(untouched_weights(Workload(name="w", dataset="d", sparse=True, **shape), 2), 2)
    784.08
    """
    if not workload.multiplies_sparse:
        return 0.0
    return workload.widths[0] * workload.widths[1] * (1.0 - workload.density) ** batch


def zero_flops(workload: Workload, batch: int, *, products: int) -> float:
    """Operations of the first layer's `products` (forward, gradient) that a core leaves out with the zeros."""
    if not workload.multiplies_sparse:
        return 0.0
    return 2.0 * products * batch * (1.0 - workload.density) * workload.widths[0] * workload.widths[1]


def core_flops(socket: Socket, precision: Precision) -> float:
    """What one core reaches of its peak at a precision, in large batches."""
    return socket.efficiency * (socket.core_flops_float32 if precision == "float32" else socket.core_flops_float64)


def accelerator_flops(accelerator: Accelerator, precision: Precision) -> float:
    """What an accelerator reaches of its peak at a precision, in large batches."""
    return accelerator.efficiency * (accelerator.flops_float32 if precision == "float32" else accelerator.flops_float64)


def weights_tier(machine: Machine, workload: Workload) -> Tier:
    """Where the lanes of the CPU team find the weights.

    One lane alone keeps weights in its L2 if they fit. Several lanes write them in turn, so that each finds the lines
    of the others in the L3 they share, if all are on one socket, it is large enough and its rate is known; across
    sockets a written line comes through the memory of its home socket.
    """
    used = lanes_per_socket(machine)
    first = machine.sockets[0]
    if sum(used) == 1 and workload.model_bytes <= first.l2_bytes:
        return "l2"
    one_socket = sum(count > 0 for count in used) == 1
    if one_socket and first.core_l3_bandwidth_bytes_per_s > 0.0 and workload.model_bytes <= first.l3_bytes:
        return "l3"
    return "dram"


def lane_socket(machine: Machine, lane: int) -> int:
    """Index of the socket that a lane runs on: lanes go round the sockets, past those that are full."""
    homes = _homes(tuple(socket.logical_cpus for socket in machine.sockets))
    if lane >= len(homes):
        raise ValueError(f"machine {machine.name}: lane {lane} is beyond its {machine.logical_cpus} logical CPUs")
    return homes[lane]


@lru_cache(maxsize=64)
def _homes(cpus: tuple[int, ...]) -> tuple[int, ...]:
    """The socket of every lane that sockets with so many hardware threads have room for."""
    order: list[int] = []
    left = list(cpus)
    while any(free > 0 for free in left):
        order += [index for index, free in enumerate(left) if free > 0]
        left = [free - 1 for free in left]
    return tuple(order)


def lanes_per_socket(machine: Machine) -> tuple[int, ...]:
    """Lanes of the CPU team on each socket."""
    homes = _homes(tuple(socket.logical_cpus for socket in machine.sockets))[: machine.cpu_lanes]
    return tuple(homes.count(index) for index in range(len(machine.sockets)))


def core_share(socket: Socket, lanes: int) -> float:
    """Share of a core that each of `lanes` lanes on this socket has: 1, less when hardware threads share cores.

    It is a lane's weight at the DRAM too: a core waits for so many lines at a time, whoever of its threads asked. A
    copy, which has a core of its own or is done by a device, has the weight of a whole core.
    """
    return min(1.0, socket.cores / lanes) if lanes else 1.0


def written_line_s(machine: Machine, index: int) -> float:
    """Mean latency of a cache line that the team has written last, for a lane on socket `index`.

    Each of the T lanes was the last writer with the same probability: the lane itself (no latency), another one of
    its socket (`line_transfer_s`), or one across a link (the latency of the way). 0 where a latency is not known.
    """
    used, socket = lanes_per_socket(machine), machine.sockets[index]
    if not used[index] or not socket.line_transfer_s:
        return 0.0
    total_s = (used[index] - 1) * socket.line_transfer_s
    for other, lanes in zip(machine.sockets, used, strict=True):
        if lanes and other is not socket:
            total_s += lanes * sum(link.latency_s for link, _ in machine.route(other.name, socket.name))
    return total_s / sum(used)


def coherence_s(written_bytes: float, line_s: float) -> float:
    """What Hogwild's shared writes add to a step: each line comes from another core's cache once, some at a time.

    lines x mean latency / line fill buffers. It is latency, not traffic: it holds up its own lane only.

    >>> coherence_s(64 * 1000, 1.0)
    100.0
    """
    return written_bytes / LINE_BYTES * line_s / LINE_FILL_BUFFERS


def lane_step(
    workload: Workload, socket: Socket, *, batch: int, write: Write = "in_place", tier: Tier = "dram", lanes: int = 1,
    line_s: float = 0.0, beside: int = 0,
) -> Load:  # fmt: skip
    """One gradient step of one lane, with `lanes` lanes on its socket.

    overhead + max(flops / (core peak x efficiency x B / (B + half)), passes x model bytes / core rate of the tier)
    + coherence where the team writes in place (`line_s`: see `written_line_s`). From DRAM the traffic is shared with
    the other lanes, from L2 it counts as arithmetic. Of a sparse set the first layer costs what its non-zeros do; only
    a `gradient` is written whole. On a calibrated socket: what was measured, with `beside` stand-ins at work on other
    cores as if they were lanes.
    """
    if socket.calibration is not None and socket.calibration.covers(workload):
        alone_s = socket.calibration.step_s(workload, batch, lanes=lanes + beside, write=write)
        return _measured(alone_s, weight_passes(write, fused=True) * workload.model_bytes, socket, tier, lanes)
    share = core_share(socket, lanes)
    peak = core_flops(socket, workload.precision) * share
    flops = workload.step_flops(batch) - zero_flops(workload, batch, products=2)
    busy_s = flops_s(flops, peak, batch, socket.half_batch)
    passes = weight_passes(write, fused=True)
    spared = (passes - 1 if write == "gradient" else passes) * untouched_weights(workload, batch)
    traffic = passes * workload.model_bytes - spared * workload.item_bytes
    load = _through_tier(socket, busy_s, traffic, tier, share)
    if write != "in_place" or not line_s:
        return load
    waiting_s = coherence_s(workload.model_bytes - untouched_weights(workload, batch) * workload.item_bytes, line_s)
    return Load(alone_s=load.alone_s + waiting_s, dram_bytes=load.dram_bytes)


def with_norms(step: Load, whole: Load, half: Load, workload: Workload, bytes_per_s: float) -> Load:
    """A step that also measures gradient norms: two more gradients, of the whole batch and of half of it, each read.

    >>> load = Load(alone_s=1.0)
    >>> shape = Workload(name="w", dataset="d", rows=1, test_rows=0, features=1, outputs=2, hidden=(), bias=False)
    >>> with_norms(load, load, load, shape, 8.0).alone_s  # 8 bytes read twice
    5.0
    """
    read_bytes = 2.0 * workload.model_bytes
    drawn = read_bytes if step.dram_bytes else 0.0
    return Load(
        alone_s=step.alone_s + whole.alone_s + half.alone_s + read_bytes / bytes_per_s,
        dram_bytes=step.dram_bytes + whole.dram_bytes + half.dram_bytes + drawn,
    )


def lane_forward(workload: Workload, socket: Socket, *, rows: int, tier: Tier = "dram", lanes: int = 1) -> Load:
    """Loss over `rows` rows on one lane, in chunks: forward arithmetic against weights once per chunk and the rows."""
    if socket.calibration is not None and socket.calibration.covers(workload):
        alone_s = socket.calibration.forward_s(workload, rows, lanes=lanes)
        return _measured(alone_s, chunks(rows) * workload.model_bytes + rows * workload.row_bytes, socket, tier, lanes)
    share = core_share(socket, lanes)
    peak = core_flops(socket, workload.precision) * share
    chunk = min(rows, EVALUATION_CHUNK_ROWS)
    flops = workload.forward_flops(rows) - zero_flops(workload, rows, products=1)
    busy_s = flops_s(flops, peak, chunk, socket.half_batch)
    row_bytes = workload.stored_row_bytes if workload.multiplies_sparse else workload.row_bytes
    traffic = float(chunks(rows) * workload.model_bytes + rows * row_bytes)
    return _through_tier(socket, busy_s, traffic, "dram" if tier == "dram" else "l3", share)


def _measured(alone_s: float, traffic: float, socket: Socket, tier: Tier, lanes: int) -> Load:
    """Work whose time was measured with that many lanes: their share of DRAM is in it, so they never wait for more."""
    if tier != "dram":
        return Load(alone_s=alone_s)
    return Load(alone_s=alone_s, dram_bytes=min(traffic, alone_s * socket.dram_bandwidth_bytes_per_s / max(lanes, 1)))


def _through_tier(socket: Socket, busy_s: float, traffic: float, tier: Tier, share: float) -> Load:
    if tier == "l2":
        return Load(alone_s=socket.step_overhead_s + busy_s)
    if tier == "l3" and socket.core_l3_bandwidth_bytes_per_s > 0.0:
        rate = socket.core_l3_bandwidth_bytes_per_s * share
        return Load(alone_s=socket.step_overhead_s + roofline_s(busy_s, traffic, rate))
    alone_s = roofline_s(busy_s, traffic, socket.core_bandwidth_bytes_per_s * share)
    return Load(alone_s=socket.step_overhead_s + alone_s, dram_bytes=traffic)


def chunks(rows: int) -> int:
    """Forward passes of an evaluation of `rows` rows.

    >>> chunks(4096), chunks(4097)
    (1, 2)
    """
    return -(-rows // EVALUATION_CHUNK_ROWS)


def launch_s(workload: Workload, accelerator: Accelerator) -> float:
    """Kernel launches of one gradient step with their synchronisation: kernels per layer x layers x launch."""
    return accelerator.kernels_per_layer * (len(workload.widths) - 1) * accelerator.launch_s


def working_set_bytes(workload: Workload, batch: int) -> float:
    """What a step on an accelerator touches: weights and gradient, rows, outputs of layers and their errors."""
    outputs = sum(workload.widths[1:])
    return 2.0 * workload.model_bytes + batch * (workload.row_bytes + 2.0 * outputs * workload.item_bytes)


def accelerator_tier(workload: Workload, accelerator: Accelerator, batch: int) -> Tier:
    """Where a step finds what it touches: `l2` where all of it fits and that cache's rate is known, else memory.

    A stand-in is a core: its weights alone must fit its L2.
    """
    if accelerator.stand_in:
        return "l2" if workload.model_bytes <= accelerator.l2_bytes else "dram"
    fits = working_set_bytes(workload, batch) <= accelerator.l2_bytes
    return "l2" if fits and accelerator.l2_bandwidth_bytes_per_s > 0.0 else "dram"


def accelerator_rate(workload: Workload, accelerator: Accelerator, batch: int) -> float:
    """Bytes/s at which the tier serves a step of an accelerator."""
    if not accelerator.stand_in and accelerator_tier(workload, accelerator, batch) == "l2":
        return accelerator.l2_bandwidth_bytes_per_s
    return accelerator.memory_bandwidth_bytes_per_s


def accelerator_step(
    workload: Workload, accelerator: Accelerator, *, batch: int, write: Write = "in_place", beside: int = 0
) -> Load:
    """One gradient step of an accelerator on its replica.

    launches + max(flops / (peak x efficiency x B / (B + half)), bytes / memory bandwidth), with bytes of weights
    (update not fused) and activations, which come from its L2 where all of them fit it and its rate is known. A
    stand-in computes as a core does: fused, and its weights come from shared DRAM unless they fit its L2. On a
    calibrated accelerator: what was measured, of a stand-in with so many other cores at work `beside` it.
    """
    if accelerator.calibration is not None and accelerator.calibration.covers(workload):
        return Load(alone_s=accelerator.calibration.step_s(workload, batch, lanes=1 + beside, write=write))
    own = write != "gradient"
    passes = weight_passes("in_place" if own else "gradient", fused=accelerator.stand_in)
    peak = accelerator_flops(accelerator, workload.precision)
    busy_s = flops_s(workload.step_flops(batch), peak, batch, accelerator.half_batch)
    traffic = float(passes * workload.model_bytes)
    if accelerator.stand_in and accelerator_tier(workload, accelerator, batch) == "l2":
        return Load(alone_s=launch_s(workload, accelerator) + busy_s)
    shared = traffic if accelerator.stand_in else 0.0
    if not accelerator.stand_in:
        traffic += activation_bytes(workload, batch)
    busy_s = roofline_s(busy_s, traffic, accelerator_rate(workload, accelerator, batch))
    return Load(alone_s=launch_s(workload, accelerator) + busy_s, dram_bytes=shared)


def accelerator_forward(workload: Workload, accelerator: Accelerator, *, rows: int) -> Load:
    """Loss over `rows` rows on an accelerator, in chunks; a forward pass takes a third of a step's launches.

    The copies of the model and the rows are transfers of their own.
    """
    if accelerator.calibration is not None and accelerator.calibration.covers(workload):
        return Load(alone_s=accelerator.calibration.forward_s(workload, rows))
    chunk = min(rows, EVALUATION_CHUNK_ROWS)
    peak = accelerator_flops(accelerator, workload.precision)
    busy_s = flops_s(workload.forward_flops(rows), peak, chunk, accelerator.half_batch)
    traffic = float(chunks(rows) * workload.model_bytes) + activation_bytes(workload, rows) / 2.0
    busy_s = roofline_s(busy_s, traffic, accelerator.memory_bandwidth_bytes_per_s)
    return Load(alone_s=chunks(rows) * launch_s(workload, accelerator) / 3.0 + busy_s)


def transfer_s(link: Link, size_bytes: int, *, pinned: bool) -> float:
    """A transfer over one link that nothing else uses: latency + bytes / rate.

    >>> link = Link(name="l", ends=("a", "b"), latency_s=1.0, pinned_bytes_per_s=8.0, pageable_bytes_per_s=4.0)
    >>> transfer_s(link, 16, pinned=True), transfer_s(link, 16, pinned=False)
    (3.0, 5.0)
    """
    return link.latency_s + size_bytes / link.bytes_per_s(pinned)


def merge_bytes(merge: Merge, model_bytes: int, *, host_write_backs: int = 0) -> int:
    """Bytes that a merge moves in host memory: each operand read or written once.

    With n inputs: `overwrite` reads a replica and writes the model (2 passes); `gradient` and `average` read n inputs
    and the model and write it (n + 2; momentum reads and writes its velocity, compensation reads n more); `delta`
    also reads what the replicas were started from (2n + 2); `elastic` writes the replicas too (2n + 2). A replica in
    host memory that is written back costs two passes more.

    >>> merge_bytes(Merge(inputs=(1, 2), rule="average", weights=(0.5, 0.5)), 100)
    400
    """
    n = len(merge.inputs)
    passes = {
        "overwrite": 2,
        "discard": 0,
        "gradient": n + 2,
        "average": n + 2,
        "delta": 2 * n + 2,
        "elastic": 2 * n + 2,
    }
    extra = (2 if merge.momentum > 0.0 else 0) + (n if merge.compensate > 0.0 else 0)
    return (passes[merge.rule] + extra + 2 * host_write_backs) * model_bytes
