"""Machine values: ranges, members, graph and routes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx
import pytest

from hetsgd.models.machine import Machine
from hetsgd.models.machine_file import load_machine


@pytest.fixture(scope="module")
def server() -> Machine:
    return load_machine("aws-p3.16xlarge", {"accelerators": 8})


def test_the_graph_has_processors_memories_and_links_with_their_capacities(server: Machine) -> None:
    graph = server.graph()
    assert graph.nodes["gpu3"]["flops_float64"] == 7.8e12
    assert graph.nodes["cpu1:dram"]["bytes"] == 244e9
    assert graph.edges["cpu0", "gpu2"]["bytes_per_s"] == 6.2e9, "pageable, as this machine copies"
    assert graph.edges["gpu2", "cpu0"]["direction"] == "up"
    assert replace(server, pinned=True).graph().edges["cpu0", "gpu2"]["bytes_per_s"] == 12.4e9
    assert networkx.is_strongly_connected(graph)
    with pytest.raises(networkx.NetworkXError):
        graph.add_node("more")


def test_a_route_takes_the_links_on_the_way(server: Machine) -> None:
    assert [(link.name, way) for link, way in server.route("cpu0", "gpu1")] == [("pcie1", "down")]
    assert [(link.name, way) for link, way in server.route("gpu5", "cpu0")] == [("pcie5", "up"), ("qpi", "up")]
    cut = replace(server, links=server.links[1:])
    with pytest.raises(ValueError, match="no link joins cpu0 and gpu0"):
        cut.route("cpu0", "gpu0")


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("sockets", {"dram_bandwidth_bytes_per_s": 0.0}, r"cpu0\.dram_bandwidth_bytes_per_s must be > 0"),
        ("sockets", {"half_batch": -1.0}, r"cpu0\.half_batch must be >= 0"),
        ("accelerators", {"copy_engines": 0}, r"gpu0\.copy_engines must be >= 1"),
        ("accelerators", {"launch_s": float("nan")}, r"gpu0\.launch_s must be >= 0 and finite"),
        ("links", {"latency_s": float("inf")}, r"pcie0\.latency_s must be >= 0 and finite"),
    ],
)
def test_values_out_of_range_are_refused(server: Machine, part: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(getattr(server, part)[0], **change)


def test_more_lanes_than_logical_cpus_are_refused(server: Machine) -> None:
    with pytest.raises(ValueError, match=r"cpu_lanes must be in 0\.\.64 .* got 65"):
        replace(server, cpu_lanes=65)
