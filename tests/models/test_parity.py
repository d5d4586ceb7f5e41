"""Replaying recorded calls: identical decisions are found identical, and one that differs is found and named."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hetsgd.models.parity import Difference, first_difference
from hetsgd.models.policies import recipe
from hetsgd.models.policy import Fleet, Member, Recipe, Seat
from hetsgd.models.rehearsal import Kill, rehearse
from hetsgd.models.run import Evaluation, RunSettings, StopRule
from hetsgd.models.trace import ANSWERS, CALLS, Trace

MEMBERS = (Member(name="cpu", kind="cpu", lanes=2), *(Member(name=n, kind="accelerator") for n in ("a", "b")))
FLEET = Fleet(members=MEMBERS, rows=100, learning_rate=0.1)
BACKUP = recipe("backup-workers", cpu_batch=2, accelerator_batch=5)
EASGD = recipe("easgd", steps=2, cpu_batch=2, accelerator_batch=5)


def settings(evaluation: Evaluation = "blocking", every_s: float | None = None) -> RunSettings:
    return RunSettings(stop=StopRule(epochs=3), evaluation=evaluation, evaluate_every_s=every_s)


def record(made: Recipe, run: RunSettings, *kills: Kill) -> Trace:
    return rehearse(made, FLEET, run, np.random.default_rng(7), kills)


@pytest.mark.parametrize("made", [BACKUP, EASGD], ids=["backup-workers", "easgd"])
@pytest.mark.parametrize("evaluation", ["blocking", "concurrent", "deferred"])
@pytest.mark.parametrize("every_s", [None, 1.1])
def test_a_recorded_run_repeats(made: Recipe, evaluation: Evaluation, every_s: float | None) -> None:
    run = settings(evaluation, every_s)
    trace = record(made, run, Kill(at_s=2.0, seat=Seat("a")), Kill(at_s=3.0, seat=Seat("cpu"), lanes_left=1))
    calls = {CALLS[code] for code in trace["calls"]["call"].tolist()}
    assert {"request", "finished", "merged", "failed"} <= calls
    assert first_difference(trace, recipe=made, fleet=FLEET, run=run) is None


def difference(trace: Trace, made: Recipe = BACKUP) -> Difference:
    found = first_difference(trace, recipe=made, fleet=FLEET, run=settings())
    assert found is not None
    return found


def calls_with(trace: Trace, answer: str) -> Any:
    return np.flatnonzero(trace["calls"]["answer"] == ANSWERS.index(answer))


def test_a_different_assignment_is_found_at_its_call() -> None:
    trace = record(BACKUP, settings())
    trace["assignments"]["rate"][4] = 0.2
    found = difference(trace)
    assert found.call == trace["assignments"]["call"][4]
    assert "rate=0.2" in found.recorded
    assert "rate=0.1" in found.replayed
    assert str(found).startswith(f"call {found.call} (request ")


@pytest.mark.parametrize(("column", "value"), [("detail_text", 0), ("until_s", 99.0), ("events", 1)])
def test_a_different_wait_is_found(column: str, value: float) -> None:
    trace = record(BACKUP, settings())
    call = int(calls_with(trace, "wait")[3])
    trace["calls"][column][call] = value
    assert difference(trace).call == call


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [("merges", "rate", 9.0), ("merges", "reason_text", 0), ("merge_inputs", "weight", 9.0), ("merges", "at_read", 1)],
)
def test_a_different_merge_is_found_at_the_call_that_decided_it(table: str, column: str, value: float) -> None:
    trace = record(BACKUP, settings())
    trace[table][column][0] = value
    assert difference(trace).call == trace["merges"]["call"][0]


def test_a_different_answer_is_found() -> None:
    trace = record(BACKUP, settings())
    call = int(calls_with(trace, "assign")[5])
    trace["calls"]["answer"][call] = ANSWERS.index("wait")
    found = difference(trace)
    assert (found.call, found.recorded.split("(")[0], found.replayed.split("(")[0]) == (call, "Wait", "Assign")


def test_another_policy_differs_and_an_impossible_call_is_a_difference() -> None:
    trace = record(BACKUP, settings())
    assert difference(trace, recipe("backup-workers", cpu_batch=2, accelerator_batch=5, backups=0)) is not None
    trace["calls"]["id"][np.flatnonzero(trace["calls"]["call"] == CALLS.index("merged"))[0]] = 77
    assert "KeyError" in difference(trace).replayed


def test_statistics_of_results_are_part_of_the_replay(scripted: Callable[..., Any]) -> None:
    """A policy that decides by a reported statistic repeats only with that statistic."""
    from hetsgd.models.policy import Work

    policy = scripted(work=lambda view, worker: Work(batch=1, rate=1.0 + view.workers["cpu"].stats.get("norm", 0.0)))
    trace = record(policy, settings())
    assert len(set(trace["assignments"]["rate"].tolist())) > 3
    assert first_difference(trace, recipe=policy, fleet=FLEET, run=settings()) is None
    trace["stats"]["value"][:] = 0.5
    assert difference(trace, policy) is not None


def test_a_replay_needs_a_full_trace() -> None:
    with pytest.raises(ValueError, match="only level 'full' keeps, got level 'summary'"):
        first_difference(Trace(level="summary"), recipe=BACKUP, fleet=FLEET, run=settings())
