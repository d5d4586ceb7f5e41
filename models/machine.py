"""A machine: sockets, accelerators and links with their capacities. Values only; what a step costs is in cost.py.

All rates are per second, sizes in bytes. Every value of a machine file carries its source; `assumed` names those
that no source gives.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

from hetsgd.models.calibration import Calibration, CalibrationRecord
from hetsgd.models.policy import Kind, LaneMode, Member

if TYPE_CHECKING:
    import networkx

Placement = Literal["one_socket", "interleaved"]
Direction = Literal["down", "up"]

# Routes are compared by the time of a transfer of this size: large enough that bandwidth counts beside latency.
_ROUTE_BYTES: Final = 1 << 20


def _positive(owner: str, **values: float) -> None:
    for name, value in values.items():
        if not 0.0 < value < math.inf:
            raise ValueError(f"machine: {owner}.{name} must be > 0 and finite, got {value}")


def _not_negative(owner: str, **values: float) -> None:
    for name, value in values.items():
        if not 0.0 <= value < math.inf:
            raise ValueError(f"machine: {owner}.{name} must be >= 0 and finite, got {value}")


def _share(owner: str, **values: float) -> None:
    for name, value in values.items():
        if not 0.0 < value <= 1.0:
            raise ValueError(f"machine: {owner}.{name} must be > 0 and <= 1, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """One CPU socket with its own DRAM. Rates of a core are of one thread; `dram_*` are of the whole socket.

    `efficiency`: share of its peak FLOP/s that a core reaches in large batches; `half_batch`: batch at which it
    reaches half of that (factor B / (B + half_batch)).
    `core_bandwidth_bytes_per_s`: what one thread alone can draw from DRAM, `core_l3_bandwidth_bytes_per_s` from the
    L3 cache (0: not known, then L3 counts as DRAM). `line_transfer_s`: latency of a cache line that another core of
    the socket has written (0: not known, then writing the same lines costs nothing; across sockets it is the latency
    of the link). `step_overhead_s`: fixed cost of one step on a lane (calls, not arithmetic). `calibration`: measured
    step times, which go before what the rates say.
    """

    name: str
    cores: int
    threads_per_core: int
    core_flops_float32: float
    core_flops_float64: float
    half_batch: float
    core_bandwidth_bytes_per_s: float
    dram_bandwidth_bytes_per_s: float
    dram_bytes: int
    l2_bytes: int
    l3_bytes: int
    core_l3_bandwidth_bytes_per_s: float = 0.0
    step_overhead_s: float = 0.0
    efficiency: float = 1.0
    line_transfer_s: float = 0.0
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        if self.cores < 1 or self.threads_per_core < 1:
            raise ValueError(f"machine: socket {self.name} needs cores and threads >= 1, got {self}")
        _positive(
            f"socket {self.name}",
            core_flops_float32=self.core_flops_float32,
            core_flops_float64=self.core_flops_float64,
            core_bandwidth_bytes_per_s=self.core_bandwidth_bytes_per_s,
            dram_bandwidth_bytes_per_s=self.dram_bandwidth_bytes_per_s,
            dram_bytes=self.dram_bytes,
        )
        _not_negative(
            f"socket {self.name}",
            half_batch=self.half_batch,
            l2_bytes=self.l2_bytes,
            l3_bytes=self.l3_bytes,
            core_l3_bandwidth_bytes_per_s=self.core_l3_bandwidth_bytes_per_s,
            step_overhead_s=self.step_overhead_s,
            line_transfer_s=self.line_transfer_s,
        )
        _share(f"socket {self.name}", efficiency=self.efficiency)

    @property
    def logical_cpus(self) -> int:
        """Hardware threads."""
        return self.cores * self.threads_per_core


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One accelerator. `device` is the torch device that stands behind it on a real machine ("cpu": a stand-in).

    `launch_s`: cost of one kernel launch with its synchronisation. `kernels_per_layer`: launches of one step for
    each layer. `efficiency` and `half_batch` as for a socket. `copy_engines`: transfers that may be under way at once,
    one in each direction at most. `calibration` as for a socket.
    """

    name: str
    device: str
    flops_float32: float
    flops_float64: float
    half_batch: float
    memory_bandwidth_bytes_per_s: float
    memory_bytes: int
    l2_bytes: int
    launch_s: float
    kernels_per_layer: float
    copy_engines: int = 1
    efficiency: float = 1.0
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        _positive(
            f"accelerator {self.name}",
            flops_float32=self.flops_float32,
            flops_float64=self.flops_float64,
            memory_bandwidth_bytes_per_s=self.memory_bandwidth_bytes_per_s,
            memory_bytes=self.memory_bytes,
        )
        _not_negative(
            f"accelerator {self.name}",
            half_batch=self.half_batch,
            l2_bytes=self.l2_bytes,
            launch_s=self.launch_s,
            kernels_per_layer=self.kernels_per_layer,
        )
        _share(f"accelerator {self.name}", efficiency=self.efficiency)
        if self.copy_engines < 1:
            raise ValueError(f"machine: accelerator {self.name}.copy_engines must be >= 1, got {self.copy_engines}")

    @property
    def stand_in(self) -> bool:
        """Whether a core of the host stands in for an accelerator: it shares DRAM and copies with its own core."""
        return self.device == "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link between two nodes (socket or accelerator names), with a rate for each direction.

    `down` is from the first end to the second. Transfers at the same time in one direction share its rate; each
    also draws on the DRAM of its socket.
    """

    name: str
    ends: tuple[str, str]
    latency_s: float
    pinned_bytes_per_s: float
    pageable_bytes_per_s: float

    def __post_init__(self) -> None:
        _positive(
            f"link {self.name}",
            pinned_bytes_per_s=self.pinned_bytes_per_s,
            pageable_bytes_per_s=self.pageable_bytes_per_s,
        )
        _not_negative(f"link {self.name}", latency_s=self.latency_s)

    def bytes_per_s(self, pinned: bool) -> float:
        """The rate of one direction for transfers from pinned or pageable host memory."""
        return self.pinned_bytes_per_s if pinned else self.pageable_bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Service times are multiplied by lognormal noise of mean 1; `sigma` is that of the logarithm, per class."""

    cpu_sigma: float = 0.0
    accelerator_sigma: float = 0.0

    def __post_init__(self) -> None:
        _not_negative("noise", cpu_sigma=self.cpu_sigma, accelerator_sigma=self.accelerator_sigma)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine. `cpu_lanes`: lanes of the CPU team unless the run says otherwise (0: no team).

    `message_s`: one-way latency between coordinator and worker; `decision_s`: processor time of one decision.
    `pinned`: whether transfers use pinned memory. `weights_on`: where the global model lies, in the DRAM of the
    first socket (what first touch by one thread does) or interleaved over all. `sources`: where each value comes
    from, `assumed`: the values that no source gives. `calibrated`: how its step times were measured, if they were.
    """

    name: str
    description: str
    sockets: tuple[Socket, ...]
    accelerators: tuple[Accelerator, ...]
    links: tuple[Link, ...]
    cpu_lanes: int
    message_s: float
    decision_s: float
    pinned: bool = True
    weights_on: Placement = "one_socket"
    noise: Noise = field(default_factory=Noise)
    sources: tuple[tuple[str, str], ...] = ()
    assumed: tuple[str, ...] = ()
    calibrated: CalibrationRecord | None = None

    def __post_init__(self) -> None:
        if not self.sockets:
            raise ValueError(f"machine {self.name}: there must be at least one socket, got none")
        nodes = {socket.name for socket in self.sockets} | {acc.name for acc in self.accelerators}
        if len(nodes) != len(self.sockets) + len(self.accelerators):
            raise ValueError(f"machine {self.name}: socket and accelerator names must be unique")
        for link in self.links:
            if not set(link.ends) <= nodes:
                raise ValueError(f"machine {self.name}: link {link.name} joins unknown nodes {link.ends}")
        if not 0 <= self.cpu_lanes <= self.logical_cpus:
            raise ValueError(
                f"machine {self.name}: cpu_lanes must be in 0..{self.logical_cpus} (its logical CPUs), "
                f"got {self.cpu_lanes}"
            )
        if self.weights_on not in ("one_socket", "interleaved"):
            raise ValueError(
                f"machine {self.name}: weights_on must be one_socket or interleaved, got {self.weights_on!r}"
            )
        _not_negative(self.name, message_s=self.message_s, decision_s=self.decision_s)

    @property
    def logical_cpus(self) -> int:
        """Hardware threads of all sockets."""
        return sum(socket.logical_cpus for socket in self.sockets)

    @property
    def calibrations(self) -> dict[str, Calibration]:
        """The calibrations of sockets and accelerators by name."""
        found = [(socket.name, socket.calibration) for socket in self.sockets]
        found += [(acc.name, acc.calibration) for acc in self.accelerators]
        return {name: calibration for name, calibration in found if calibration is not None}

    def accelerator(self, name: str) -> Accelerator:
        """The accelerator called `name`; KeyError when there is none."""
        return {acc.name: acc for acc in self.accelerators}[name]

    def members(self, kinds: Iterable[Kind], lanes: LaneMode) -> tuple[Member, ...]:
        """The workers of these kinds: one CPU team called `cpu`, then the accelerators in order."""
        wanted, members = set(kinds), []
        if "cpu" in wanted and self.cpu_lanes:
            members.append(Member(name="cpu", kind="cpu", lanes=self.cpu_lanes, free=lanes == "free"))
        if "accelerator" in wanted:
            members.extend(Member(name=acc.name, kind="accelerator") for acc in self.accelerators)
        missing = wanted - {member.kind for member in members}
        if missing:
            raise ValueError(f"machine {self.name} has no worker of kind {', '.join(sorted(missing))}")
        return tuple(members)

    def graph(self) -> networkx.DiGraph[str]:
        """Processors, memories and links as a graph; read-only.

        Nodes are sockets and accelerators (`kind`, `flops_float32`, `flops_float64`) and their memories, `NAME:dram`
        and `NAME:memory` (`kind` memory, `bytes`). Edges carry `name`, `direction`, `latency_s` and `bytes_per_s`.
        """
        return _graph(self)

    def route(self, source: str, target: str) -> tuple[tuple[Link, Direction], ...]:
        """The links of the fastest way between two sockets or accelerators, each with its direction.

        Raises ValueError when no link joins them.
        """
        return _route(self, source, target)


@lru_cache(maxsize=64)
def _graph(machine: Machine) -> networkx.DiGraph[str]:
    import networkx  # loaded here: a run without accelerators needs no graph

    graph: networkx.DiGraph[str] = networkx.DiGraph()

    def join(one: str, other: str, name: str, direction: Direction, latency_s: float, rate: float) -> None:
        seconds = latency_s + _ROUTE_BYTES / rate
        graph.add_edge(
            one, other, name=name, direction=direction, latency_s=latency_s, bytes_per_s=rate, seconds=seconds
        )

    memories = []
    for socket in machine.sockets:
        flops = {"flops_float32": socket.cores * socket.core_flops_float32}
        flops["flops_float64"] = socket.cores * socket.core_flops_float64
        graph.add_node(socket.name, kind="cpu", **flops)
        memories.append((socket.name, "dram", socket.dram_bytes, socket.dram_bandwidth_bytes_per_s))
    for acc in machine.accelerators:
        graph.add_node(acc.name, kind="accelerator", flops_float32=acc.flops_float32, flops_float64=acc.flops_float64)
        memories.append((acc.name, "memory", acc.memory_bytes, acc.memory_bandwidth_bytes_per_s))
    for owner, tier, size_bytes, rate in memories:
        node = f"{owner}:{tier}"
        graph.add_node(node, kind="memory", bytes=size_bytes)
        join(node, owner, node, "down", 0.0, rate)
        join(owner, node, node, "up", 0.0, rate)
    for link in machine.links:
        rate = link.bytes_per_s(machine.pinned)
        join(link.ends[0], link.ends[1], link.name, "down", link.latency_s, rate)
        join(link.ends[1], link.ends[0], link.name, "up", link.latency_s, rate)
    networkx.freeze(graph)
    return graph


@lru_cache(maxsize=1024)
def _route(machine: Machine, source: str, target: str) -> tuple[tuple[Link, Direction], ...]:
    import networkx

    graph = _graph(machine)
    try:
        nodes = networkx.shortest_path(graph, source, target, weight="seconds")
    except (networkx.NetworkXNoPath, networkx.NodeNotFound) as error:
        raise ValueError(f"machine {machine.name}: no link joins {source} and {target}; add one to `links`") from error
    links = {link.name: link for link in machine.links}
    edges = [graph.edges[one, other] for one, other in pairwise(nodes)]
    return tuple((links[edge["name"]], edge["direction"]) for edge in edges)
