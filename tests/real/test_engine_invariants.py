"""Invariants 1, 2, 3, 6 and 8 on real runs of every policy, lane mode, lookahead and fleet."""

from __future__ import annotations

from typing import Any

import pytest

from hetsgd.models.policies import POLICIES
from tests.real.small_runs import Bench

pytestmark = pytest.mark.usefixtures("watchdog")

ONE = (1, ("acc0",))
TWO = (2, ("cpu:0", "cpu:1"))
KEYS: dict[str, dict[str, Any]] = {
    "hogwild": {"cpu_batch": 4, "cpu_steps": 3},
    "minibatch": {"accelerator_batch": 32},
    "synchronous": {"cpu_batch": 8, "accelerator_batch": 32},
    "hogbatch": {"accelerator_batch": 32},
    "adaptive-hogbatch": {},
    "backup-workers": {"cpu_batch": 8, "accelerator_batch": 32},
    "ringmaster": {"cpu_batch": 8, "accelerator_batch": 32},
    "easgd": {"cpu_batch": 8, "accelerator_batch": 32, "steps": 3},
}
CASES = [
    pytest.param(name, mode, lookahead, fleet, id=f"{name}-{mode}-{lookahead}-{len(fleet[1])}")
    for name, info in POLICIES.items()
    for mode in info.load().lane_modes
    for lookahead in (0, 1)
    for fleet in (ONE, TWO)
]


@pytest.mark.parametrize(("policy", "mode", "lookahead", "fleet"), CASES)
def test_rows_places_versions_and_decisions(
    bench: Bench, policy: str, mode: str, lookahead: int, fleet: tuple[int, tuple[str, ...]]
) -> None:
    lanes, accelerators = fleet
    kinds = POLICIES[policy].load().kinds
    plan = bench.plan(
        policy, lanes=lanes, accelerators=accelerators, keys=KEYS[policy], mode=mode, lookahead=lookahead
    )  # fmt: skip
    trace = bench.run(plan).trace
    assert trace.status == "done"
    assert sum(trace.totals.rows.values()) == 2 * bench.data.rows
    assert len(trace["evaluations"]) == 3
    assert trace["evaluations"]["train"][-1] < trace["evaluations"]["train"][0]
    assert set(trace.totals.cpu_s) == set(kinds)


@pytest.mark.parametrize("evaluation", ["blocking", "concurrent", "deferred"])
@pytest.mark.parametrize("policy", ["hogbatch", "synchronous"])
def test_every_way_to_evaluate(bench: Bench, policy: str, evaluation: str) -> None:
    plan = bench.plan(policy, lanes=2, keys=KEYS[policy], evaluation=evaluation)
    trace = bench.run(plan).trace
    losses = trace["evaluations"]
    assert trace.status == "done"
    assert losses["update"][0] == 0
    assert losses["update"][-1] == sum(trace.totals.updates.values())
    assert (losses["at_s"] <= trace.elapsed_s).all()
    assert (losses["test_score"] > 0.3).all()


def test_a_team_of_lanes_evaluates_where_there_is_no_accelerator(bench: Bench) -> None:
    plan = bench.plan("hogwild", lanes=2, accelerators=(), keys={"cpu_batch": 8})
    trace = bench.run(plan).trace
    assert {place for place, kind in trace.totals.busy_s if kind == "evaluate"} == {"cpu[0]", "cpu[1]"}


def test_traces_of_every_level_count_the_same_rows(bench: Bench) -> None:
    for level in ("none", "summary"):
        trace = bench.run(bench.plan("hogbatch", keys=KEYS["hogbatch"], trace=level)).trace
        assert sum(trace.totals.rows.values()) == 2 * bench.data.rows
        assert sum(trace.totals.staleness["cpu"].values()) == trace.totals.updates["cpu"]


def test_copies_and_arithmetic_are_counted(bench: Bench) -> None:
    plan = bench.plan("minibatch", keys={"accelerator_batch": 50}, evaluation="deferred")
    trace, load = bench.run(plan).trace, plan.workload
    rows, updates = 2 * bench.data.rows, 2 * bench.data.rows // 50
    assert trace.totals.bytes["acc0-copy:up"] == updates * load.model_bytes
    assert trace.totals.bytes["acc0-copy:down"] == updates * load.model_bytes + rows * load.row_bytes
    assert trace.totals.flops["accelerator"] == load.step_flops(1) * rows
    assert trace.totals.driver_busy_s["acc0"] == pytest.approx(trace.totals.busy_s["acc0", "compute"])
    assert trace.totals.memory["acc0:memory"] > load.model_bytes
