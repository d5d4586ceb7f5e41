"""Children that die, devices that are not there, losses that are not finite: the run says so and goes on or ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import psutil
import pytest

from hetsgd.models.plan import ProgressSink
from hetsgd.models.run import Progress, StopRule
from hetsgd.models.trace import Trace
from hetsgd.real import train
from hetsgd.real.workforce import ChildLost
from tests.real.small_runs import Bench

pytestmark = pytest.mark.usefixtures("watchdog")

HOGBATCH = {"accelerator_batch": 32}


def kill_once(name: str, after_s: float = 0.15) -> ProgressSink:
    """Kills the child that process lists call by this name, once the run is under way."""
    killed: list[int] = []

    def sink(progress: Progress) -> None:
        if progress.now_s < after_s or killed:
            return
        for child in psutil.Process().children(recursive=True):
            if child.name() == f"hetsgd {name}":
                killed.append(child.pid)
                os.kill(child.pid, signal.SIGKILL)

    return sink


def faults(trace: Trace) -> list[tuple[str, str, int]]:
    return [
        (trace.texts[row["worker_text"]], trace.texts[row["kind_text"]], int(row["lane"])) for row in trace["faults"]
    ]


@pytest.mark.parametrize(
    ("policy", "keys", "lookahead"),
    [
        ("hogbatch", HOGBATCH, 1),
        ("synchronous", {"cpu_batch": 8, "accelerator_batch": 32}, 0),
        ("easgd", {"cpu_batch": 4, "accelerator_batch": 16, "steps": 4}, 1),
    ],
)
def test_a_team_goes_on_without_a_killed_lane(bench: Bench, policy: str, keys: dict[str, int], lookahead: int) -> None:
    plan = bench.plan(policy, lanes=2, keys=keys, lookahead=lookahead, stop=StopRule(seconds=0.6))
    trace = bench.run(plan, kill_once("cpu[1]")).trace
    (fault,) = trace["faults"]
    assert faults(trace) == [("cpu", "cpu[1] killed by SIGKILL", -1)]
    assert trace.status == "done"
    later = trace["assignments"][trace["assignments"]["asked_s"] > fault["at_s"]]
    team = later[later["worker_text"] == trace.texts.index("cpu")]
    assert len(team) > 0
    assert set(team["lanes"].tolist()) == {1}
    if policy == "hogbatch":
        lost = [trace.texts[row["reason_text"]] for row in trace["fates"] if row["fate"] == 3]
        assert all("half applied" in reason for reason in lost)


def test_other_free_lanes_go_on(bench: Bench) -> None:
    plan = bench.plan("hogwild", lanes=2, accelerators=(), mode="free", stop=StopRule(seconds=0.5))
    trace = bench.run(plan, kill_once("cpu[0]")).trace
    assert faults(trace) == [("cpu", "cpu[0] killed by SIGKILL", 0)]
    later = trace["assignments"][trace["assignments"]["asked_s"] > trace["faults"]["at_s"][0]]
    assert set(later["lane"].tolist()) == {1}


def test_the_lanes_go_on_without_a_killed_accelerator(bench: Bench) -> None:
    """They also take over the losses, which the accelerator computed."""
    plan = bench.plan("hogbatch", lanes=1, keys=HOGBATCH, stop=StopRule(seconds=0.8))
    trace = bench.run(plan, kill_once("acc0")).trace
    assert faults(trace) == [("acc0", "acc0 killed by SIGKILL", -1)]
    assert trace["evaluations"]["at_s"].max() > trace["faults"]["at_s"][0]
    assert trace.totals.busy_s["cpu[0]", "evaluate"] > 0.0


def test_a_run_without_anybody_left_has_failed(bench: Bench) -> None:
    plan = bench.plan("hogwild", lanes=1, accelerators=(), stop=StopRule(seconds=20.0))
    trained = bench.run(plan, kill_once("cpu[0]"))
    assert (trained.trace.status, trained.trace.stop_reason) == ("failed", "every worker is lost")
    assert trained.trace.totals.updates["cpu"] > 0
    assert trained.trace.elapsed_s < 10.0


def test_a_device_that_is_not_there_is_named_before_anything_runs(bench: Bench) -> None:
    plan = bench.plan("minibatch")
    (accelerator,) = plan.machine.accelerators
    machine = replace(plan.machine, accelerators=(replace(accelerator, device="hpu:7"),))
    with pytest.raises(ChildLost, match=r"train: acc0: .*(?i:hpu)"):
        train(replace(plan, machine=machine), bench.data)


def test_a_run_whose_loss_is_not_finite_has_diverged(bench: Bench) -> None:
    plan = bench.plan("hogwild", accelerators=(), learning_rate=1e38, stop=StopRule(epochs=5))
    trace = bench.run(plan).trace
    assert trace.status == "diverged"
    assert np.isinf(trace["evaluations"]["train"][-1])


def test_data_that_do_not_fit_the_workload_are_refused(bench: Bench) -> None:
    plan = bench.plan("hogwild", accelerators=())
    wrong = replace(plan, workload=replace(plan.workload, features=11))
    with pytest.raises(ValueError, match=r"workload\.features must be that of the data set d, 10, got 11"):
        train(wrong, bench.data)


def test_an_error_in_the_callers_own_code_ends_all_children(bench: Bench) -> None:
    def sink(progress: Progress) -> None:
        raise LookupError("no such window")

    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with pytest.raises(LookupError, match="no such window"):
        train(bench.plan("hogbatch", keys=HOGBATCH, stop=StopRule(seconds=5.0)), bench.data, progress=sink)
    left = {child.pid for child in psutil.Process().children(recursive=True)}
    assert left == before


Check = Callable[[Trace], bool]


@pytest.mark.parametrize(
    ("stop", "reason", "held"),
    [
        (StopRule(seconds=0.3), "after 0.3 seconds", lambda trace: 0.3 <= trace.elapsed_s < 3.0),
        (StopRule(updates=50), "after 50 updates", lambda trace: 50 <= len(trace["updates"]) < 70),
        (StopRule(epochs=1), "after 1 epoch", lambda trace: len(trace["epochs"]) == 1),
        (
            StopRule(epochs=500, target_loss=0.6),
            "target loss 0.6 reached",
            lambda trace: trace["evaluations"]["train"][-1] <= 0.6 < trace["evaluations"]["train"][-2],
        ),
    ],
)
def test_stop_rules(bench: Bench, stop: StopRule, reason: str, held: Check) -> None:
    trace = bench.run(bench.plan("hogbatch", keys=HOGBATCH, stop=stop)).trace
    assert (trace.status, trace.stop_reason) == ("done", reason)
    assert held(trace)


def test_progress_is_told_and_ends_at_the_end(bench: Bench) -> None:
    told: list[Progress] = []
    plan = bench.plan("hogwild", accelerators=(), stop=StopRule(seconds=0.5))
    bench.run(plan, told.append)
    assert len(told) >= 3
    assert [p.fraction for p in told] == sorted(p.fraction for p in told)
    assert told[-1].fraction == 1.0
    assert told[-1].loss is not None


def test_timed_evaluations_come_about_as_often_as_asked(bench: Bench) -> None:
    plan = bench.plan("hogbatch", keys=HOGBATCH, stop=StopRule(seconds=0.6), evaluate_every_s=0.1)
    at_s = bench.run(plan).trace["evaluations"]["at_s"]
    assert 4 <= len(at_s) <= 8
    assert (np.diff(at_s[:-1]) >= 0.1).all()
