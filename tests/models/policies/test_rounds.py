"""Synchronous rounds and backup workers against sequences worked out by hand."""

from collections.abc import Callable
from typing import Any

import pytest

from hetsgd.models.policies import recipe
from hetsgd.models.policy import Evaluate, Member, PolicyError, Wait

HandMaker = Callable[..., Any]
THREE = tuple(Member(name=name, kind="accelerator") for name in ("a", "b", "c"))


def test_a_round_merges_every_gradient_by_its_share_of_the_rows(hand: HandMaker) -> None:
    """4 lanes x 10 rows and 60 rows: weights 0.4 and 0.6; the next round waits until the update has landed."""
    drive = hand(recipe("synchronous", cpu_batch=10, accelerator_batch=60), momentum=0.9)
    cpu, gpu = drive.give("cpu"), drive.give("gpu")
    assert (cpu.work.write, cpu.work.steps, cpu.rows, gpu.rows) == ("gradient", 1, 40, 60)
    assert drive.finish(gpu) == []
    assert isinstance(drive.ask("gpu"), Wait)
    (merge,) = drive.finish(cpu)
    assert (merge.rule, merge.inputs, merge.weights) == ("gradient", (gpu.id, cpu.id), (0.6, 0.4))
    assert (merge.rate, merge.momentum) == (0.5, 0.9)
    assert isinstance(drive.ask("cpu"), Wait)
    assert drive.land(merge) == []
    assert drive.give("cpu").id > gpu.id


def test_class_rates_scale_the_weights(hand: HandMaker) -> None:
    drive = hand(recipe("synchronous", cpu_batch=10, accelerator_batch=60, cpu_rate=0.5, accelerator_rate=2.0))
    cpu, gpu = drive.give("cpu"), drive.give("gpu")
    drive.finish(cpu)
    (merge,) = drive.finish(gpu)
    assert merge.weights == (0.5 * 0.4, 2.0 * 0.6)


def test_the_cut_tail_closes_as_a_round_of_what_is_there(hand: HandMaker) -> None:
    """100 + 30 rows: in the last round the CPU takes 30 of its 40 rows and the accelerator gets none."""
    drive = hand(recipe("synchronous", cpu_batch=10, accelerator_batch=60), rows=130)
    cpu, gpu = drive.give("cpu"), drive.give("gpu")
    drive.finish(cpu)
    drive.land(drive.finish(gpu)[0])
    tail = drive.give("cpu")
    assert tail.rows == 30
    assert isinstance(drive.ask("gpu"), Wait)
    (merge,) = drive.finish(tail)
    assert (merge.inputs, merge.weights, merge.reason) == ((tail.id,), (1.0,), "round of 1: drain (stop)")
    drive.land(merge)
    assert isinstance(drive.ask("gpu"), Evaluate)


def test_a_round_goes_on_without_a_lost_worker(hand: HandMaker) -> None:
    """The gradient that the survivor handed in is applied at its full weight, and the next round is its own."""
    drive = hand(recipe("synchronous", cpu_batch=10, accelerator_batch=60))
    cpu = drive.give("cpu")
    drive.give("gpu")
    assert drive.finish(cpu) == []
    (merge,) = drive.kill("gpu")
    assert (merge.inputs, merge.weights) == ((cpu.id,), (1.0,))
    drive.land(merge)
    (merge,) = drive.finish(drive.give("cpu"))
    assert merge.weights == (1.0,)
    assert drive.fates() == {"lost": 60, "merged": 40}


def test_a_gradient_survives_its_worker(hand: HandMaker) -> None:
    drive = hand(recipe("synchronous", cpu_batch=10, accelerator_batch=60))
    cpu, gpu = drive.give("cpu"), drive.give("gpu")
    drive.finish(gpu)
    assert drive.kill("gpu") == []  # the CPU's gradient is still to come
    (merge,) = drive.finish(cpu)
    assert merge.inputs == (gpu.id, cpu.id)


def test_the_slowest_gradient_of_a_round_is_dropped(hand: HandMaker) -> None:
    """Three workers, one backup: two gradients close a round, the third is stale and its worker joins the next."""
    drive = hand(recipe("backup-workers", accelerator_batch=10, backups=1), members=THREE)
    a, b, c = drive.give("a"), drive.give("b"), drive.give("c")
    assert drive.finish(c) == []
    (merge,) = drive.finish(a)
    assert (merge.inputs, merge.weights) == ((c.id, a.id), (0.5, 0.5))
    (dropped,) = drive.finish(b)
    assert (dropped.rule, dropped.inputs, dropped.reason) == ("discard", (b.id,), "stale: its round is over")
    assert isinstance(drive.ask("b"), Wait)  # the model of the next round has not landed yet
    drive.land(merge)
    b2, a2 = drive.give("b"), drive.give("a")
    drive.finish(b2)
    (merge,) = drive.finish(a2)
    assert merge.inputs == (b2.id, a2.id)
    assert drive.fates() == {"merged": 20, "discarded": 10}


def test_a_late_gradient_is_of_no_round_but_its_own(hand: HandMaker) -> None:
    """A gradient that comes in two rounds late is dropped too, and the later rounds do not wait for it."""
    drive = hand(recipe("backup-workers", accelerator_batch=10, backups=1), members=THREE)
    slow = drive.give("c")
    for _ in range(2):
        a, b = drive.give("a"), drive.give("b")
        drive.finish(a)
        drive.land(drive.finish(b)[0])
    (dropped,) = drive.finish(slow)
    assert dropped.rule == "discard"


def test_after_a_death_the_backups_make_the_round(hand: HandMaker) -> None:
    """Of three workers with one backup one is lost: the two that are left fill the round; of those one more: alone."""
    drive = hand(recipe("backup-workers", accelerator_batch=10, backups=1), members=THREE)
    a, b = drive.give("a"), drive.give("b")
    assert drive.kill("c") == []
    assert drive.finish(a) == []
    (merge,) = drive.finish(b)
    assert len(merge.inputs) == 2
    drive.land(merge)
    a = drive.give("a")
    drive.give("b")
    drive.finish(a)
    (merge,) = drive.kill("b")
    assert merge.inputs == (a.id,)


def test_free_lanes_are_workers_of_their_own(hand: HandMaker) -> None:
    """3 lanes and an accelerator with 2 backups: two gradients make a round, each lane hands in one at most."""
    members = (Member(name="cpu", kind="cpu", lanes=3, free=True), Member(name="gpu", kind="accelerator"))
    drive = hand(recipe("backup-workers", cpu_batch=5, accelerator_batch=15, backups=2), members=members, lanes="free")
    lanes = [drive.give("cpu", lane) for lane in range(3)]
    drive.give("gpu")
    drive.finish(lanes[0])
    assert isinstance(drive.ask("cpu", 0), Wait)  # it has delivered; the others are busy
    (merge,) = drive.finish(lanes[2])
    assert (merge.inputs, merge.weights) == ((lanes[0].id, lanes[2].id), (0.5, 0.5))
    drive.land(merge)
    assert drive.give("cpu", 0).rows == 5
    assert drive.give("cpu", 2).rows == 5
    assert drive.finish(lanes[1])[0].rule == "discard"
    assert drive.give("cpu", 1).rows == 5


def test_a_lost_free_lane_leaves_its_round_complete(hand: HandMaker) -> None:
    """Without backups: lane 1 is lost before it delivers, so lane 0's gradient is all there is."""
    members = (Member(name="cpu", kind="cpu", lanes=2, free=True),)
    drive = hand(recipe("backup-workers", cpu_batch=5, backups=0), members=members, lanes="free")
    first = drive.give("cpu", 0)
    drive.give("cpu", 1)
    drive.finish(first)
    (merge,) = drive.kill("cpu", 1)
    drive.land(merge)
    assert drive.finish(drive.give("cpu", 0))[0].rule == "gradient"


def test_somebody_must_be_left_to_wait_for() -> None:
    from hetsgd.models.policy import Fleet

    with pytest.raises(PolicyError, match=r"policy\.backups must be less than the number of workers .* got 3 of 3"):
        recipe("backup-workers", backups=3).begin(Fleet(members=THREE, rows=10, learning_rate=0.1))
