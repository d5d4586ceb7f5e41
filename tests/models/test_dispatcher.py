"""Who is asked, when and in which order."""

from collections.abc import Callable
from typing import Any

import pytest

from hetsgd.models.dispatcher import Dispatcher
from hetsgd.models.policy import Assign, Event, Member, Merge, Seat, View, Wait, Work

Maker = Callable[..., Any]
THREE = tuple(Member(name=name, kind="accelerator") for name in ("a", "b", "c"))
LONG = {"members": THREE, "rows": 10**6}


def start(hand: Maker, policy: Any, **run: Any) -> tuple[Any, Dispatcher]:
    drive = hand(policy, **({**LONG} | run))
    return drive, Dispatcher(drive.coordinator)


def names(orders: list[Any]) -> list[str]:
    return [str(seat) for seat, _ in orders]


def test_the_finisher_joins_the_waiting_seats_and_all_are_asked_in_seat_order(hand: Maker, scripted: Maker) -> None:
    """b finishes while a waits: a is asked before b, not the finisher first."""
    closed = [True]

    def work(view: View, worker: str) -> Work | Wait:
        return Wait(reason="closed") if closed[0] and worker == "a" else Work(batch=1, rate=0.5)

    policy = scripted(work=work)
    drive, dispatcher = start(hand, policy)
    orders = dispatcher.sweep(None, 0.0)
    assert (policy.asked, names(orders)) == (["a", "b", "c"], ["b", "c"])
    policy.asked.clear()
    closed[0] = False
    drive.finish(orders[0][1])
    dispatcher.free(Seat("b"))
    assert names(dispatcher.sweep("finished", 0.0)) == ["a", "b"]
    assert policy.asked == ["a", "b"]


def test_free_lanes_are_asked_lane_by_lane(hand: Maker, scripted: Maker) -> None:
    members = (Member(name="cpu", kind="cpu", lanes=2, free=True), Member(name="gpu", kind="accelerator"))
    _, dispatcher = start(hand, scripted(), members=members, lanes="free")
    assert names(dispatcher.sweep(None, 0.0)) == ["cpu[0]", "cpu[1]", "gpu"]


def test_seats_with_room_are_asked_again_after_one_pass(hand: Maker, scripted: Maker) -> None:
    """Lookahead 1: everybody gets one assignment before anybody gets a second."""
    _, dispatcher = start(hand, scripted(), lookahead=1)
    assert names(dispatcher.sweep(None, 0.0)) == ["a", "b", "c", "a", "b", "c"]


@pytest.mark.parametrize(
    ("on", "woken"),
    [
        ((), {"finished", "merged", "evaluated", "failed"}),
        (("merged",), {"merged", "evaluated", "failed"}),
        (("finished", "merged"), {"finished", "merged", "evaluated", "failed"}),
    ],
)
def test_a_wait_is_woken_by_the_events_it_names(
    hand: Maker, scripted: Maker, on: tuple[Event, ...], woken: set[str]
) -> None:
    policy = scripted(
        work=lambda view, worker: Wait(reason="waits", on=on) if worker == "a" else Work(batch=1, rate=0.5)
    )
    _, dispatcher = start(hand, policy)
    dispatcher.sweep(None, 0.0)
    events: tuple[Event, ...] = ("finished", "merged", "evaluated", "failed", "timer")
    for event in events:
        policy.asked.clear()
        dispatcher.sweep(event, 0.0)
        assert ("a" in policy.asked) == (event in woken), event


def test_a_request_is_no_event(hand: Maker, scripted: Maker) -> None:
    """b gets work in the same pass in which a waits: a is not asked again for it."""
    policy = scripted(work=lambda view, worker: Wait(reason="w") if worker == "a" else Work(batch=1, rate=0.5))
    _, dispatcher = start(hand, policy)
    dispatcher.sweep(None, 0.0)
    assert policy.asked.count("a") == 1


def test_timers_wake_those_whose_time_has_come(hand: Maker, scripted: Maker) -> None:
    until = {"a": 2.0, "b": 3.0, "c": 4.0}
    policy = scripted(
        work=lambda view, worker: (
            Wait(reason="naps", until_s=until[worker]) if view.now_s < until[worker] else Work(batch=1, rate=0.5)
        )
    )
    _, dispatcher = start(hand, policy)
    assert (dispatcher.sweep(None, 0.0), dispatcher.wake_s()) == ([], 2.0)
    assert names(dispatcher.sweep("timer", 2.0)) == ["a"]
    assert dispatcher.wake_s() == 3.0
    assert dispatcher.waits() == {"b": "naps", "c": "naps"}


def test_a_deadlock_names_every_seat_and_what_it_waits_for(hand: Maker, scripted: Maker) -> None:
    policy = scripted(work=lambda view, worker: Wait(reason=f"after {view.workers[worker].name}'s turn"))
    drive, dispatcher = start(hand, policy)
    assert dispatcher.sweep(None, 0.0) == []
    assert (drive.coordinator.done, drive.coordinator.status) == (True, "failed")
    assert drive.coordinator.stop_reason == (
        "deadlock: a waits: after a's turn; b waits: after b's turn; c waits: after c's turn"
    )


def test_nobody_is_stuck_while_a_merge_is_under_way(hand: Maker, scripted: Maker) -> None:
    given: list[str] = []

    def once(view: View, worker: str) -> Work | Wait:
        if given:
            return Wait(reason="for the merge", on=("merged",))
        given.append(worker)
        return Work(batch=1, rate=0.5, write="gradient")

    policy = scripted(
        work=once, result=lambda view, r: [Merge(inputs=(r.id,), rule="gradient", weights=(1.0,), rate=0.1)]
    )
    drive, dispatcher = start(hand, policy)
    ((seat, assign),) = dispatcher.sweep(None, 0.0)
    assert isinstance(assign, Assign)
    (merge,) = drive.finish(assign)
    dispatcher.free(seat)
    assert dispatcher.sweep("finished", 0.0) == []
    assert not drive.coordinator.done
    drive.land(merge)
    dispatcher.sweep("merged", 0.0)
    assert drive.coordinator.stop_reason.startswith("deadlock")


def test_waiting_for_a_timed_loss_is_no_deadlock(hand: Maker, scripted: Maker) -> None:
    """Only a wait that names the event `evaluated` may sleep until the next timed evaluation."""
    policy = scripted(work=lambda view, worker: Wait(reason="for a loss", on=("evaluated",)))
    drive, dispatcher = start(hand, policy, evaluate_every_s=1.0)
    assert dispatcher.sweep(None, 0.0) == []
    assert not drive.coordinator.done
    assert names(dispatcher.sweep("timer", 1.0)) == ["a"]  # the evaluation
    policy = scripted(work=lambda view, worker: Wait(reason="for ever"))
    drive, dispatcher = start(hand, policy, evaluate_every_s=1.0)
    dispatcher.sweep(None, 0.0)
    assert drive.coordinator.done


def test_a_lost_seat_is_not_asked(hand: Maker, scripted: Maker) -> None:
    policy = scripted(work=lambda view, worker: Wait(reason="w", until_s=9.0))
    drive, dispatcher = start(hand, policy)
    dispatcher.sweep(None, 0.0)
    drive.kill("b")
    dispatcher.lost(Seat("b"))
    dispatcher.free(Seat("b"))  # a late message about it
    policy.asked.clear()
    dispatcher.sweep("failed", 0.0)
    assert policy.asked == ["a", "c"]
