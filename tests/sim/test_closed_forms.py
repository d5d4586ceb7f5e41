"""Simulated times against formulas: what a run takes follows from the machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hetsgd.models.cost import accelerator_forward, accelerator_step, lane_step, merge_bytes, transfer_s
from hetsgd.models.learner import NoLearner
from hetsgd.models.machine import Machine
from hetsgd.models.metrics import metrics
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.policy import Merge
from hetsgd.models.run import StopRule
from hetsgd.models.trace import SPAN_CODE, SpanKind, Trace
from hetsgd.models.workload import Workload
from hetsgd.sim import simulate

Make = Callable[..., Any]


def spans(trace: Trace, kind: SpanKind, place: str | None = None) -> list[tuple[float, float]]:
    """Start and end of the spans of a kind (on a place), in the order of their starts."""
    rows = trace["spans"][trace["spans"]["kind"] == SPAN_CODE[kind]]
    if place is not None:
        rows = rows[rows["place_text"] == trace.texts.index(place)]
    return sorted(zip(rows["start_s"].tolist(), rows["end_s"].tolist(), strict=True))


def test_an_epoch_of_one_accelerator(machine: Make, plan: Make, workload: Workload) -> None:
    on: Machine = machine(message_s=0.25, decision_s=0.125)
    of: Plan = plan(recipe("minibatch", accelerator_batch=30), on)
    trace = simulate(of, NoLearner())
    load_s = transfer_s(on.links[0], 30 * workload.row_bytes, pinned=True)
    copy_s = transfer_s(on.links[0], workload.model_bytes, pinned=True)
    compute_s = accelerator_step(workload, on.accelerators[0], batch=30).alone_s
    cycle_s = 0.125 + 0.25 + load_s + copy_s + compute_s + copy_s + 0.25
    assert compute_s == pytest.approx(2.0 * 2 * 1.0)  # kernels per layer x layers x launch
    assert trace.elapsed_s == pytest.approx(4 * cycle_s)
    assert trace.totals.updates == {"accelerator": 4}
    assert trace.totals.bytes == {
        "pcie0:down": 120 * workload.row_bytes + 4 * workload.model_bytes, "pcie0:up": 4 * workload.model_bytes,
    }  # fmt: skip


def test_a_blocking_evaluation_adds_copies_and_a_forward_pass(machine: Make, plan: Make, workload: Workload) -> None:
    on: Machine = machine()
    rule = recipe("minibatch", accelerator_batch=30)
    without = simulate(plan(rule, on), NoLearner()).elapsed_s
    trace = simulate(plan(rule, on, evaluation="blocking"), NoLearner())
    link, card = on.links[0], on.accelerators[0]
    copy_s = transfer_s(link, workload.model_bytes, pinned=True)
    rows_s = transfer_s(link, 120 * workload.row_bytes, pinned=True)
    forward_s = accelerator_forward(workload, card, rows=120).alone_s
    assert trace.elapsed_s == pytest.approx(without + copy_s + rows_s + forward_s)
    assert trace["epochs"]["end_s"][-1] == trace.elapsed_s


@pytest.mark.parametrize(("lanes", "seconds"), [(1, 2.0), (4, 2.0), (5, 2.5), (16, 8.0)])
def test_lanes_share_the_bandwidth_of_the_dram(
    machine: Make, plan: Make, workload: Workload, lanes: int, seconds: float
) -> None:
    # A step moves 4 x 80 bytes; one lane draws at most 160 bytes/s, all together 640.
    socket = {"core_bandwidth_bytes_per_s": 160.0, "dram_bandwidth_bytes_per_s": 640.0, "step_overhead_s": 0.0}
    on = machine(lanes=lanes, accelerators=0, socket=socket)
    trace = simulate(plan(recipe("hogwild", cpu_batch=1), on, replace(workload, rows=10 * lanes)), NoLearner())
    assert trace.elapsed_s == pytest.approx(10 * seconds)
    assert metrics(trace).utilization["cpu"] == pytest.approx(1.0)


def test_a_copy_gets_the_share_of_one_lane(machine: Make, plan: Make, workload: Workload) -> None:
    socket = {"core_bandwidth_bytes_per_s": 1e9, "dram_bandwidth_bytes_per_s": 40.0, "step_overhead_s": 0.0}
    on = machine(lanes=3, socket=socket, link={"latency_s": 0.0})
    work = recipe("hogbatch", cpu_batch=1, cpu_steps=40, accelerator_batch=10)
    trace = simulate(plan(work, on, replace(workload, rows=10_000), stop=StopRule(seconds=60.0)), NoLearner())
    start, end = spans(trace, "pull", "pcie0:down")[0]
    # Alone it would take 80 / 40 s; beside three lanes it has a quarter of the DRAM.
    assert end - start == pytest.approx(80 / (40.0 / 4))


def test_two_accelerators_on_one_link_share_it(machine: Make, plan: Make, workload: Workload) -> None:
    apart = machine(lanes=0, accelerators=2, link={"latency_s": 0.0})
    switch = replace(apart.sockets[0], name="switch")
    trunk = replace(apart.links[0], name="trunk", ends=("cpu0", "switch"))
    leaves = tuple(replace(link, ends=("switch", link.ends[1])) for link in apart.links)
    shared = replace(apart, sockets=(*apart.sockets, switch), links=(trunk, *leaves))
    of: Plan = plan(recipe("minibatch", accelerator_batch=60), apart)
    alone, together = simulate(of, NoLearner()), simulate(replace(of, machine=shared), NoLearner())
    copy_s = (60 * workload.row_bytes + 2 * workload.model_bytes) / 40.0
    assert together.elapsed_s - alone.elapsed_s == pytest.approx(copy_s)
    # Each transfer has a slot of its own on the trunk, so that no two spans of a place overlap.
    assert {"trunk:down", "trunk:down[1]"} <= set(together.places)


def test_pageable_memory_halves_the_rate(machine: Make, plan: Make, workload: Workload) -> None:
    pinned, pageable = (machine(lanes=0, pinned=value, link={"latency_s": 0.0}) for value in (True, False))
    rule = recipe("minibatch", accelerator_batch=120)
    times = [simulate(plan(rule, on), NoLearner()).elapsed_s for on in (pinned, pageable)]
    copies_s = (120 * workload.row_bytes + 2 * workload.model_bytes) / 40.0
    assert times[1] - times[0] == pytest.approx(copies_s)


def test_merges_take_their_bytes_over_one_threads_bandwidth(machine: Make, plan: Make, workload: Workload) -> None:
    on = machine(lanes=2, socket={"core_bandwidth_bytes_per_s": 160.0})
    trace = simulate(plan(recipe("synchronous", accelerator_batch=40, cpu_batch=10), on), NoLearner())
    merge = Merge(inputs=(0, 1), rule="gradient", weights=(0.5, 0.5))
    for start, end in spans(trace, "merge"):
        assert end - start == pytest.approx(merge_bytes(merge, workload.model_bytes) / 160.0)


def test_a_core_draws_no_more_than_its_own_rate(machine: Make, workload: Workload) -> None:
    socket = machine(socket={"core_bandwidth_bytes_per_s": 160.0, "step_overhead_s": 0.0}).sockets[0]
    load = lane_step(workload, socket, batch=1)
    assert load.dram_bytes / load.alone_s == pytest.approx(160.0)


def staleness(trace: Trace, kind: str) -> float:
    """Mean staleness of a class without the first and last tenth of the run."""
    updates = trace["updates"]
    names = np.array(trace.texts, dtype=object)[updates["worker_text"]]
    inner = (updates["at_s"] > 0.1 * trace.elapsed_s) & (updates["at_s"] < 0.9 * trace.elapsed_s)
    part = updates[inner & (names == ("cpu" if kind == "cpu" else "gpu0"))]
    return float((part["version"] - 1 - part["read"]).mean())


@pytest.mark.parametrize("lanes", ["free", "barrier"])
def test_mean_staleness_of_lanes_and_an_accelerator(machine: Make, plan: Make, workload: Workload, lanes: str) -> None:
    # N = 16 lanes with steps of T_c = 1 s and one accelerator with a round trip of T_g = 10 s:
    # free lanes N - 1 + T_c / T_g, lanes with a barrier (N - 1) / 2 + T_c / T_g, the accelerator N T_g / T_c.
    on = machine(
        lanes=16, accelerator={"launch_s": 10.0 / 4.0},
        link={"latency_s": 0.0, "pinned_bytes_per_s": 1e12, "pageable_bytes_per_s": 1e12}, noise=0.02,
    )  # fmt: skip
    rule = recipe("hogbatch", cpu_batch=1, accelerator_batch=16)
    of = plan(rule, on, replace(workload, rows=10**6), stop=StopRule(seconds=1000.0), lanes=lanes)
    trace = simulate(of, NoLearner())
    expected = 15.1 if lanes == "free" else 7.6
    assert staleness(trace, "cpu") == pytest.approx(expected, rel=0.02)
    assert staleness(trace, "accelerator") == pytest.approx(160.0, rel=0.04)


def test_useful_flops_are_those_of_the_rows(machine: Make, plan: Make, workload: Workload) -> None:
    trace = simulate(plan(recipe("hogbatch", cpu_batch=2, accelerator_batch=16), machine()), NoLearner())
    total = sum(trace.totals.flops.values())
    assert total == pytest.approx(workload.step_flops(1) * 120)
