"""Machine values: ranges, members, graph and routes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx
import pytest

from hetsgd.models.machine import Machine, Noise
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
    with pytest.raises(ValueError, match="no link joins cpu0 and gpu9"):
        server.route("cpu0", "gpu9")


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("sockets", {"dram_bandwidth_bytes_per_s": 0.0}, r"cpu0\.dram_bandwidth_bytes_per_s must be 1e-06 to 1e\+30"),
        ("sockets", {"half_batch": -1.0}, r"cpu0\.half_batch must be 0 to 1e\+09 rows, got -1"),
        ("accelerators", {"copy_engines": 0}, r"gpu0\.copy_engines must be 1 to 64 engines, got 0"),
        ("accelerators", {"launch_s": float("nan")}, r"gpu0\.launch_s must be 0 to 1e\+06 s, got nan"),
        ("sockets", {"core_flops_float32": 1e-300}, r"core_flops_float32 must be 1e-06 to 1e\+30 FLOP/s, got 1e-300"),
        ("sockets", {"cores": 10**400}, r"cores must be 1 to 65536 cores, got a whole number of 1329 bits"),
        ("sockets", {"idle_watts": 90.0, "busy_watts": 80.0}, r"busy_watts must be >= idle_watts \(90\), got 80"),
        ("accelerators", {"device": " "}, "device must name a torch device"),
        ("links", {"ends": ("cpu0", "cpu0")}, r"pcie0\.ends must be two different places"),
        ("links", {"latency_s": float("inf")}, r"pcie0\.latency_s must be 0 to 1e\+06 s, got inf"),
    ],
)
def test_values_out_of_range_are_refused(server: Machine, part: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(getattr(server, part)[0], **change)


def test_more_lanes_than_logical_cpus_are_refused(server: Machine) -> None:
    with pytest.raises(ValueError, match=r"cpu_lanes must be in 0\.\.64 .* got 65"):
        replace(server, cpu_lanes=65)


def test_what_no_link_reaches_is_refused_by_name(server: Machine) -> None:
    with pytest.raises(ValueError, match="accelerator gpu0 must be joined to cpu0, whose memory holds the model"):
        replace(server, links=server.links[1:])
    with pytest.raises(ValueError, match="socket cpu1 must be joined to cpu0"):
        replace(server, accelerators=server.accelerators[:4], links=server.links[:4])
    behind = replace(server.links[0], name="nvlink", ends=("gpu0", "gpu1"))
    found = replace(server, links=(server.links[0], behind, *server.links[2:]))  # through another accelerator
    assert [link.name for link, _ in found.route("cpu0", "gpu1")] == ["pcie0", "nvlink"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "b"}, "links pcie0 and b join the same two places; give one link with the rate of both"),
        ({"name": "b", "ends": ("cpu0", "gpu8")}, r"link b joins unknown nodes \['cpu0', 'gpu8'\]"),
        ({"ends": ("cpu0", "gpu1")}, "link names must be unique"),
    ],
)
def test_links_join_two_places_once(server: Machine, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(server, links=(*server.links, replace(server.links[0], **change)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"message_s": 1e300}, r"message_s must be 0 to 1e\+06 s, got 1e\+300"),
        ({"cpu_lanes": 10**400}, "got a whole number of 1329 bits"),
        ({"price_usd_per_hour": -1.0}, "price_usd_per_hour must be 0 to"),
        ({"name": "two\nlines"}, "machine names must have"),
        ({"weights_on": "moon"}, "weights_on must be one_socket or interleaved"),
    ],
)
def test_settings_out_of_range_are_refused(server: Machine, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(server, **change)


def test_noise_beyond_use_is_refused() -> None:
    with pytest.raises(ValueError, match=r"noise\.cpu_sigma must be 0 to 3 of the logarithm"):
        Noise(cpu_sigma=1e6)


def test_odd_names_are_refused(server: Machine) -> None:
    for name in ("", "a/b", " a", "two\nlines", "x" * 101):
        with pytest.raises(ValueError, match="socket names must have 1 to 100 printable"):
            replace(server, sockets=(replace(server.sockets[0], name=name), server.sockets[1]))
    with pytest.raises(ValueError, match="must not be called 'cpu'"):
        replace(server, accelerators=(replace(server.accelerators[0], name="cpu"), *server.accelerators[1:]))
    with pytest.raises(ValueError, match="none that of another's memory"):
        replace(server, accelerators=(replace(server.accelerators[0], name="cpu0:dram"), *server.accelerators[1:]))
