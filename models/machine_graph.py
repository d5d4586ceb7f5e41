"""How the parts of a machine are joined: what may be, the graph of it, and the fastest ways."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import networkx

    from hetsgd.models.machine import Direction, Link, Machine

# Routes are compared by the time of a transfer of this size: large enough that bandwidth counts beside latency.
_ROUTE_BYTES: Final = 1 << 20
_RELAY_S: Final = 1e9


def check_joints(machine: Machine) -> None:
    """Names are unique, links join what there is, at most one each two, and everything to the first socket."""
    owners = [socket.name for socket in machine.sockets] + [acc.name for acc in machine.accelerators]
    memories = [f"{name}:{tier}" for name in owners for tier in ("dram", "memory")]
    if len({*owners, *memories}) < 3 * len(owners):
        raise ValueError(
            f"machine {machine.name}: socket and accelerator names must be unique, and none that of another's memory "
            f"(NAME:dram, NAME:memory), got {owners}"
        )
    names = [link.name for link in machine.links]
    if len(set(names)) < len(names):
        raise ValueError(f"machine {machine.name}: link names must be unique, got {names}")
    joined: dict[frozenset[str], str] = {}
    for link in machine.links:
        if not set(link.ends) <= set(owners):
            raise ValueError(
                f"machine {machine.name}: link {link.name} joins unknown nodes {list(link.ends)}; there are {owners}"
            )
        other = joined.setdefault(frozenset(link.ends), link.name)
        if other != link.name:
            raise ValueError(
                f"machine {machine.name}: links {other} and {link.name} join the same two places; give one link with "
                "the rate of both"
            )
    reached, grown = {machine.sockets[0].name}, True
    while grown:
        more = {end for link in machine.links for end in link.ends if reached & set(link.ends)}
        grown, reached = not more <= reached, reached | more
    for kind, entries in (("socket", machine.sockets), ("accelerator", machine.accelerators)):
        for entry in entries:
            if entry.name not in reached:
                raise ValueError(
                    f"machine {machine.name}: {kind} {entry.name} must be joined to {machine.sockets[0].name}, whose "
                    "memory holds the model, and no link leads there; add one to `link`"
                )


@lru_cache(maxsize=64)
def graph_of(machine: Machine) -> networkx.DiGraph[str]:
    """The graph of a machine: see `Machine.graph`."""
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
        graph.add_node(
            socket.name, kind="cpu", cores=socket.cores, l2_bytes=socket.l2_bytes, l3_bytes=socket.l3_bytes, **flops
        )
        memories.append((socket.name, "dram", socket.dram_bytes, socket.dram_bandwidth_bytes_per_s))
    for acc in machine.accelerators:
        graph.add_node(
            acc.name, kind="accelerator", l2_bytes=acc.l2_bytes, flops_float32=acc.flops_float32,
            flops_float64=acc.flops_float64,
        )  # fmt: skip
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


def _weight(graph: networkx.DiGraph[str], source: str) -> Callable[[str, str, dict[str, float]], float]:
    """What an edge counts on ways from `source`: an accelerator passes data on only where there is no other way."""

    def seconds(one: str, _: str, edge: dict[str, float]) -> float:
        relays = one != source and graph.nodes[one]["kind"] == "accelerator"
        return edge["seconds"] + (_RELAY_S if relays else 0.0)

    return seconds


@lru_cache(maxsize=1024)
def route_of(machine: Machine, source: str, target: str) -> tuple[tuple[Link, Direction], ...]:
    """The fastest way between two places of a machine: see `Machine.route`."""
    import networkx

    graph = graph_of(machine)
    try:
        nodes = networkx.shortest_path(graph, source, target, weight=_weight(graph, source))
    except (networkx.NetworkXNoPath, networkx.NodeNotFound) as error:
        raise ValueError(f"machine {machine.name}: no link joins {source} and {target}; add one to `links`") from error
    links = {link.name: link for link in machine.links}
    edges = [graph.edges[one, other] for one, other in pairwise(nodes)]
    return tuple((links[edge["name"]], edge["direction"]) for edge in edges)
