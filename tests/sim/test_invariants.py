"""The numbered invariants of a run, on simulated runs of every policy."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hetsgd.models.invariants import check
from hetsgd.models.keys import keys_of
from hetsgd.models.learner import NoLearner
from hetsgd.models.machine import Machine
from hetsgd.models.metrics import metrics
from hetsgd.models.parity import first_difference
from hetsgd.models.plan import Plan
from hetsgd.models.policies import POLICIES, recipe
from hetsgd.models.policy import LaneMode
from hetsgd.models.run import Evaluation, Progress, StopRule
from hetsgd.models.trace import SCHEMA, SPAN_CODE, Trace
from hetsgd.models.workload import Workload
from hetsgd.sim import simulate

Make = Callable[..., Any]
MODES: list[tuple[LaneMode, int, Evaluation, int]] = [
    ("barrier", 0, "blocking", 1),
    ("barrier", 1, "concurrent", 2),
    ("free", 1, "deferred", 1),
    ("free", 0, "blocking", 2),
]


def keys(policy: str) -> dict[str, Any]:
    """Parameters under which a policy makes many small assignments."""
    known = {item.name for item in keys_of(POLICIES[policy].load())}
    wanted = {"accelerator_batch": 8, "accelerator_lower": 4, "accelerator_upper": 32, "steps": 2, "cpu_batch": 1}
    return {name: value for name, value in wanted.items() if name in known}


def hashed(trace: Trace) -> str:
    """A digest of all that a trace holds."""
    digest = hashlib.sha256("\n".join(trace.texts).encode())
    for name in SCHEMA:
        digest.update(trace[name].tobytes())
    return digest.hexdigest()


@pytest.fixture
def crowded(machine: Make) -> Callable[[int], Machine]:
    """A machine on which everything has to share and nothing is free."""

    def build(accelerators: int) -> Machine:
        socket = {"core_bandwidth_bytes_per_s": 300.0, "dram_bandwidth_bytes_per_s": 900.0}
        made: Machine = machine(
            lanes=3, accelerators=accelerators, socket=socket, noise=0.3, message_s=0.01, decision_s=0.01
        )
        return made

    return build


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("policy", POLICIES)
def test_rows_balance_spans_do_not_overlap_versions_rise_and_calls_repeat(
    plan: Make, crowded: Callable[[int], Machine], policy: str, mode: tuple[LaneMode, int, Evaluation, int]
) -> None:
    lanes, lookahead, evaluation, accelerators = mode
    rule = recipe(policy, **keys(policy))
    if lanes not in rule.lane_modes:
        pytest.skip(f"{policy} does not support {lanes} lanes")
    of: Plan = plan(
        rule, crowded(accelerators), stop=StopRule(epochs=2), lanes=lanes, lookahead=lookahead, evaluation=evaluation
    )
    trace = simulate(of, NoLearner())
    assert trace.status == "done", trace.stop_reason
    assert check(trace, rows=of.workload.rows) == []  # 1, 2, 3
    assert first_difference(trace, recipe=rule, fleet=of.fleet(), run=of.run) is None  # 6
    for place in metrics(trace, plan=of).busy:  # 2: busy and idle make up the run
        assert 0.0 <= place.busy <= 1.0 + 1e-9, place
        spans = trace["spans"][trace["spans"]["place_text"] == trace.texts.index(place.place)]
        waits = spans["kind"] == SPAN_CODE["wait"]
        worked = float((spans["end_s"] - spans["start_s"])[~waits].sum())
        assert place.busy * trace.elapsed_s == pytest.approx(worked)
    assert sum(trace.totals.rows.values()) == 2 * of.workload.rows


@pytest.mark.parametrize("policy", ["hogbatch", "backup-workers"])
def test_rows_balance_at_a_deadline(plan: Make, crowded: Callable[[int], Machine], policy: str) -> None:
    for seconds in (3.3, 17.1, 40.0):
        of = plan(recipe(policy, **keys(policy)), crowded(2), stop=StopRule(seconds=seconds))
        trace = simulate(of, NoLearner())
        assert check(trace, rows=of.workload.rows) == []
        assert trace.elapsed_s == seconds


PROGRAM = """
from tests.sim.conftest import machine_of, plan_of
from tests.sim.test_invariants import hashed
from hetsgd.models.keys import keys_of
from hetsgd.models.learner import NoLearner
from hetsgd.models.policies import recipe
from hetsgd.models.run import StopRule
from hetsgd.sim import simulate
on = machine_of(lanes=3, accelerators=2, noise=0.3, message_s=0.01)
of = plan_of(recipe("hogbatch", accelerator_batch=8, cpu_batch=1), on, stop=StopRule(epochs=4), seed=11)
print(hashed(simulate(of, NoLearner())))
"""


def test_a_run_is_a_pure_function_of_its_inputs_in_any_process() -> None:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    digests = set()
    for seed, threads in (("0", "1"), ("4242", "2")):
        env = os.environ | {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads}
        child = subprocess.run(
            [sys.executable, "-c", PROGRAM], cwd=root, env=env, capture_output=True, text=True, check=True, timeout=120
        )
        digests.add(child.stdout.strip())
    assert len(digests) == 1


def test_another_seed_is_another_run(machine: Make, plan: Make) -> None:
    rule, on = recipe("hogbatch", accelerator_batch=8, cpu_batch=1), machine(noise=0.3)
    first, again, other = (hashed(simulate(plan(rule, on, seed=seed), NoLearner())) for seed in (1, 1, 2))
    assert first == again != other


def test_policies_under_one_seed_meet_the_same_noise(machine: Make, plan: Make, workload: Workload) -> None:
    # The steps of the accelerator have the same length in the same order, whatever the CPU does beside it.
    on, more = machine(noise=0.3), replace(workload, rows=2000)

    def steps(policy: str, **given: Any) -> list[float]:
        of = plan(recipe(policy, accelerator_batch=8, **given), on, more, stop=StopRule(seconds=150.0), seed=5)
        trace = simulate(of, NoLearner())
        spans = trace["spans"]
        own = (spans["place_text"] == trace.texts.index("gpu0")) & (spans["kind"] == SPAN_CODE["compute"])
        return [float(span["end_s"] - span["start_s"]) for span in spans[own]][:10]

    assert steps("minibatch") == pytest.approx(steps("hogbatch", cpu_batch=1), rel=1e-12)


def test_no_wall_clock_enters_virtual_time(machine: Make, plan: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    of = plan(recipe("hogbatch", accelerator_batch=8, cpu_batch=1), machine(noise=0.3), stop=StopRule(epochs=3))
    usual = hashed(simulate(of, NoLearner()))
    ticks = iter(range(10**9))
    monkeypatch.setattr("hetsgd.sim.teller.time.monotonic", lambda: next(ticks) * 1e6)
    told: list[Progress] = []
    assert hashed(simulate(of, NoLearner(), progress=told.append)) == usual
    assert told
