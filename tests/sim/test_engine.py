"""What a simulated run does: stops, order of work, overlap, accounting, refusals, progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hetsgd.models.footprint import CapacityError, accelerator_bytes, host_bytes
from hetsgd.models.learner import NoLearner
from hetsgd.models.metrics import metrics
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.policy import Assign, Loss, Merge, Result, View, Wait, Work
from hetsgd.models.run import Progress, StopRule
from hetsgd.models.trace import SPAN_CODE, SpanKind, Trace
from hetsgd.models.workload import Workload
from hetsgd.sim import simulate

Make = Callable[..., Any]


class Diary:
    """A learner that writes down what it is told; losses fall with the updates."""

    name = "diary"

    def __init__(self) -> None:
        self.lines: list[str] = []

    def begin(self) -> Loss | None:
        return Loss(at_s=0.0, epoch=0, update=0, end_s=0.0, train=1.0)

    def pull(self, assign: Assign) -> None:
        self.lines.append(f"pull {assign.id}")

    def start(self, assign: Assign, lane: int, step: int) -> None:
        self.lines.append(f"start {assign.id} {lane} {step}")

    def finish(self, assign: Assign, lane: int, step: int) -> None:
        self.lines.append(f"finish {assign.id} {lane} {step}")

    def push(self, assign: Assign) -> None:
        self.lines.append(f"push {assign.id}")

    def result(self, assign: Assign) -> Mapping[str, float]:
        self.lines.append(f"result {assign.id}")
        return {"rows": float(assign.rows)}

    def merge(self, merge: Merge) -> None:
        self.lines.append(f"merge {merge.inputs}")

    def drop(self, ids: Iterable[int]) -> None:
        self.lines.append(f"drop {list(ids)}")

    def evaluate(self, *, at_s: float, epoch: int, update: int) -> Loss:
        self.lines.append(f"evaluate {update}")
        return Loss(at_s=at_s, epoch=epoch, update=update, end_s=at_s, train=1.0 / (1.0 + update))


def rows(trace: Trace, kind: SpanKind) -> list[tuple[int, float, float]]:
    """Assignment, start and end of the spans of a kind, in the order of their starts."""
    part = trace["spans"][trace["spans"]["kind"] == SPAN_CODE[kind]]
    return sorted(
        zip(part["id"].tolist(), part["start_s"].tolist(), part["end_s"].tolist(), strict=True),
        key=lambda span: span[1],
    )


# -- stops ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [7.3, 1.0 / 3.0])
def test_a_deadline_is_met_exactly_and_cuts_what_is_under_way(machine: Make, plan: Make, seconds: float) -> None:
    of: Plan = plan(recipe("hogbatch", cpu_batch=3, accelerator_batch=20), machine(), stop=StopRule(seconds=seconds))
    trace = simulate(of, NoLearner())
    assert trace.elapsed_s == seconds
    assert trace.status == "done"
    assert trace["spans"]["end_s"].max() == seconds
    assert trace["fates"]["at_s"].max() == seconds
    assert trace.totals.rows["in_flight"] > 0
    lanes = [place for place in metrics(trace).busy if place.kind == "cpu"]
    assert all(place.busy == pytest.approx(1.0) for place in lanes)


def test_a_run_stops_after_its_epochs_updates_or_target_loss(machine: Make, plan: Make) -> None:
    rule, on = recipe("hogwild", cpu_batch=10), machine(accelerators=0)
    epochs = simulate(plan(rule, on, stop=StopRule(epochs=3)), Diary())
    assert (len(epochs["epochs"]), epochs.totals.updates["cpu"]) == (3, 36)
    updates = simulate(plan(rule, on, stop=StopRule(updates=7)), Diary())
    assert updates.totals.updates["cpu"] == 8  # two lanes: what was in flight comes in
    target = plan(rule, on, evaluation="blocking", stop=StopRule(epochs=9, target_loss=0.05))
    loss = simulate(target, Diary())
    assert loss["evaluations"]["train"].tolist() == pytest.approx([1.0, 1 / 13, 1 / 25])
    assert "target loss" in loss.stop_reason


def test_the_final_model_is_evaluated_outside_the_clock(machine: Make, plan: Make) -> None:
    trace = simulate(
        plan(recipe("hogwild", cpu_batch=10), machine(accelerators=0), stop=StopRule(seconds=3.5)), Diary()
    )
    assert trace["evaluations"]["at_s"].tolist() == [0.0, 3.5]
    assert trace["evaluations"]["update"].tolist() == [0, 6]
    assert trace.elapsed_s == 3.5


# -- the order of work ---------------------------------------------------------------------------------------------


def only(rule: Any, kind: str) -> Any:
    """The same policy for workers of one kind."""
    return type("Only", (type(rule),), {"kinds": (kind,)})(work=rule.work, result=rule.result)


def test_an_accelerator_pulls_computes_its_steps_and_pushes(machine: Make, plan: Make, scripted: Make) -> None:
    rule = only(scripted(work=lambda view, worker: Work(batch=20, steps=3, rate=0.5)), "accelerator")
    diary = Diary()
    trace = simulate(plan(rule, machine()), diary)
    steps = [f"{what} 0 0 {step}" for step in range(3) for what in ("start", "finish")]
    assert diary.lines[:9] == ["pull 0", *steps, "push 0", "result 0"]
    assert trace.totals.steps == {"accelerator": 6}
    assert [len(rows(trace, kind)) for kind in ("load", "pull", "compute", "push")] == [2, 2, 2, 2]


def test_lanes_of_a_team_go_on_with_their_next_steps_and_end_together(
    machine: Make, plan: Make, scripted: Make, workload: Workload
) -> None:
    # 5 pieces for 2 lanes: the first lane has 3 steps, the second 2.
    rule = only(scripted(work=lambda view, worker: Work(batch=1, steps=3, rate=0.5)), "cpu")
    trace = simulate(plan(rule, machine(), replace(workload, rows=5)), NoLearner())
    assert trace["results"][["start_s", "end_s", "updates", "read", "wrote"]].tolist() == [(0.0, 3.0, 5, 0, 5)]
    assert rows(trace, "compute") == [(0, 0.0, 2.0), (0, 0.0, 3.0)]
    assert trace["updates"][["version", "read", "lane"]].tolist() == [
        (1, 0, 0), (2, 0, 1), (3, 1, 0), (4, 2, 1), (5, 3, 0),
    ]  # fmt: skip


def test_free_lanes_do_not_wait_for_each_other(machine: Make, plan: Make) -> None:
    rule = recipe("hogwild", cpu_batch=1)
    free, barrier = (
        simulate(plan(rule, machine(accelerators=0, lanes=8, noise=0.5), lanes=lanes), NoLearner())
        for lanes in ("free", "barrier")
    )
    assert free.elapsed_s < 0.85 * barrier.elapsed_s
    assert len(free["assignments"]) == 120


def test_a_team_copies_the_model_before_it_works_on_a_replica(
    machine: Make, plan: Make, scripted: Make, workload: Workload
) -> None:
    def merged(view: View, result: Result) -> list[Merge]:
        return [Merge(inputs=(result.id,), rule="delta", weights=(1.0,))]

    rule = only(scripted(work=lambda view, worker: Work(batch=30, rate=0.5, write="replica"), result=merged), "cpu")
    diary = Diary()
    trace = simulate(plan(rule, machine(socket={"core_bandwidth_bytes_per_s": 160.0})), diary)
    copy_s = 2 * workload.model_bytes / 160.0
    assert rows(trace, "pull")[0] == (0, 0.0, copy_s)
    assert diary.lines[:4] == ["pull 0", "start 0 0 0", "start 0 1 0", "finish 0 0 0"]
    assert trace["updates"]["version"].tolist() == [1, 2]
    # The next assignment reads the model only when its own result is in it.
    assert rows(trace, "pull")[1][1] >= trace["merges"]["end_s"][0]


def test_rows_are_loaded_ahead_but_the_model_never(machine: Make, plan: Make) -> None:
    rule, on = recipe("minibatch", accelerator_batch=20), machine(link={"pinned_bytes_per_s": 400.0})
    plain = simulate(plan(rule, on, lookahead=0), NoLearner())
    ahead = simulate(plan(rule, on, lookahead=1), NoLearner())
    assert ahead.elapsed_s < plain.elapsed_s
    computing = {id_: (start, end) for id_, start, end in rows(ahead, "compute")}
    loads = {id_: (start, end) for id_, start, end in rows(ahead, "load")}
    pushed = {id_: end for id_, _, end in rows(ahead, "push")}
    for id_ in range(1, 6):
        assert loads[id_][0] < computing[id_ - 1][1], "the rows of the next batch come before this one is done"
    overlaps = [min(load[1], busy[1]) - max(load[0], busy[0]) for load in loads.values() for busy in computing.values()]
    assert sum(overlap > 0.0 for overlap in overlaps) >= 4
    for id_, start, _ in rows(ahead, "pull"):
        assert id_ == 0 or start >= pushed[id_ - 1]
    assert set(ahead.totals.staleness["accelerator"]) == {0}


def test_two_copy_engines_load_while_another_copy_goes_up(machine: Make, plan: Make) -> None:
    rule = recipe("minibatch", accelerator_batch=20)
    one, two = (
        simulate(
            plan(rule, machine(accelerator={"copy_engines": count}, link={"latency_s": 3.0}), lookahead=1), NoLearner()
        )
        for count in (1, 2)
    )
    assert two.elapsed_s <= one.elapsed_s
    ups, downs = rows(one, "push"), rows(one, "load")
    assert not any(up[1] < down[2] and down[1] < up[2] for up in ups for down in downs)


def test_a_kept_replica_crosses_the_link_for_its_merge_and_goes_back(
    machine: Make, plan: Make, workload: Workload
) -> None:
    of = plan(recipe("easgd", steps=2, accelerator_batch=10, cpu_batch=1), machine(lanes=1))
    trace = simulate(of, Diary())
    ours = trace["assignments"]["id"][trace["assignments"]["worker_text"] == trace.texts.index("gpu0")]
    merged = int(np.isin(trace["merge_inputs"]["id"], ours).sum())
    assert merged > 0
    assert trace.totals.bytes["pcie0:up"] == merged * workload.model_bytes
    assert {kind for place, kind in trace.totals.busy_s if place == "pcie0:up"} == {"push"}


# -- accounting ----------------------------------------------------------------------------------------------------


def test_a_copy_back_counts_the_updates_that_it_overwrites(machine: Make, plan: Make) -> None:
    trace = simulate(plan(recipe("hogbatch", cpu_batch=1, accelerator_batch=20), machine()), NoLearner())
    stale = trace.totals.staleness["accelerator"]
    assert trace.totals.overwritten == sum(value * count for value, count in stale.items()) > 0


def test_memories_have_their_high_water_marks(machine: Make, plan: Make, workload: Workload) -> None:
    trace = simulate(
        plan(recipe("synchronous", accelerator_batch=20, cpu_batch=5), machine(), lookahead=0), NoLearner()
    )
    assert trace.totals.memory == {
        "cpu0:dram": host_bytes(workload) + 2 * workload.model_bytes,
        "gpu0:memory": accelerator_bytes(workload, 20),
    }


def test_processor_seconds_of_lanes_stand_ins_and_launches(machine: Make, plan: Make) -> None:
    rule = recipe("hogbatch", cpu_batch=2, accelerator_batch=20)
    card = simulate(plan(rule, machine()), NoLearner())
    busy = card.totals.busy_s
    assert card.totals.cpu_s["cpu"] == pytest.approx(busy["cpu[0]", "compute"] + busy["cpu[1]", "compute"])
    assert card.totals.cpu_s["accelerator"] == pytest.approx(busy["gpu0", "compute"])  # all of it is launches here
    assert card.totals.driver_busy_s == {"gpu0": busy["gpu0", "compute"]}
    core = simulate(plan(rule, machine(accelerator={"device": "cpu"})), NoLearner())
    spent = sum(
        seconds for (place, _), seconds in core.totals.busy_s.items() if place in ("gpu0", "pcie0:down", "pcie0:up")
    )
    assert core.totals.cpu_s["accelerator"] == pytest.approx(spent)
    assert core.places["gpu0"].cpus == 1


def test_totals_do_not_depend_on_the_level_of_the_trace(machine: Make, plan: Make) -> None:
    rule = recipe("hogbatch", cpu_batch=2, accelerator_batch=20)
    full, summary, none = (
        simulate(plan(rule, machine(), trace=level), NoLearner()).totals for level in ("full", "summary", "none")
    )
    assert full == summary == none


# -- refusals, progress, deadlock ----------------------------------------------------------------------------------


def test_a_batch_that_does_not_fit_is_refused_before_the_run(machine: Make, plan: Make) -> None:
    class Untouched(NoLearner):
        def begin(self) -> Loss | None:
            raise AssertionError("the run has begun")

    on = machine(accelerator={"memory_bytes": 1000})
    with pytest.raises(CapacityError, match=r"gpu0: a batch of 100 rows needs .* kB .* it has 1\.0 kB"):
        simulate(plan(recipe("minibatch", accelerator_batch=100), on), Untouched())
    small = machine(socket={"dram_bytes": 1000})
    with pytest.raises(CapacityError, match=r"needs? 2\.5 kB of DRAM"):
        simulate(plan(recipe("hogwild"), small), Untouched())


def test_progress_is_told_and_changes_nothing(machine: Make, plan: Make) -> None:
    of = plan(recipe("hogbatch", cpu_batch=2, accelerator_batch=20), machine(noise=0.3), stop=StopRule(epochs=20))
    told: list[Progress] = []
    watched, alone = simulate(of, Diary(), progress=told.append), simulate(of, Diary())
    assert told[-1].fraction == 1.0
    assert told[-1].examples == 20 * 120
    assert watched["updates"].tobytes() == alone["updates"].tobytes()


def test_an_interrupt_from_progress_keeps_what_was_simulated(
    machine: Make, plan: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hetsgd.sim.teller._EVERY_S", 0.0)
    of = plan(recipe("hogwild", cpu_batch=1), machine(noise=0.1, accelerators=0), stop=StopRule(seconds=1e6))
    trace = simulate(of, Diary(), progress=interrupt)
    assert trace.status == "interrupted"
    assert 0.0 < trace.elapsed_s < 1e6
    assert trace.totals.updates["cpu"] == len(trace["updates"]) > 0


def test_a_deadlock_is_reported_with_who_waits_for_what(machine: Make, plan: Make, scripted: Make) -> None:
    rule = scripted(work=lambda view, worker: Wait(reason="for the bus"))
    trace = simulate(plan(rule, machine()), NoLearner())
    assert trace.status == "failed"
    assert "cpu waits: for the bus" in trace.stop_reason
    assert "gpu0 waits: for the bus" in trace.stop_reason


def test_a_wait_with_a_time_ends_at_that_time(machine: Make, plan: Make, scripted: Make) -> None:
    def work(view: View, worker: str) -> Work | Wait:
        return Wait(reason="until five", until_s=5.0) if view.now_s < 5.0 else Work(batch=60, rate=0.5)

    trace = simulate(plan(only(scripted(work=work), "cpu"), machine()), NoLearner())
    assert trace["assignments"]["asked_s"].tolist() == [5.0]


def test_a_timed_evaluation_runs_beside_training_or_holds_it_up(machine: Make, plan: Make) -> None:
    rule = recipe("hogbatch", cpu_batch=1, accelerator_batch=20)
    for mode in ("blocking", "concurrent", "deferred"):
        on = machine(link={"pinned_bytes_per_s": 1e6})
        of = plan(rule, on, evaluation=mode, evaluate_every_s=20.0, stop=StopRule(seconds=100.0))
        trace = simulate(of, Diary())
        losses = trace["evaluations"]
        assert len(losses) >= 3, mode
        assert (losses["end_s"] == losses["at_s"]).all() == (mode == "deferred")
        evaluating = rows(trace, "evaluate")
        computing = [span for span in rows(trace, "compute") if span[2] - span[1] == pytest.approx(1.0)]
        beside = any(a[1] < b[2] and b[1] < a[2] for a in evaluating for b in computing)
        assert beside == (mode == "concurrent")
