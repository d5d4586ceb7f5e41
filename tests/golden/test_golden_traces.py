"""Short runs written out in full: a changed number here is news. `pytest tests/golden --regen` writes them anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hetsgd.models.learner import NoLearner
from hetsgd.models.policies import recipe
from hetsgd.models.policy import RULES
from hetsgd.models.run import StopRule
from hetsgd.models.trace import FATES, SPAN_KINDS, Trace
from hetsgd.sim import Injected, simulate
from tests.sim.conftest import machine_of, plan_of

FOLDER = Path(__file__).parent

SHARED = {"core_bandwidth_bytes_per_s": 160.0, "dram_bandwidth_bytes_per_s": 400.0}


def barrier_team() -> Trace:
    """Two lanes and an accelerator write in place; the lanes wait for each other."""
    on = machine_of(socket=SHARED, noise=0.1, message_s=0.01, decision_s=0.005)
    return simulate(plan_of(recipe("hogbatch", cpu_batch=5, accelerator_batch=40), on, seed=1), NoLearner())


def free_lanes_ahead() -> Trace:
    """Free lanes, and an accelerator that loads rows ahead, until a deadline; one lane is lost on the way."""
    on = machine_of(lanes=3, socket=SHARED, noise=0.1)
    of = plan_of(
        recipe("hogbatch", cpu_batch=4, accelerator_batch=20), on, lanes="free", lookahead=1, seed=2,
        stop=StopRule(seconds=20.0),
    )  # fmt: skip
    return simulate(of, NoLearner(), faults=[Injected(at_s=4.5, worker="cpu", lane=1)])


def synchronous_rounds() -> Trace:
    """Rounds of a team and two accelerators, with a blocking evaluation."""
    on = machine_of(accelerators=2, socket=SHARED, noise=0.1)
    of = plan_of(recipe("synchronous", cpu_batch=5, accelerator_batch=25), on, evaluation="blocking", seed=3)
    return simulate(of, NoLearner())


def elastic_replicas() -> Trace:
    """Kept replicas that cross the links for their merges."""
    on = machine_of(socket=SHARED, noise=0.1, message_s=0.01)
    return simulate(plan_of(recipe("easgd", steps=2, cpu_batch=5, accelerator_batch=15), on, seed=4), NoLearner())


def number(value: Any) -> str:
    """Nine digits: what every platform agrees on."""
    return f"{value:.9g}"


def lines(trace: Trace) -> list[str]:
    """A trace in words, one event a line."""
    text = trace.texts
    found = [f"status {trace.status}: {trace.stop_reason}", f"elapsed {number(trace.elapsed_s)}"]
    found += [
        f"assign {row['id']} {text[row['worker_text']]}[{row['lane']}] at {number(row['asked_s'])} "
        f"rows {row['start']}..{row['stop']} batch {row['batch']}x{row['lanes']}x{row['steps']}"
        for row in trace["assignments"]
    ]
    found += [
        f"{SPAN_KINDS[row['kind']]} {row['id']} {text[row['place_text']]} "
        f"{number(row['start_s'])}..{number(row['end_s'])} bytes {row['bytes']}"
        for row in trace["spans"]
    ]
    found += [
        f"update {row['version']} read {row['read']} at {number(row['at_s'])} of {row['id']} merge {row['merge']}"
        for row in trace["updates"]
    ]
    found += [
        f"merge {row['id']} {RULES[row['rule']]} {number(row['start_s'])}..{number(row['end_s'])} v{row['version']}"
        for row in trace["merges"]
    ]
    found += [f"fate {row['id']} {FATES[row['fate']]} rows {row['rows']}" for row in trace["fates"]]
    return found


@pytest.mark.parametrize("run", [barrier_team, free_lanes_ahead, synchronous_rounds, elastic_replicas])
def test_a_short_run_is_as_it_was(run: Any, request: pytest.FixtureRequest) -> None:
    path = FOLDER / f"{run.__name__}.txt"
    now = lines(run())
    if request.config.getoption("--regen", default=False):
        path.write_text("\n".join(now) + "\n", encoding="utf-8")
    assert now == path.read_text(encoding="utf-8").splitlines()
