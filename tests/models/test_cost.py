"""The cost model: roofline corners, tiers, and the published epochs of the paper's servers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hetsgd.models.cost import (
    accelerator_forward,
    accelerator_step,
    accelerator_tier,
    activation_bytes,
    chunks,
    core_share,
    lane_forward,
    lane_socket,
    lane_step,
    lanes_per_socket,
    merge_bytes,
    weights_tier,
    working_set_bytes,
    written_line_s,
)
from hetsgd.models.footprint import CapacityError, check_accelerator, check_host, host_bytes
from hetsgd.models.machine import Machine
from hetsgd.models.machine_file import load_machine
from hetsgd.models.policy import Merge, Write
from hetsgd.models.workload import Workload

NET = Workload(name="w", dataset="d", rows=10_000, test_rows=0, features=100, outputs=10, hidden=(300, 300))


WRITES: tuple[Write, ...] = ("gradient", "replica", "keep")


@pytest.fixture(scope="module")
def server() -> Machine:
    return load_machine("aws-p3.16xlarge")


def test_a_small_batch_is_bound_by_memory_and_a_large_one_by_arithmetic(server: Machine) -> None:
    socket = replace(server.sockets[0], step_overhead_s=0.0)
    small, large = (lane_step(NET, socket, batch=batch) for batch in (1, 4096))
    assert small.alone_s == pytest.approx(4 * NET.model_bytes / socket.core_bandwidth_bytes_per_s)
    efficiency = 4096 / (4096 + socket.half_batch)
    reached = socket.core_flops_float32 * socket.efficiency * efficiency
    assert large.alone_s == pytest.approx(NET.step_flops(4096) / reached)
    assert small.dram_bytes == large.dram_bytes == 4 * NET.model_bytes


def test_a_core_leaves_the_zeros_of_a_sparse_set_out(server: Machine) -> None:
    dense = Workload(
        name="w", dataset="d", rows=72_309, test_rows=0, features=20_958, outputs=2, hidden=(512,) * 4, density=0.0025,
    )  # fmt: skip
    sparse = replace(dense, sparse=True)
    first = 20_958 * 512 * 4
    one, row = (lane_step(load, server.sockets[0], batch=1) for load in (dense, sparse))
    assert one.dram_bytes - row.dram_bytes == pytest.approx(4 * 0.9975 * first)
    assert row.alone_s < one.alone_s / 5
    gradient = lane_step(sparse, server.sockets[0], batch=1, write="gradient")  # its zeros are written, not left out
    assert gradient.dram_bytes == pytest.approx(3 * dense.model_bytes - 2 * 0.9975 * first)
    large = [lane_step(load, server.sockets[0], batch=4096).alone_s for load in (dense, sparse)]
    assert large[1] < large[0] / 5
    loss = [lane_forward(load, server.sockets[0], rows=72_309).alone_s for load in (dense, sparse)]
    assert loss[1] < loss[0] / 5
    full = replace(sparse, density=0.5)  # too full to be worth it: densified
    assert not full.multiplies_sparse
    assert lane_step(full, server.sockets[0], batch=1) == one


def test_a_sparse_set_takes_the_memory_of_its_values() -> None:
    dense = Workload(
        name="w", dataset="d", rows=72_309, test_rows=0, features=20_958, outputs=2, hidden=(), density=0.0025,
    )  # fmt: skip
    sparse = replace(dense, sparse=True)
    assert host_bytes(dense) == 72_309 * (20_958 * 4 + 8) + dense.model_bytes
    assert host_bytes(sparse) == 72_309 * (419 + 8 + 8) + dense.model_bytes


def test_an_accelerator_step_is_launches_and_the_roofline(server: Machine) -> None:
    card = server.accelerators[0]
    launches_s = 9 * 3 * 10e-6
    large = accelerator_step(NET, card, batch=8192)
    efficiency = 8192 / (8192 + card.half_batch)
    reached = card.flops_float32 * card.efficiency * efficiency
    assert large.alone_s == pytest.approx(launches_s + NET.step_flops(8192) / reached)
    fast = replace(card, flops_float32=1e30)
    traffic = 6 * NET.model_bytes + activation_bytes(NET, 8192)
    assert accelerator_step(NET, fast, batch=8192).alone_s == pytest.approx(launches_s + traffic / 900e9)
    assert accelerator_step(NET, card, batch=8192).dram_bytes == 0.0


def test_a_gradient_passes_over_the_weights_once_less_than_a_fused_update(server: Machine) -> None:
    socket = server.sockets[0]
    assert lane_step(NET, socket, batch=1, write="gradient").dram_bytes == 3 * NET.model_bytes
    assert lane_step(NET, socket, batch=1, write="replica").dram_bytes == 4 * NET.model_bytes


def test_a_written_line_comes_from_any_lane_of_the_team_with_the_same_probability(server: Machine) -> None:
    assert written_line_s(replace(server, cpu_lanes=1), 0) == 0.0
    assert written_line_s(replace(server, cpu_lanes=2), 0) == pytest.approx(0.12e-6 / 2)  # the other is across the link
    within, across = 31 * 47e-9, 32 * 0.12e-6
    assert written_line_s(server, 0) == written_line_s(server, 1) == pytest.approx((within + across) / 64)
    unknown = tuple(replace(socket, line_transfer_s=0.0) for socket in server.sockets)
    assert written_line_s(replace(server, sockets=unknown), 0) == 0.0


def test_writing_in_place_waits_for_the_lines_that_others_wrote(server: Machine) -> None:
    socket, line_s = server.sockets[0], 84e-9
    alone = lane_step(NET, socket, batch=1)
    shared = lane_step(NET, socket, batch=1, line_s=line_s)
    assert shared.alone_s - alone.alone_s == pytest.approx(NET.model_bytes / 64 * line_s / 10)
    assert shared.dram_bytes == alone.dram_bytes  # it takes time, not bandwidth
    for write in WRITES:
        assert lane_step(NET, socket, batch=1, write=write, line_s=line_s) == lane_step(
            NET, socket, batch=1, write=write
        )


def test_hogwild_scales_with_its_lanes_until_the_memory_is_full(server: Machine) -> None:
    """Updates per second are lanes / step time, and never more than the DRAM's rate over the bytes of a step."""
    socket = replace(server.sockets[0], cores=64, line_transfer_s=0.0)
    step = lane_step(NET, socket, batch=1)
    limit = socket.dram_bandwidth_bytes_per_s / step.dram_bytes
    few = 2 / step.alone_s
    assert few < limit < 64 / step.alone_s
    slower = lane_step(NET, socket, batch=1, line_s=84e-9)
    assert 2 / slower.alone_s < few


def test_double_precision_takes_longer(server: Machine) -> None:
    double = replace(NET, precision="float64")
    for batch in (1, 4096):
        single = lane_step(NET, server.sockets[0], batch=batch).alone_s
        assert lane_step(double, server.sockets[0], batch=batch).alone_s > 1.8 * single


def test_hardware_threads_share_their_core(server: Machine) -> None:
    socket = replace(server.sockets[0], step_overhead_s=0.0)
    assert (core_share(socket, 16), core_share(socket, 32), core_share(socket, 24)) == (1.0, 0.5, 16 / 24)
    one, both = (lane_step(NET, socket, batch=4096, lanes=lanes).alone_s for lanes in (16, 32))
    assert both == pytest.approx(2 * one)


def test_lanes_go_round_the_sockets(server: Machine) -> None:
    assert [lane_socket(server, lane) for lane in range(4)] == [0, 1, 0, 1]
    assert lanes_per_socket(server) == (32, 32)
    assert lanes_per_socket(replace(server, cpu_lanes=3)) == (2, 1)
    uneven = replace(server, sockets=(replace(server.sockets[0], cores=1), server.sockets[1]), cpu_lanes=5)
    assert lanes_per_socket(uneven) == (2, 3)
    with pytest.raises(ValueError, match="beyond its 34 logical CPUs"):
        lane_socket(uneven, 34)


def test_the_tier_of_the_weights_decides_what_a_lane_draws_from_dram(server: Machine) -> None:
    tiny = Workload(name="t", dataset="d", rows=10, test_rows=0, features=10, outputs=2, hidden=(20,))
    known = replace(server.sockets[0], core_l3_bandwidth_bytes_per_s=20e9)
    one_socket = replace(server, sockets=(known,), cpu_lanes=4, accelerators=(), links=())
    assert weights_tier(replace(server, cpu_lanes=1), tiny) == "l2"
    assert weights_tier(one_socket, tiny) == "l3"
    assert weights_tier(replace(server, cpu_lanes=4), tiny) == "dram"  # lines written on the other socket
    wide = Workload(name="t", dataset="d", rows=10, test_rows=0, features=4000, outputs=2, hidden=(4000,))
    assert weights_tier(one_socket, wide) == "dram"
    l2, l3, dram = (lane_step(tiny, known, batch=1, tier=tier) for tier in ("l2", "l3", "dram"))
    assert l2.dram_bytes == l3.dram_bytes == 0.0 < dram.dram_bytes
    assert l2.alone_s <= l3.alone_s <= dram.alone_s


def test_a_stand_in_draws_on_the_dram_of_the_host_unless_its_l2_holds_the_model(server: Machine) -> None:
    core = replace(server.accelerators[0], device="cpu", l2_bytes=1000)
    assert accelerator_step(NET, core, batch=8).dram_bytes == 4 * NET.model_bytes
    roomy = replace(core, l2_bytes=1 << 30)
    assert accelerator_step(NET, roomy, batch=8).dram_bytes == 0.0


def test_an_evaluation_is_a_forward_pass_in_chunks(server: Machine) -> None:
    assert chunks(10_000) == 3
    card, socket = server.accelerators[0], server.sockets[0]
    fast = replace(card, flops_float32=1e30, memory_bandwidth_bytes_per_s=1e30)
    assert accelerator_forward(NET, fast, rows=10_000).alone_s == pytest.approx(3 * 9 * 3 * 10e-6 / 3)
    lane = lane_forward(NET, socket, rows=10_000)
    assert lane.dram_bytes == 3 * NET.model_bytes + 10_000 * NET.row_bytes


@pytest.mark.parametrize(
    ("merge", "passes"),
    [
        (Merge(inputs=(1,), rule="overwrite"), 2),
        (Merge(inputs=(1, 2), rule="gradient", weights=(0.5, 0.5)), 4),
        (Merge(inputs=(1, 2), rule="gradient", weights=(0.5, 0.5), momentum=0.9, compensate=0.1), 8),
        (Merge(inputs=(1, 2, 3), rule="delta", weights=(1.0, 1.0, 1.0)), 8),
        (Merge(inputs=(1,), rule="elastic", weights=(1.0,)), 4),
        (Merge(inputs=(1,), rule="discard"), 0),
    ],
)
def test_a_merge_passes_over_each_operand(merge: Merge, passes: int) -> None:
    assert merge_bytes(merge, 1000) == 1000 * passes


def test_what_does_not_fit_is_refused_with_both_sizes(server: Machine) -> None:
    card = replace(server.accelerators[0], memory_bytes=10_000_000)
    assert check_accelerator(card, NET, 1000) <= card.memory_bytes
    with pytest.raises(CapacityError, match=r"a batch of 2000 rows needs 1\d\.\d MB .* it has 10\.0 MB"):
        check_accelerator(card, NET, 2000)
    socket = replace(server.sockets[0], dram_bytes=host_bytes(NET) - 1)
    small = replace(server, sockets=(socket,), cpu_lanes=1, accelerators=(), links=())
    with pytest.raises(CapacityError, match="the data of workload w and its model need"):
        check_host(small, NET)


def test_at_the_corner_of_the_roofline_both_take_the_same_time_and_beside_it_one_counts_alone(server: Machine) -> None:
    socket = replace(server.sockets[0], step_overhead_s=0.0, half_batch=0.0, efficiency=1.0)
    card = replace(server.accelerators[0], launch_s=0.0, half_batch=0.0, efficiency=1.0)
    memory_s = 4 * NET.model_bytes / socket.core_bandwidth_bytes_per_s
    corner = replace(socket, core_flops_float32=NET.step_flops(8) / memory_s)
    at = lane_step(NET, corner, batch=8).alone_s
    assert at == pytest.approx(memory_s)
    assert lane_step(NET, replace(corner, core_flops_float32=2 * corner.core_flops_float32), batch=8).alone_s == at
    faster = replace(corner, core_bandwidth_bytes_per_s=2 * corner.core_bandwidth_bytes_per_s)
    assert lane_step(NET, faster, batch=8).alone_s == pytest.approx(at)
    slower = replace(corner, core_bandwidth_bytes_per_s=corner.core_bandwidth_bytes_per_s / 2)
    assert lane_step(NET, slower, batch=8).alone_s == pytest.approx(2 * at)
    traffic = 6 * NET.model_bytes + activation_bytes(NET, 64)
    rates = {"memory_bandwidth_bytes_per_s": traffic, "flops_float32": NET.step_flops(64)}
    for factors, seconds in (((1, 1), 1.0), ((2, 1), 1.0), ((1, 2), 1.0), ((0.5, 1), 2.0), ((1, 0.5), 2.0)):
        changed: dict[str, Any] = {
            key: rate * factor for (key, rate), factor in zip(rates.items(), factors, strict=True)
        }
        assert accelerator_step(NET, replace(card, **changed), batch=64).alone_s == pytest.approx(seconds)


def test_a_step_that_fits_the_l2_of_an_accelerator_is_served_from_it(server: Machine) -> None:
    card = replace(server.accelerators[0], launch_s=0.0, flops_float32=1e30, l2_bandwidth_bytes_per_s=9e12)
    fits = int(working_set_bytes(NET, 64))
    traffic = 6 * NET.model_bytes + activation_bytes(NET, 64)
    for l2_bytes, rate in ((fits, 9e12), (fits - 1, 900e9)):
        step = accelerator_step(NET, replace(card, l2_bytes=l2_bytes), batch=64)
        assert step.alone_s == pytest.approx(traffic / rate)
    assert accelerator_tier(NET, replace(card, l2_bytes=fits, l2_bandwidth_bytes_per_s=0.0), 64) == "dram"


def test_written_lines_cost_nothing_alone_and_approach_the_latency_with_many_lanes(server: Machine) -> None:
    one_socket = replace(server, sockets=server.sockets[:1], accelerators=(), links=(), cpu_lanes=1)
    latencies = [written_line_s(replace(one_socket, cpu_lanes=lanes), 0) for lanes in (1, 2, 8, 32)]
    assert latencies == pytest.approx([0.0, 47e-9 / 2, 47e-9 * 7 / 8, 47e-9 * 31 / 32])
