"""The coordinator's part of the seam, rule by rule, driven by hand."""

from collections.abc import Callable
from typing import Any

import pytest

from hetsgd.models.parity import first_difference
from hetsgd.models.policies import recipe
from hetsgd.models.policy import (
    Assign,
    Evaluate,
    Fault,
    Loss,
    Member,
    Merge,
    PolicyError,
    Result,
    Seat,
    Stop,
    View,
    Wait,
    Work,
)
from hetsgd.models.run import StopRule

Maker = Callable[..., Any]
LONG = {"rows": 10**6}
FREE = (Member(name="cpu", kind="cpu", lanes=2, free=True), Member(name="gpu", kind="accelerator"))


def gradients(view: View, worker: str) -> Work:
    return Work(batch=2, rate=0.5, write="gradient")


def at_once(view: View, result: Result) -> list[Merge]:
    return [Merge(inputs=(result.id,), rule="gradient", weights=(1.0,), rate=0.5)]


# -- reads, versions and staleness --------------------------------------------------------------------------------


def test_a_seat_may_not_read_before_all_merges_with_its_own_results_have_landed(hand: Maker, scripted: Maker) -> None:
    drive = hand(scripted(work=gradients, result=at_once), lookahead=2, **LONG)
    first, second = drive.give("gpu"), drive.give("gpu")
    (one,), (two,) = drive.finish(first), drive.finish(second)
    drive.land(one)
    assert not drive.coordinator.may_start(Seat("gpu"))
    assert drive.coordinator.may_start(Seat("cpu"))
    drive.land(two)
    assert drive.coordinator.may_start(Seat("gpu"))


def test_staleness_at_the_decision_counts_merges_that_are_still_queued(hand: Maker, scripted: Maker) -> None:
    seen: list[int] = []

    def note(view: View, result: Result) -> list[Merge]:
        seen.append(view.staleness(result))
        return at_once(view, result)

    drive = hand(scripted(work=gradients, result=note), lookahead=2, **LONG)
    assigns = [drive.give("cpu"), drive.give("gpu"), drive.give("cpu")]
    merges = [drive.finish(assign, read=0)[0] for assign in assigns]
    for merge in merges:
        drive.land(merge)
    assert seen == [0, 1, 2]
    applied = drive.trace["merge_inputs"]["staleness"].tolist()
    assert applied == seen  # what was predicted is what came


def test_versions_come_from_the_engine_and_never_fall(hand: Maker, scripted: Maker) -> None:
    drive = hand(scripted(), **LONG)
    slow = drive.give("gpu")
    drive.finish(drive.give("cpu"))  # four lanes write versions 1 to 4
    assert drive.coordinator.version == 4
    late = Result(
        id=slow.id, seat=slow.seat, rows=slow.rows, updates=1, steps=1, read=0, wrote=2, start_s=0.0, end_s=0.0,
        work=slow.work,
    )  # fmt: skip
    drive.coordinator.finished(late, 0.0)  # it wrote earlier and was heard of later
    assert drive.coordinator.version == 4


# -- lanes, rows and lookahead ------------------------------------------------------------------------------------


def test_a_team_takes_lanes_times_batch_times_steps_rows_and_a_free_lane_its_own(hand: Maker, scripted: Maker) -> None:
    policy = scripted(work=lambda view, worker: Work(batch=3, rate=0.5, steps=2))
    team = hand(policy, **LONG).give("cpu")
    assert (team.rows, team.lanes, team.pieces) == (4 * 3 * 2, 4, 8)
    lane = hand(policy, members=FREE, lanes="free", **LONG).give("cpu", 1)
    assert (lane.rows, lane.lanes, lane.seat) == (6, 1, Seat("cpu", 1))


@pytest.mark.parametrize(
    "work",
    [
        Work(batch=2, rate=0.5, write="replica"),
        Work(batch=2, rate=0.5, write="keep"),
        Work(batch=2, rate=0.5, read="own", write="gradient"),
    ],
)
def test_free_lanes_have_no_replicas(hand: Maker, scripted: Maker, work: Work) -> None:
    drive = hand(scripted(work=lambda view, worker: work), members=FREE, lanes="free", **LONG)
    with pytest.raises(PolicyError, match=r"free lanes share the worker's memory: .* need lanes='barrier'"):
        drive.ask("cpu", 0)
    assert drive.give("gpu").work == work


def test_a_lane_mode_that_the_recipe_does_not_support_is_refused(hand: Maker) -> None:
    with pytest.raises(PolicyError, match=r"run\.lanes: Synchronous supports barrier, got 'free'"):
        hand(recipe("synchronous"), members=FREE, lanes="free")


def test_the_lookahead_in_force_is_the_smaller_one(hand: Maker, scripted: Maker) -> None:
    assert hand(scripted(), lookahead=1).coordinator.capacity == 2
    assert hand(scripted(), lookahead=9).coordinator.capacity == 3
    drive = hand(scripted(), lookahead=2, **LONG)
    drive.give("gpu")
    drive.give("gpu")
    assert drive.coordinator.load(Seat("gpu")) == 2
    assert drive.coordinator.view.workers["gpu"].in_flight == 2


# -- epochs, drains and evaluation --------------------------------------------------------------------------------


def test_an_epoch_ends_with_a_cut_tail_then_drains_evaluates_and_goes_on(hand: Maker, scripted: Maker) -> None:
    policy = scripted()
    drive = hand(policy, rows=19, stop=StopRule(epochs=2))
    cpu, gpu = drive.give("cpu"), drive.give("gpu")
    tail = drive.give("cpu")
    assert [(a.start, a.stop) for a in (cpu, gpu, tail)] == [(0, 8), (8, 10), (10, 18)]
    last = drive.give("gpu")
    assert (last.start, last.stop) == (18, 19)  # cut short
    asked = len(policy.asked)
    assert drive.ask("cpu").reason.startswith("drain")
    for assign in (cpu, tail, gpu):
        drive.finish(assign)
    assert policy.drains == []
    drive.now_s = 3.0
    drive.finish(last)
    assert policy.drains == ["epoch"]
    assert drive.ask("cpu").reason.startswith("evaluation")
    assert len(policy.asked) == asked  # the policy was not asked meanwhile
    drive.now_s = 4.0
    drive.evaluate(drive.ask("gpu"), 0.7)
    assert [loss.train for loss in drive.coordinator.view.losses] == [0.7]
    assert (drive.give("cpu").epoch, drive.coordinator.view.epoch) == (1, 1)
    assert drive.trace["epochs"].tolist() == [(0, 0.0, 4.0)]  # blocking evaluation is part of the epoch


def test_the_last_epoch_is_booked_with_its_evaluation(hand: Maker, scripted: Maker) -> None:
    drive = hand(scripted(), rows=2)
    drive.now_s = 1.0
    drive.finish(drive.give("gpu"))
    drive.now_s = 3.0
    drive.evaluate(drive.ask("gpu"), 0.5)
    assert drive.coordinator.done
    assert drive.trace["epochs"].tolist() == [(0, 0.0, 3.0)]


@pytest.mark.parametrize("evaluation", ["concurrent", "deferred"])
def test_without_blocking_only_the_last_epoch_drains(hand: Maker, scripted: Maker, evaluation: str) -> None:
    drive = hand(scripted(), rows=8, stop=StopRule(epochs=2), evaluation=evaluation)
    first, second = drive.give("cpu"), drive.give("cpu")
    assert (first.epoch, second.epoch) == (0, 1)
    if evaluation == "concurrent":
        order = drive.ask("gpu")
        assert (isinstance(order, Evaluate), drive.coordinator.snapshots(0.0)) == (True, ())
        drive.evaluate(order, 0.5)
    else:
        assert [order.epoch for order in drive.coordinator.snapshots(0.0)] == [0]
        assert drive.coordinator.snapshots(0.0) == ()
    assert isinstance(drive.ask("cpu"), Wait)
    drive.finish(first)
    drive.finish(second)
    if evaluation == "concurrent":
        drive.evaluate(drive.ask("gpu"), 0.4)
    assert (drive.coordinator.done, drive.coordinator.stop_reason) == (True, "after 2 epochs")
    assert isinstance(drive.ask("cpu"), Stop)
    assert drive.trace["epochs"]["epoch"].tolist() == [0, 1]


def test_a_drain_waits_for_merges_and_lets_the_policy_close_its_round(hand: Maker, scripted: Maker) -> None:
    policy = scripted(
        work=gradients,
        drained=lambda view, why: [
            Merge(inputs=tuple(view.held), rule="gradient", weights=(1.0,) * len(view.held)) for _ in (1,) if view.held
        ],
    )
    drive = hand(policy, rows=10)
    cpu, gpu = drive.give("cpu"), drive.give("gpu")
    assert drive.finish(cpu) == []
    (merge,) = drive.finish(gpu)
    assert merge.inputs == (cpu.id, gpu.id)
    assert drive.ask("gpu").reason.startswith("drain")  # the merge has not landed
    drive.land(merge)
    assert policy.drains == ["stop", "stop"]
    assert isinstance(drive.ask("gpu"), Evaluate)


def test_only_the_first_live_accelerator_evaluates_and_another_repeats_it(hand: Maker, scripted: Maker) -> None:
    members = (Member(name="cpu", kind="cpu", lanes=2), *(Member(name=n, kind="accelerator") for n in ("a", "b")))
    drive = hand(scripted(), members=members, rows=4)
    drive.finish(drive.give("cpu"))
    assert isinstance(drive.ask("cpu"), Wait)
    assert isinstance(drive.ask("b"), Wait)
    order = drive.ask("a")
    assert isinstance(order, Evaluate)
    assert not drive.coordinator.quiet
    drive.kill("a")
    assert drive.coordinator.quiet
    assert isinstance(drive.ask("cpu"), Wait)
    assert drive.ask("b") == order
    drive.kill("b")
    assert drive.ask("cpu") == order
    drive.evaluate(order, 0.5)
    assert drive.coordinator.done


def test_the_last_loss_is_not_computed_twice(hand: Maker, scripted: Maker) -> None:
    """All of the last epoch is dropped: the model is that of the last evaluation."""
    policy = scripted(work=gradients, result=lambda view, result: [Merge(inputs=(result.id,), rule="discard")])
    drive = hand(policy, rows=8)
    drive.coordinator.begin(Loss(at_s=0.0, epoch=0, update=0, end_s=0.0, train=1.0))
    drive.finish(drive.give("cpu"))
    assert drive.coordinator.done


def test_timed_evaluations_drain_when_they_come_due(hand: Maker, scripted: Maker) -> None:
    policy = scripted()
    drive = hand(policy, evaluate_every_s=2.0, **LONG)
    busy = drive.give("cpu")
    assert drive.coordinator.next_evaluation_s() == 2.0
    drive.now_s = 2.0
    drive.coordinator.tick(drive.now_s)
    assert drive.ask("gpu").reason.startswith("drain")
    assert drive.coordinator.next_evaluation_s() is None  # nothing to wake up for while it goes on
    drive.now_s = 3.0
    drive.finish(busy)
    assert policy.drains == ["evaluate"]
    order = drive.ask("gpu")
    drive.now_s = 7.0  # longer than the period
    drive.evaluate(order, 0.5)
    assert drive.coordinator.next_evaluation_s() == 9.0
    assert isinstance(drive.ask("gpu"), Assign)  # training gets its turn before the next one


def test_a_timed_evaluation_starts_at_once_when_nothing_is_under_way(hand: Maker, scripted: Maker) -> None:
    policy = scripted(work=lambda view, worker: Wait(reason="sleeps", until_s=100.0))
    drive = hand(policy, evaluate_every_s=2.0, **LONG)
    assert isinstance(drive.ask("gpu"), Wait)
    drive.now_s = 2.0
    drive.coordinator.tick(2.0)
    assert isinstance(drive.ask("gpu"), Evaluate)


def test_timed_snapshots_are_deferred(hand: Maker, scripted: Maker) -> None:
    drive = hand(scripted(), evaluate_every_s=2.0, evaluation="deferred", **LONG)
    assert drive.coordinator.snapshots(1.9) == ()
    drive.coordinator.tick(2.5)
    assert len(drive.coordinator.snapshots(2.5)) == 1
    assert drive.coordinator.next_evaluation_s() == 4.5
    assert isinstance(drive.ask("gpu"), Assign)


# -- stops --------------------------------------------------------------------------------------------------------


def test_an_update_stop_drains_and_may_overshoot_by_what_was_in_flight(hand: Maker, scripted: Maker) -> None:
    drive = hand(scripted(), stop=StopRule(updates=4), **LONG)
    gpu = drive.give("gpu")
    drive.finish(drive.give("cpu"))
    assert isinstance(drive.ask("cpu"), Wait)
    drive.finish(gpu)
    drive.evaluate(drive.ask("gpu"), 0.5)
    assert (drive.coordinator.done, drive.coordinator.version) == (True, 5)
    assert (drive.coordinator.stop_reason, drive.coordinator.status) == ("after 4 updates", "done")


@pytest.mark.parametrize(
    ("train", "status", "reason"),
    [
        (0.3, "done", "target loss 0.3 reached"),
        (0.31, "done", ""),
        (float("nan"), "diverged", "the loss is not finite"),
    ],
)
def test_a_loss_may_end_the_run(hand: Maker, scripted: Maker, train: float, status: str, reason: str) -> None:
    drive = hand(scripted(), rows=2, stop=StopRule(epochs=9, target_loss=0.3))
    drive.finish(drive.give("gpu"))
    drive.evaluate(drive.ask("gpu"), train)
    assert (drive.coordinator.done, drive.coordinator.status) == (bool(reason), status)
    assert drive.coordinator.stop_reason == reason


def test_the_initial_loss_may_meet_the_target(hand: Maker, scripted: Maker) -> None:
    drive = hand(scripted(), stop=StopRule(epochs=9, target_loss=0.3))
    drive.coordinator.begin(Loss(at_s=0.0, epoch=0, update=0, end_s=0.0, train=0.2))
    assert isinstance(drive.ask("gpu"), Stop)


def test_a_stop_by_the_engine_books_what_is_open(hand: Maker, scripted: Maker) -> None:
    """In flight 2 rows, held 8, in a merge that has not landed 8: nothing given out is without a fate."""
    first: list[int] = []

    def once(view: View, result: Result) -> list[Merge]:
        first.append(result.id)
        return at_once(view, result) if len(first) == 1 else []

    drive = hand(scripted(work=gradients, result=once), lookahead=2, **LONG)
    drive.give("gpu")
    for _ in range(2):
        drive.finish(drive.give("cpu"))
    drive.coordinator.stop("deadline", 5.0)
    drive.coordinator.close(5.0)
    assert drive.fates() == {"in_flight": 2, "held": 16}
    assert (drive.trace.stop_reason, drive.trace.status, drive.trace.elapsed_s) == ("deadline", "done", 5.0)
    assert drive.trace["merges"]["version"].tolist() == [-1]
    assert len(drive.trace["epochs"]) == 0


# -- faults -------------------------------------------------------------------------------------------------------


def test_a_lost_worker_takes_its_queue_and_the_replicas_it_keeps(hand: Maker, scripted: Maker) -> None:
    """Of the lost accelerator: 2 queued, 2 kept; of the CPU the kept replica stays. The policy is told their ids."""
    faults: list[Fault] = []

    def note(view: View, fault: Fault) -> list[Merge]:
        faults.append(fault)
        return []

    keep = scripted(work=lambda view, worker: Work(batch=2, rate=0.5, read="own", write="keep"), fault=note)
    drive = hand(keep, lookahead=1, **LONG)
    kept, mine = drive.give("gpu"), drive.give("cpu")
    drive.finish(kept)
    drive.finish(mine)
    running = drive.give("gpu")
    drive.kill("gpu")
    assert (faults[0].lost, faults[0].lanes_left) == ((running.id, kept.id), 0)
    assert list(drive.coordinator.held) == [mine.id]
    assert drive.fates() == {"lost": 4}
    view = drive.coordinator.view
    assert (view.workers["gpu"].alive, view.workers["gpu"].in_flight, view.workers["cpu"].alive) == (False, 0, True)
    assert isinstance(drive.ask("gpu"), Stop)
    assert drive.kill("gpu") == []  # lost already
    assert len(faults) == 1


@pytest.mark.parametrize("write", ["gradient", "replica"])
def test_what_a_lost_worker_has_handed_in_survives(hand: Maker, scripted: Maker, write: Any) -> None:
    drive = hand(scripted(work=lambda view, worker: Work(batch=2, rate=0.5, write=write)), **LONG)
    done = drive.give("gpu")
    drive.finish(done)
    drive.kill("gpu")
    assert list(drive.coordinator.held) == [done.id]


def test_a_team_goes_on_with_the_lanes_it_has_left(hand: Maker, scripted: Maker) -> None:
    """What was running is lost, the replica it keeps is in the team's memory and stays."""
    drive = hand(scripted(work=lambda view, worker: Work(batch=2, rate=0.5, write="keep")), lookahead=1, **LONG)
    kept, running = drive.give("cpu"), drive.give("cpu")
    drive.finish(kept)
    drive.kill("cpu", lanes_left=3)
    assert list(drive.coordinator.held) == [kept.id]
    assert drive.fates() == {"lost": running.rows}
    again = drive.give("cpu")
    assert (again.lanes, again.rows) == (3, 6)


def test_a_lost_free_lane_is_gone_and_the_others_go_on(hand: Maker, scripted: Maker) -> None:
    drive = hand(scripted(), members=FREE, lanes="free", **LONG)
    drive.kill("cpu", 0, lanes_left=1)
    assert isinstance(drive.ask("cpu", 0), Stop)
    assert drive.give("cpu", 1).rows == 2
    tally = drive.coordinator.view.workers["cpu"]
    assert (tally.alive, tally.lanes) == (True, 1)
    drive.kill("cpu", 1)
    assert not tally.alive


def test_a_killed_in_place_lane_may_have_written_half(hand: Maker, scripted: Maker) -> None:
    drive = hand(scripted(), **LONG)
    drive.give("cpu")
    drive.kill("cpu", half_applied=True)
    texts = drive.trace.texts
    assert [texts[row["reason_text"]] for row in drive.trace["fates"]] == ["killed, may be half applied"]
    assert drive.trace["faults"]["rows"].tolist() == [8]


def test_a_drain_ends_when_the_last_worker_it_waits_for_is_lost(hand: Maker, scripted: Maker) -> None:
    drive = hand(scripted(), rows=10)
    cpu = drive.give("cpu")
    drive.give("gpu")
    drive.finish(cpu)
    drive.kill("gpu")
    assert isinstance(drive.ask("cpu"), Evaluate)


def test_without_workers_the_run_has_failed(hand: Maker, scripted: Maker) -> None:
    drive = hand(scripted(), **LONG)
    drive.kill("cpu")
    drive.kill("gpu")
    coordinator = drive.coordinator
    assert (coordinator.done, coordinator.status, coordinator.stop_reason) == (True, "failed", "every worker is lost")


# -- what it refuses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "merge", "says"),
    [
        ("in_place", {"rule": "gradient", "weights": (1.0,)}, r"results \[0\] are not held"),
        ("gradient", {"rule": "average", "weights": (1.0,)}, "rule 'average' takes replica or keep, result 0 is"),
        ("replica", {"rule": "gradient", "weights": (1.0,)}, "rule 'gradient' takes gradient, result 0 is 'replica'"),
        ("replica", {"rule": "elastic", "weights": (1.0,)}, "rule 'elastic' takes keep, result 0 is 'replica'"),
        ("replica", {"rule": "overwrite", "write_back": ("tpu",)}, "write_back names unknown workers tpu"),
    ],
)
def test_a_merge_that_its_rule_cannot_do_is_refused(
    hand: Maker, scripted: Maker, write: Any, merge: dict[str, Any], says: str
) -> None:
    policy = scripted(
        work=lambda view, worker: Work(batch=2, rate=0.5, write=write),
        result=lambda view, result: [Merge(inputs=(result.id,), **merge)],
    )
    drive = hand(policy, **LONG)
    with pytest.raises(PolicyError, match=says):
        drive.finish(drive.give("gpu"))


def test_a_merge_that_compensates_is_refused_where_the_recipe_says_that_none_does(hand: Maker, scripted: Maker) -> None:
    """An engine may have kept no model to compensate with."""
    policy = scripted(
        work=lambda view, worker: Work(batch=2, rate=0.5, write="gradient"),
        result=lambda view, result: [Merge(inputs=(result.id,), rule="gradient", weights=(1.0,), compensate=0.1)],
    )
    drive = hand(policy, **LONG)
    drive.finish(drive.give("gpu"))
    policy.compensates = False
    drive = hand(policy, **LONG)
    with pytest.raises(PolicyError, match=r"compensate must be 0 where .* compensates = False, got 0\.1"):
        drive.finish(drive.give("gpu"))


@pytest.mark.parametrize("until_s", [1.0, 0.5, float("nan"), float("inf")])
def test_a_wait_must_end_in_the_future(hand: Maker, scripted: Maker, until_s: float) -> None:
    drive = hand(scripted(work=lambda view, worker: Wait(reason="naps", until_s=until_s)), **LONG)
    drive.now_s = 1.0
    with pytest.raises(PolicyError, match=r"until_s must be finite and later than now \(1\.0\), got .* for gpu: naps"):
        drive.ask("gpu")


def test_a_wait_names_events_that_exist() -> None:
    with pytest.raises(PolicyError, match=r"on must name events .* got \['finish'\]"):
        Wait(reason="", on=("finish",))  # type: ignore[arg-type]  # what a policy without types may do


def test_results_must_be_of_what_was_given_out(hand: Maker, scripted: Maker) -> None:
    drive = hand(scripted(), **LONG)
    assign = drive.give("gpu")

    def result(**changes: Any) -> Result:
        values: dict[str, Any] = {
            "id": assign.id, "seat": assign.seat, "rows": 2, "updates": 1, "steps": 1, "read": 0, "wrote": 1,
            "start_s": 0.0, "end_s": 0.0, "work": assign.work,
        }  # fmt: skip
        return Result(**(values | changes))

    for changes, says in (
        ({"id": 7}, "no assignment 7 is in flight"),
        ({"read": 5}, "wrote version 1 but read the later 5"),
    ):
        with pytest.raises(PolicyError, match=says):
            hand_in(drive, result(**changes), assign)
    with pytest.raises(PolicyError, match="gave 2 rows to gpu, the result is of 1 rows"):
        hand_in(drive, result(rows=1), assign)
    with pytest.raises(PolicyError, match="no evaluation 3 is under way"):
        drive.evaluate(Evaluate(id=3, epoch=0, update=0), 0.5)


def hand_in(drive: Any, result: Result, assign: Assign) -> None:
    """Report a result of an assignment that is put back in flight first, should an earlier try have taken it."""
    drive.coordinator.in_flight[assign.id] = assign
    drive.coordinator.finished(result, 0.0)


def test_a_policy_that_reads_losses_refuses_deferred_evaluation(hand: Maker, scripted: Maker) -> None:
    class Reads(scripted):  # type: ignore[misc, valid-type]  # the fixture is a class
        reads_losses = True

    with pytest.raises(PolicyError, match="Reads reads losses during the run, so 'deferred' is refused"):
        hand(Reads(), evaluation="deferred")


# -- the trace ----------------------------------------------------------------------------------------------------


def test_a_merge_counts_for_the_classes_and_workers_of_its_inputs(hand: Maker) -> None:
    drive = hand(recipe("synchronous", cpu_batch=1, accelerator_batch=1), **LONG)
    cpu, gpu = drive.give("cpu"), drive.give("gpu")
    drive.finish(cpu)
    drive.land(drive.finish(gpu)[0])
    assert drive.trace.totals.updates == {"cpu": 0.5, "accelerator": 0.5}
    workers = drive.coordinator.view.workers
    assert (workers["cpu"].updates, workers["gpu"].updates) == (1, 1)
    assert drive.trace.totals.staleness["cpu"] == {0: 1}


def test_the_trace_says_at_which_call_each_decision_was_made(hand: Maker) -> None:
    drive = hand(recipe("ringmaster"), **LONG)
    cpu = drive.give("cpu")  # call 0
    gpu = drive.give("gpu")  # call 1
    (merge,) = drive.finish(cpu)  # call 2
    drive.land(merge)  # call 3
    drive.finish(gpu, read=0)  # call 4
    drive.coordinator.close(0.0)
    assert drive.trace["assignments"]["call"].tolist() == [0, 1]
    assert drive.trace["merges"]["call"].tolist() == [2, 4]
    assert first_difference(drive.trace, recipe=drive.recipe, fleet=drive.fleet, run=drive.run) is None


def test_a_run_that_stops_by_updates_ends_where_none_is_made(hand: Maker, scripted: Maker) -> None:
    drive = hand(scripted(work=gradients), rows=8, stop=StopRule(updates=3), evaluation="deferred")
    given = 0
    while not drive.coordinator.done and given < 1000:
        drive.finish(drive.give("cpu"))  # an epoch each, and no merge of it
        given += 1
    assert drive.coordinator.status == "failed"
    assert drive.coordinator.stop_reason == (
        f"no update of the model for {given} epochs of rows, and the run stops by updates alone"
    )
    moving = hand(scripted(), rows=8, stop=StopRule(updates=3000), evaluation="deferred")
    for _ in range(2 * given):
        moving.finish(moving.give("cpu"))
    assert not moving.coordinator.done


def test_a_policy_cannot_write_into_the_losses_it_reads(hand: Maker, scripted: Maker) -> None:
    view = hand(scripted(), **LONG).coordinator.view
    assert not hasattr(view.losses, "append")
    assert list(view.losses) == []
