"""A machine: sockets, accelerators and links with their capacities. Values only; what a step costs is in cost.py.

All rates are per second, sizes in bytes. Every value of a machine file carries its source; `assumed` names those
that no source gives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from hetsgd.models.calibration import Calibration, CalibrationRecord
from hetsgd.models.edge import shown_value
from hetsgd.models.machine_bounds import check_values
from hetsgd.models.machine_graph import check_joints, graph_of, route_of
from hetsgd.models.policy import Kind, LaneMode, Member

if TYPE_CHECKING:
    import networkx

Placement = Literal["one_socket", "interleaved"]
Direction = Literal["down", "up"]

_TAKEN: Final = frozenset({"cpu", "merge"})
"""Names of other workers and places of a run."""
_LONGEST_NAME: Final = 100


def _check_name(kind: str, name: str) -> None:
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable() or name != name.strip() or "/" in name:
        raise ValueError(
            f"machine: {kind} names must have 1 to {_LONGEST_NAME} printable characters, no / and no space at an end, "
            f"got {shown_value(name)}"
        )


def _check_names(machine: Machine) -> None:
    _check_name("machine", machine.name)
    entries: tuple[Socket | Accelerator | Link, ...] = (*machine.sockets, *machine.accelerators, *machine.links)
    for entry in entries:
        _check_name(type(entry).__name__.lower(), entry.name)
    for accelerator in machine.accelerators:
        if accelerator.name in _TAKEN:
            raise ValueError(
                f"machine {machine.name}: an accelerator must not be called {accelerator.name!r}, which names another "
                "part of a run"
            )


def _check_watts(owner: str, idle: float | None, busy: float | None) -> None:
    if idle is not None and busy is not None and busy < idle:
        raise ValueError(f"machine: {owner}.busy_watts must be >= idle_watts ({idle:g}), got {busy:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """One CPU socket with its own DRAM. Rates of a core are of one thread; `dram_*` are of the whole socket.

    `efficiency`: share of its peak FLOP/s that a core reaches in large batches; `half_batch`: batch at which it
    reaches half of that (factor B / (B + half_batch)).
    `core_bandwidth_bytes_per_s`: what one thread alone can draw from DRAM, `core_l3_bandwidth_bytes_per_s` from the
    L3 cache (0: not known, then L3 counts as DRAM). `line_transfer_s`: latency of a cache line that another core of
    the socket has written (0: not known, then writing the same lines costs nothing; across sockets it is the latency
    of the link). `step_overhead_s`: fixed cost of one step on a lane (calls, not arithmetic). `idle_watts`,
    `busy_watts`: power of the socket with no core and with all cores at work (None: not known). `calibration`:
    measured step times, which go before what the rates say.
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
    idle_watts: float | None = None
    busy_watts: float | None = None
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        check_values(f"socket {self.name}", self)
        _check_watts(f"socket {self.name}", self.idle_watts, self.busy_watts)

    @property
    def logical_cpus(self) -> int:
        """Hardware threads."""
        return self.cores * self.threads_per_core


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One accelerator. `device` is the torch device that stands behind it on a real machine ("cpu": a stand-in).

    `launch_s`: cost of one kernel launch with its synchronisation. `kernels_per_layer`: launches of one step for
    each layer. `efficiency` and `half_batch` as for a socket. `copy_engines`: transfers that may be under way at once,
    one in each direction at most. `l2_bandwidth_bytes_per_s`: of its L2, which serves a step whose weights, gradient
    and activations all fit it (0: not known, then everything comes from memory). Watts and `calibration` as for a
    socket; a stand-in has those of its socket.
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
    l2_bandwidth_bytes_per_s: float = 0.0
    idle_watts: float | None = None
    busy_watts: float | None = None
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        if not self.device.strip():
            raise ValueError(
                f"machine: accelerator {self.name}.device must name a torch device, such as cuda:0, got ''"
            )
        check_values(f"accelerator {self.name}", self)
        _check_watts(f"accelerator {self.name}", self.idle_watts, self.busy_watts)

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
        if self.ends[0] == self.ends[1]:
            raise ValueError(f"machine: link {self.name}.ends must be two different places, got {list(self.ends)}")
        check_values(f"link {self.name}", self)

    def bytes_per_s(self, pinned: bool) -> float:
        """The rate of one direction for transfers from pinned or pageable host memory."""
        return self.pinned_bytes_per_s if pinned else self.pageable_bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Service times are multiplied by lognormal noise of mean 1; `sigma` is that of the logarithm, per class."""

    cpu_sigma: float = 0.0
    accelerator_sigma: float = 0.0

    def __post_init__(self) -> None:
        check_values("noise", self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine. `cpu_lanes`: lanes of the CPU team unless the run says otherwise (0: no team).

    `message_s`: one-way latency between coordinator and worker; `decision_s`: processor time of one decision.
    `pinned`: whether transfers use pinned memory. `weights_on`: where the global model lies, in the DRAM of the
    first socket (what first touch by one thread does) or interleaved over all. `price_usd_per_hour`: what an hour of
    the whole machine costs (None: not known). `sources`: where each value comes from, `assumed`: the values that no
    source gives. `calibrated`: how its step times were measured, if they were. Every socket and accelerator must be
    joined to the first socket, in whose memory the rows and the model lie.
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
    price_usd_per_hour: float | None = None
    sources: tuple[tuple[str, str], ...] = ()
    assumed: tuple[str, ...] = ()
    calibrated: CalibrationRecord | None = None

    def __post_init__(self) -> None:
        _check_names(self)
        if not self.sockets:
            raise ValueError(f"machine {self.name}: there must be at least one socket, got none")
        check_joints(self)
        if not 0 <= self.cpu_lanes <= self.logical_cpus:
            raise ValueError(
                f"machine {self.name}: cpu_lanes must be in 0..{self.logical_cpus} (its logical CPUs), "
                f"got {shown_value(self.cpu_lanes)}"
            )
        if self.weights_on not in ("one_socket", "interleaved"):
            raise ValueError(
                f"machine {self.name}: weights_on must be one_socket or interleaved, got {self.weights_on!r}"
            )
        check_values(self.name, self)

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
            counts = {"cpu": "machine.cpu_lanes is 0", "accelerator": "it has none (machine.accelerators)"}
            why = " and ".join(counts[kind] for kind in sorted(missing))
            raise ValueError(f"machine {self.name} has no worker of kind {', '.join(sorted(missing))}: {why}")
        return tuple(members)

    def graph(self) -> networkx.DiGraph[str]:
        """Processors, memories and links as a graph; read-only.

        Nodes are sockets and accelerators (`kind`, `flops_float32`, `flops_float64`, caches in bytes; sockets: `cores`)
        and their memories, `NAME:dram` and `NAME:memory` (`kind` memory, `bytes`). Edges carry `name`, `direction`,
        `latency_s` and `bytes_per_s`.
        """
        return graph_of(self)

    def route(self, source: str, target: str) -> tuple[tuple[Link, Direction], ...]:
        """The links of the fastest way between two sockets or accelerators, each with its direction.

        Accelerators pass nothing on to others unless there is no other way.

        Raises ValueError when no link joins them.
        """
        return route_of(self, source, target)
