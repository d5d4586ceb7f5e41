"""A machine: sockets, accelerators and links with their capacities. Values only; what a step costs is in cost.py.

All rates are per second, sizes in bytes. Every value of a machine file carries its source; `assumed` names those
that no source gives.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from hetsgd.models.policy import Kind, LaneMode, Member


def _positive(owner: str, **values: float) -> None:
    for name, value in values.items():
        if not 0.0 < value < math.inf:
            raise ValueError(f"machine: {owner}.{name} must be > 0 and finite, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """One CPU socket with its own DRAM. Rates of a core are of one thread; `dram_*` are of the whole socket.

    `half_batch`: batch at which a core reaches half of its peak FLOP/s (efficiency B / (B + half_batch)).
    `core_bandwidth_bytes_per_s`: what one thread alone can draw. `step_overhead_s`: fixed cost of one step on a
    lane (calls, not arithmetic).
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
    step_overhead_s: float = 0.0

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

    @property
    def logical_cpus(self) -> int:
        """Hardware threads."""
        return self.cores * self.threads_per_core


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One accelerator. `device` is the torch device that stands behind it on a real machine ("cpu": a stand-in).

    `launch_s`: cost of one kernel launch with its synchronisation. `kernels_per_layer`: launches of one step for
    each layer. `half_batch` as for a socket. `copy_engines`: transfers that may be under way at once.
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

    def __post_init__(self) -> None:
        _positive(
            f"accelerator {self.name}",
            flops_float32=self.flops_float32,
            flops_float64=self.flops_float64,
            memory_bandwidth_bytes_per_s=self.memory_bandwidth_bytes_per_s,
            memory_bytes=self.memory_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link between two nodes (socket or accelerator names), with a rate for each direction.

    Transfers at the same time in one direction share its rate; each also draws on the DRAM of its socket.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Service times are multiplied by lognormal noise of mean 1; `sigma` is that of the logarithm, per class."""

    cpu_sigma: float = 0.0
    accelerator_sigma: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine. `cpu_lanes`: lanes of the CPU team unless the run says otherwise (0: no team).

    `message_s`: one-way latency between coordinator and worker; `decision_s`: processor time of one decision.
    `pinned`: whether transfers use pinned memory. `sources`: where each value comes from, `assumed`: the
    values that no source gives.
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
    noise: Noise = field(default_factory=Noise)
    sources: tuple[tuple[str, str], ...] = ()
    assumed: tuple[str, ...] = ()

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

    @property
    def logical_cpus(self) -> int:
        """Hardware threads of all sockets."""
        return sum(socket.logical_cpus for socket in self.sockets)

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
