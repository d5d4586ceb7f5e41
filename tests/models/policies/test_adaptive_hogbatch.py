"""Adaptive Hogbatch against sequences worked out by hand from its rule."""

from collections.abc import Callable
from typing import Any

import pytest

from hetsgd.models.policies import recipe
from hetsgd.models.policy import Member, PolicyError, Seat
from hetsgd.models.run import StopRule

HandMaker = Callable[..., Any]
MANY = {"rows": 10**6, "stop": StopRule(epochs=3)}


def adaptive(**keys: Any) -> Any:
    chosen = {
        "accelerator_batch": 64,
        "accelerator_lower": 16,
        "accelerator_upper": 128,
        "cpu_batch": 2,
        "cpu_upper": 8,
    }
    return recipe("adaptive-hogbatch", **(chosen | keys))


def test_batches_follow_the_counts_step_by_step(hand: HandMaker) -> None:
    """T = 4 lanes, beta 1/2: a CPU assignment counts 2, an accelerator batch 1. Thresholds hold, ties keep."""
    drive = hand(adaptive(beta=0.5), **MANY)
    cpu, gpu = drive.give("cpu"), drive.give("gpu")
    assert (cpu.work.batch, gpu.work.batch) == (2, 64)  # 0 and 0: a tie
    assert (cpu.rows, gpu.rows) == (8, 64)  # a team takes T x batch
    drive.finish(cpu)  # u: cpu 2, gpu 0
    cpu = drive.give("cpu")
    assert (cpu.work.batch, cpu.work.reason) == (4, "u 2 above every other (0): 2 -> 4")
    drive.finish(gpu)  # cpu 2, gpu 1
    gpu = drive.give("gpu")
    assert (gpu.work.batch, gpu.work.reason) == (32, "u 1 below every other (2): 64 -> 32")
    drive.finish(gpu)  # 2 and 2: a tie
    gpu = drive.give("gpu")
    assert (gpu.work.batch, gpu.work.reason) == (32, "neither below nor above every other")
    drive.finish(cpu)  # 4 and 2
    cpu = drive.give("cpu")
    assert cpu.work.batch == 8
    drive.finish(cpu)  # 6 and 2
    cpu = drive.give("cpu")
    assert (cpu.work.batch, cpu.work.reason) == (8, "above every other, at the upper threshold")
    drive.finish(gpu)  # 6 and 3
    gpu = drive.give("gpu")
    assert gpu.work.batch == 16
    drive.finish(gpu)  # 6 and 4
    gpu = drive.give("gpu")
    assert (gpu.work.batch, gpu.work.reason) == (16, "below every other, at the lower threshold")
    for _ in range(3):
        drive.finish(gpu)  # 6 and 5, 6, 7
        gpu = drive.give("gpu")
    assert (gpu.work.batch, gpu.work.reason) == (32, "u 7 above every other (6): 16 -> 32")
    drive.finish(cpu)  # 8 and 7
    drive.finish(gpu)  # 8 and 8
    assert drive.give("cpu").work.batch == 8


def test_only_the_extremes_change_among_three(hand: HandMaker) -> None:
    members = (
        Member(name="cpu", kind="cpu"),
        Member(name="a", kind="accelerator"),
        Member(name="b", kind="accelerator"),
    )
    drive = hand(adaptive(), members=members, **MANY)
    work = {name: drive.give(name) for name in ("cpu", "a", "b")}
    drive.finish(work["a"])
    drive.finish(drive.give("a"))
    drive.finish(work["b"])  # cpu 0, a 2, b 1
    assert drive.give("b").work.batch == 64
    drive.finish(work["cpu"])  # cpu 1 ties with b: not below every other
    assert drive.give("cpu").work.reason == "neither below nor above every other"


def test_a_lost_worker_no_longer_counts(hand: HandMaker) -> None:
    drive = hand(adaptive(), **MANY)
    drive.give("gpu")
    cpu = drive.give("cpu")
    drive.finish(cpu)
    drive.kill("gpu")
    assert drive.give("cpu").work.reason == "no other worker to balance with"


@pytest.mark.parametrize(("counts", "batch"), [("epoch", 2), ("run", 4)])
def test_counts_are_of_the_epoch_unless_told_otherwise(hand: HandMaker, counts: str, batch: int) -> None:
    """The CPU is ahead in epoch 0; in epoch 1 all counts are 0 again, unless they are of the run."""
    drive = hand(adaptive(counts=counts), rows=24, stop=StopRule(epochs=3), evaluation="deferred")
    drive.finish(drive.give("cpu"))
    assert drive.give("gpu").stop == 24  # the rest of epoch 0
    cpu = drive.give("cpu")
    assert (cpu.epoch, cpu.work.batch) == (1, batch)


def test_factors_that_are_not_whole_leave_no_batch_stuck(hand: HandMaker) -> None:
    """1 x 1.5 is rounded up to 2, 2 / 1.5 down to 1."""
    drive = hand(adaptive(alpha=1.5, cpu_batch=1), **MANY)
    gpu = drive.give("gpu")
    drive.finish(drive.give("cpu"))
    assert drive.give("cpu").work.batch == 2
    for _ in range(9):
        drive.finish(gpu)
        gpu = drive.give("gpu")
    assert drive.give("cpu").work.batch == 1


def test_free_lanes_share_the_batch_of_their_team(hand: HandMaker) -> None:
    """A free lane counts beta for each of its updates; the team has one batch."""
    members = (Member(name="cpu", kind="cpu", lanes=2, free=True), Member(name="gpu", kind="accelerator"))
    drive = hand(adaptive(), members=members, lanes="free", **MANY)
    first, second = drive.give("cpu", 0), drive.give("cpu", 1)
    drive.give("gpu")
    assert (first.rows, first.seat) == (2, Seat("cpu", 0))
    drive.finish(first)  # cpu 1, gpu 0
    assert drive.give("cpu", 0).work.batch == 4
    drive.finish(second)
    assert drive.give("cpu", 1).work.batch == 8


def test_rates_scale_the_run_rate_per_class(hand: HandMaker) -> None:
    drive = hand(adaptive(cpu_rate=0.1, accelerator_rate=3.0, cpu_steps=5), **MANY)
    cpu, gpu = drive.give("cpu"), drive.give("gpu")
    assert (cpu.work.rate, cpu.work.steps, gpu.work.rate) == (0.5 * 0.1, 5, 1.5)
    assert cpu.rows == 4 * 2 * 5


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"alpha": 1.0}, "policy.alpha must be > 1"),
        ({"beta": 1.5}, "policy.beta must be <= 1, got 1.5"),
        ({"cpu_batch": 16}, "policy.cpu_batch must lie between cpu_lower and cpu_upper, got 1 <= 16 <= 8"),
        ({"accelerator_lower": 65}, "policy.accelerator_batch must lie between"),
        ({"counts": "batch"}, "policy.counts must be one of epoch, run, got 'batch'"),
    ],
)
def test_bad_parameters_name_the_key_the_rule_and_the_value(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(PolicyError, match=says.replace(".", r"\.")):
        adaptive(**keys)
