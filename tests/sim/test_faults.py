"""Workers and lanes that are lost on a schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hetsgd.models.invariants import check
from hetsgd.models.learner import NoLearner
from hetsgd.models.parity import first_difference
from hetsgd.models.policies import recipe
from hetsgd.models.run import StopRule
from hetsgd.models.trace import FATES, Trace
from hetsgd.sim import Injected, simulate

Make = Callable[..., Any]


def lost(trace: Trace) -> list[tuple[int, str]]:
    """Rows and reasons of what was lost."""
    part = trace["fates"][trace["fates"]["fate"] == FATES.index("lost")]
    return [(int(row["rows"]), trace.texts[row["reason_text"]]) for row in part]


def test_a_team_goes_on_without_a_lost_lane(machine: Make, plan: Make) -> None:
    of = plan(recipe("hogwild", cpu_batch=5), machine(lanes=4, accelerators=0, noise=0.2))
    trace = simulate(of, NoLearner(), faults=[Injected(at_s=1.05, worker="cpu", lane=2)])
    assert trace.status == "done"
    assert lost(trace) == [(20, "lane 2 killed, may be half applied")]
    assert trace["assignments"]["lanes"].tolist() == [4] + [3] * 7
    late = trace["updates"][trace["updates"]["at_s"] > 1.05]
    assert set(late["lane"].tolist()) == {0, 1, 3}
    assert not check(trace, rows=120)


def test_the_others_go_on_without_a_lost_accelerator(machine: Make, plan: Make) -> None:
    of = plan(recipe("hogbatch", cpu_batch=1, accelerator_batch=20), machine(message_s=0.1))
    trace = simulate(of, NoLearner(), faults=[Injected(at_s=20.0, worker="gpu0")])
    assert trace.status == "done"
    assert [rows for rows, _ in lost(trace)] == [20]
    assert trace["faults"]["at_s"].tolist() == [20.1], "the coordinator hears of it a message later"
    assert trace["spans"]["end_s"][trace["spans"]["worker_text"] == trace.texts.index("gpu0")].max() == 20.0
    assert trace.totals.rows["in_place"] == 100


def test_what_lies_in_the_queue_of_a_lost_worker_is_lost_with_it(machine: Make, plan: Make) -> None:
    of = plan(recipe("minibatch", accelerator_batch=20), machine(accelerators=2), lookahead=1)
    trace = simulate(of, NoLearner(), faults=[Injected(at_s=12.0, worker="gpu0")])
    assert [rows for rows, _ in lost(trace)] == [20, 20]
    assert trace.totals.rows["in_place"] == 80
    assert not check(trace, rows=120)


def test_an_evaluation_is_repeated_by_another_worker(machine: Make, plan: Make) -> None:
    of = plan(recipe("hogbatch", cpu_batch=5, accelerator_batch=20), machine(), evaluation="blocking")
    whole = simulate(of, NoLearner())
    at_s = whole.elapsed_s - 1.0
    trace = simulate(of, NoLearner(), faults=[Injected(at_s=at_s, worker="gpu0")])
    assert trace.status == "done"
    assert trace.elapsed_s > at_s
    assert len(trace["evaluations"]) == 1


def test_a_run_fails_when_every_worker_is_lost(machine: Make, plan: Make) -> None:
    of = plan(recipe("hogwild", cpu_batch=1), machine(lanes=3, accelerators=0), lanes="free")
    trace = simulate(of, NoLearner(), faults=[Injected(at_s=1.5, worker="cpu")])
    assert (trace.status, trace.stop_reason) == ("failed", "every worker is lost")
    assert len(trace["faults"]) == 3


@pytest.mark.parametrize("policy", ["synchronous", "backup-workers", "ringmaster", "easgd"])
@pytest.mark.parametrize("at_s", [0.0, 3.0, 7.7, 13.0])
def test_merging_policies_survive_a_lost_worker(machine: Make, plan: Make, policy: str, at_s: float) -> None:
    keys = {"accelerator_batch": 10, "cpu_batch": 2}
    on = machine(accelerators=2, socket={"core_bandwidth_bytes_per_s": 160.0}, noise=0.2, message_s=0.05)
    of = plan(recipe(policy, **keys), on, stop=StopRule(epochs=3))
    trace = simulate(of, NoLearner(), faults=[Injected(at_s=at_s, worker="gpu1")])
    assert trace.status == "done", trace.stop_reason
    assert not check(trace, rows=120)
    assert first_difference(trace, recipe=of.recipe, fleet=of.fleet(), run=of.run) is None


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"at_s": 1.0, "worker": "gpu7"}, "worker must be one of cpu, gpu0, got 'gpu7'"),
        ({"at_s": 1.0, "worker": "cpu", "lane": 2}, r"lane of cpu must be in -1\.\.1"),
        ({"at_s": float("nan"), "worker": "cpu"}, "at_s must be >= 0 and finite"),
    ],
)
def test_a_fault_on_what_is_not_there_is_refused(
    machine: Make, plan: Make, fault: dict[str, Any], message: str
) -> None:
    of = plan(recipe("hogbatch"), machine())
    with pytest.raises(ValueError, match=message):
        simulate(of, NoLearner(), faults=[Injected(**fault)])
