"""Children that hang or run out of memory, and children that die before the clock starts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import psutil
import pytest

from hetsgd.models.merging import MergeState
from hetsgd.models.policy import Fleet, Kind, LaneMode, Merge, Result, View, Work
from hetsgd.models.run import StopRule
from hetsgd.real.watch import Watch
from hetsgd.real.workforce import Workforce
from tests.real.mishaps import at, faults, hang, kill, once, pids, starve
from tests.real.small_runs import Bench

pytestmark = pytest.mark.usefixtures("watchdog", "impatient")

HOGBATCH = {"accelerator_batch": 32}
EASGD = {"cpu_batch": 4, "accelerator_batch": 16, "steps": 4}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second of silence is too long here: steps take microseconds."""
    monkeypatch.setattr("hetsgd.real.workforce.Watch", partial(Watch, least_s=1.0))


@pytest.mark.parametrize(
    ("policy", "keys", "lanes", "name", "mode"),
    [
        ("hogbatch", HOGBATCH, 1, "acc0", "barrier"),
        ("easgd", EASGD, 2, "cpu[0]", "barrier"),
        pytest.param("hogbatch", HOGBATCH, 2, "cpu[1]", "barrier", marks=pytest.mark.slow),
        pytest.param("hogwild", {}, 2, "cpu[1]", "free", marks=pytest.mark.slow),
    ],
)
def test_a_child_that_hangs_is_ended_and_the_others_go_on(
    bench: Bench, policy: str, keys: dict[str, Any], lanes: int, name: str, mode: str
) -> None:
    accelerators = () if policy == "hogwild" else ("acc0",)
    plan = bench.plan(
        policy, lanes=lanes, accelerators=accelerators, keys=keys, mode=mode, stop=StopRule(seconds=2.5),
        evaluate_every_s=0.5,
    )  # fmt: skip
    trace = bench.run(plan, once(hang, name)).trace
    ((_, what, _),) = faults(trace)
    assert what.startswith(f"{name} hung: no sign of it for ")
    assert trace.status == "done"
    (fault,) = trace["faults"]
    assert 1.0 < fault["at_s"] < 2.4
    assert (trace["assignments"]["asked_s"] > fault["at_s"]).any()
    assert pids(name) == []


def test_a_run_whose_only_lane_hangs_has_failed(bench: Bench) -> None:
    plan = bench.plan("hogwild", lanes=1, accelerators=(), stop=StopRule(seconds=30.0))
    trace = bench.run(plan, once(hang, "cpu[0]")).trace
    assert (trace.status, trace.stop_reason) == ("failed", "every worker is lost")
    assert trace.totals.updates["cpu"] > 0
    assert trace.elapsed_s < 10.0


def test_a_child_that_hangs_at_the_end_does_not_keep_the_run(bench: Bench) -> None:
    """Its updates count, its processor time is not known."""
    plan = bench.plan("hogbatch", lanes=1, keys=HOGBATCH, stop=StopRule(seconds=0.4))
    began = time.monotonic()
    trace = bench.run(plan, once(hang, "acc0", after_s=0.3)).trace
    assert trace.status == "done"
    assert trace["evaluations"]["update"][-1] == trace["updates"]["version"][-1]
    assert time.monotonic() - began < 20.0


def test_a_child_that_hangs_before_the_clock_is_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of the initial model is known, so its silence at the warm-up is measured against that."""
    warm = Workforce.warm

    def hung(self: Workforce, *arguments: Any) -> None:
        for pid in pids("cpu[1]"):
            hang(pid)
        warm(self, *arguments)

    monkeypatch.setattr(Workforce, "warm", hung)
    trace = bench.run(bench.plan("hogbatch", lanes=2, keys=HOGBATCH, stop=StopRule(seconds=0.4))).trace
    ((worker, what, _),) = faults(trace)
    assert worker == "cpu"
    assert what.startswith("cpu[1] hung")
    assert trace["faults"]["at_s"][0] < 0.2


@pytest.mark.parametrize("name", ["cpu[1]", "acc0"])
def test_who_dies_before_the_clock_is_a_fault_of_the_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    evaluate = Workforce.evaluate

    def killed(self: Workforce, *arguments: Any, **more: Any) -> Any:
        for pid in pids(name):
            kill(pid)
        return evaluate(self, *arguments, **more)

    monkeypatch.setattr(Workforce, "evaluate", killed)
    trace = bench.run(bench.plan("hogbatch", lanes=2, keys=HOGBATCH, stop=StopRule(seconds=0.4))).trace
    assert [what for _, what, _ in faults(trace)] == [f"{name} killed by SIGKILL"]
    assert trace.status == "done"
    lanes = set(trace["assignments"]["lanes"][trace["assignments"]["worker_text"] == trace.code("cpu")].tolist())
    assert lanes == ({1} if name == "cpu[1]" else {2})


def test_a_run_ends_with_the_process_that_starts_its_children(bench: Bench) -> None:
    """Whoever kills that kills all; what was measured comes back."""
    plan = bench.plan("hogbatch", lanes=1, keys=HOGBATCH, stop=StopRule(seconds=30.0))
    own = [child.pid for child in psutil.Process().children() if "nursery" in " ".join(child.cmdline())]
    with at(1.0, lambda _: kill(own[0]), "acc0"):
        trace = bench.run(plan).trace
    assert (trace.status, trace.stop_reason) == ("failed", "every worker is lost")
    assert len(faults(trace)) == 2
    assert len(trace["evaluations"]) > 0


@dataclass(frozen=True, kw_only=True)
class Growing:
    """Small batches for a while, then one that takes more memory."""

    kinds: ClassVar[tuple[Kind, ...]] = ("cpu", "accelerator")
    lane_modes: ClassVar[tuple[LaneMode, ...]] = ("barrier",)
    max_lookahead: ClassVar[int] = 1
    reads_losses: ClassVar[bool] = False
    grows: str = "acc0"
    after_s: float = 0.6

    def begin(self, fleet: Fleet) -> GrowingSchedule:
        return GrowingSchedule(self, fleet.learning_rate)


class GrowingSchedule:
    def __init__(self, recipe: Growing, rate: float) -> None:
        self.recipe, self.rate = recipe, rate

    def next(self, view: View, worker: str) -> Work:
        large = worker == self.recipe.grows and view.now_s > self.recipe.after_s
        return Work(batch=600 if large else 4, rate=self.rate, reason="large" if large else "small")

    def on_result(self, view: View, result: Result) -> Sequence[Merge]:
        return ()


@pytest.mark.parametrize("worker", ["acc0", "cpu"])
def test_out_of_memory_is_a_fault_of_one_worker(bench: Bench, worker: str) -> None:
    plan = bench.plan(
        Growing(grows=worker), lanes=1, workload={"hidden": (4000,)}, stop=StopRule(seconds=1.5), trace="full"
    )  # fmt: skip
    trace = bench.run(plan, once(starve, "acc0" if worker == "acc0" else "cpu[0]")).trace
    ((lost, what, _),) = faults(trace)
    assert lost == worker
    assert "memory" in what
    assert trace.status == "done"
    later = trace["assignments"][trace["assignments"]["asked_s"] > trace["faults"]["at_s"][0]]
    assert len(later) > 0
    assert trace.code(worker) not in set(later["worker_text"].tolist())


@pytest.mark.parametrize("evaluation", ["blocking", "deferred"])
def test_a_model_that_is_not_finite_ends_as_diverged_on_every_worker(bench: Bench, evaluation: str) -> None:
    plan = bench.plan(
        "hogbatch", keys=HOGBATCH, learning_rate=1e38, stop=StopRule(epochs=3), evaluation=evaluation
    )  # fmt: skip
    trained = bench.run(plan)
    assert trained.trace.status == "diverged"
    assert np.isinf(trained.trace["evaluations"]["train"][-1])
    assert len(trained.trace["updates"]) > 0


def test_a_merge_without_memory_ends_the_run_with_what_it_has(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    apply, done = MergeState.apply, [0]

    def scarce(self: MergeState, *arguments: Any, **more: Any) -> None:
        done[0] += 1
        if done[0] > 5:
            raise MemoryError("12 GiB for a scratch vector")
        apply(self, *arguments, **more)

    monkeypatch.setattr(MergeState, "apply", scarce)
    plan = bench.plan("synchronous", keys={"cpu_batch": 8, "accelerator_batch": 32}, stop=StopRule(seconds=20.0))
    trained = bench.run(plan)
    trace = trained.trace
    assert trace.status == "failed"
    assert trace.stop_reason == "no memory is left in the process that merges: 12 GiB for a scratch vector"
    assert len(trace["updates"]) == 5
    assert trace.elapsed_s < 10.0
    assert np.isfinite(trained.parameters).all()
