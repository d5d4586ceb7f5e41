"""One plan, both engines: the same invariants, and the same numbers where chance and speed have no say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hetsgd.models.invariants import check
from hetsgd.models.metrics import metrics
from hetsgd.models.parity import first_difference
from hetsgd.models.plan import Plan
from hetsgd.models.policies import POLICIES
from hetsgd.models.run import StopRule
from hetsgd.models.trace import Trace
from hetsgd.real.replay import ReplayLearner
from hetsgd.sim import simulate
from tests.real.small_runs import Bench

pytestmark = pytest.mark.usefixtures("watchdog")

PLACES = {
    "cpu[0]", "cpu[1]", "cpu:0", "cpu:1", "cpu:0-copy:down", "cpu:0-copy:up", "cpu:1-copy:down", "cpu:1-copy:up",
    "merge",
}  # fmt: skip
Engine = Callable[[Bench, Plan], Trace]
KEYS: dict[str, dict[str, Any]] = {
    "hogwild": {"cpu_batch": 8},
    "minibatch": {"accelerator_batch": 32},
    "synchronous": {"cpu_batch": 8, "accelerator_batch": 32},
    "hogbatch": {"accelerator_batch": 32},
    "adaptive-hogbatch": {},
    "backup-workers": {"cpu_batch": 8, "accelerator_batch": 32},
    "ringmaster": {"cpu_batch": 8, "accelerator_batch": 32},
    "easgd": {"cpu_batch": 8, "accelerator_batch": 32, "steps": 3},
}


def simulated(bench: Bench, plan: Plan) -> Trace:
    return simulate(plan, ReplayLearner(plan, bench.data))


def real(bench: Bench, plan: Plan) -> Trace:
    return bench.run(plan).trace


ENGINES = [pytest.param(simulated, id="sim"), pytest.param(real, id="real")]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("policy", list(POLICIES))
def test_every_policy_keeps_the_invariants(bench: Bench, policy: str, engine: Engine) -> None:
    plan = bench.plan(policy, lanes=2, accelerators=("cpu:0", "cpu:1"), keys=KEYS[policy], lookahead=1)
    trace = engine(bench, plan)
    assert check(trace, rows=bench.data.rows) == []
    assert first_difference(trace, recipe=plan.recipe, fleet=plan.fleet(), run=plan.run) is None
    assert trace.status == "done"
    assert trace.stop_reason == "after 2 epochs"
    assert sum(trace.totals.rows.values()) == 2 * bench.data.rows
    found = metrics(trace, plan=plan)
    assert found.examples == 2 * bench.data.rows
    assert set(trace.places) <= PLACES


SERIAL: list[tuple[str, int, tuple[str, ...], dict[str, Any]]] = [
    ("hogwild", 1, (), {}),
    ("minibatch", 0, ("acc0",), {"lookahead": 1}),
    ("synchronous", 2, ("acc0",), {"momentum": 0.9}),
    ("synchronous", 1, ("cpu:0", "cpu:1"), {"order": "file"}),
]


@pytest.mark.parametrize(("policy", "lanes", "accelerators", "run"), SERIAL)
def test_the_loss_curves_agree_where_the_order_of_updates_is_fixed(
    bench: Bench, policy: str, lanes: int, accelerators: tuple[str, ...], run: dict[str, Any]
) -> None:
    plan = bench.plan(
        policy, lanes=lanes, accelerators=accelerators, keys=KEYS[policy], workload={"precision": "float64"}, **run
    )  # fmt: skip
    curves = [trace["evaluations"] for trace in (simulated(bench, plan), real(bench, plan))]
    for column in ("epoch", "update"):
        assert curves[0][column].tolist() == curves[1][column].tolist()
    for column in ("train", "test", "train_score", "test_score"):
        np.testing.assert_allclose(curves[1][column], curves[0][column], rtol=1e-8)


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_in_flight_at_a_deadline_are_counted(bench: Bench, engine: Engine) -> None:
    plan = bench.plan("hogbatch", lanes=2, keys=KEYS["hogbatch"], stop=StopRule(seconds=0.05))
    trace = engine(bench, replace(plan, run=replace(plan.run, evaluation="concurrent")))
    assert check(trace, rows=bench.data.rows) == []
    assert trace.status == "done"
    assert trace.stop_reason == "after 0.05 seconds"
    assert trace.totals.rows["in_place"] > 0
    given = trace["assignments"]
    assert sum(trace.totals.rows.values()) == int((given["stop"] - given["start"]).sum())
