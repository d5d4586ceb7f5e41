"""Hogwild, minibatch, Hogbatch, Ringmaster and EASGD against sequences worked out by hand."""

from collections.abc import Callable
from typing import Any

import pytest

from hetsgd.models.policies import POLICIES, recipe
from hetsgd.models.policy import Fleet, Member, PolicyError

HandMaker = Callable[..., Any]
CPU = Member(name="cpu", kind="cpu", lanes=4)
GPU = Member(name="gpu", kind="accelerator")


def test_hogwild_gives_every_lane_its_batch_in_place(hand: HandMaker) -> None:
    drive = hand(recipe("hogwild", cpu_batch=3, cpu_steps=2, cpu_rate=0.5), members=(CPU,))
    assign = drive.give("cpu")
    assert (assign.rows, assign.pieces, assign.work.write, assign.work.rate) == (24, 8, "in_place", 0.25)
    assert drive.finish(assign) == []
    assert drive.coordinator.version == 8


def test_minibatch_uses_accelerators_only(hand: HandMaker) -> None:
    drive = hand(recipe("minibatch", accelerator_batch=100, accelerator_rate=2.0), members=(GPU,))
    assign = drive.give("gpu")
    assert (assign.rows, assign.work.write, assign.work.rate) == (100, "in_place", 1.0)
    drive.finish(assign)
    assert drive.coordinator.version == 1
    with pytest.raises(PolicyError, match="does not use workers of kind cpu"):
        hand(recipe("minibatch"))


def test_hogbatch_lets_nobody_wait(hand: HandMaker) -> None:
    drive = hand(recipe("hogbatch", cpu_batch=1, accelerator_batch=200))
    assert drive.give("gpu").rows == 200
    for _ in range(3):
        cpu = drive.give("cpu")
        assert cpu.rows == 4
        drive.finish(cpu)
    assert drive.coordinator.version == 12


def test_ringmaster_drops_what_is_older_than_its_threshold(hand: HandMaker) -> None:
    """Threshold 1. Merges that are decided and not landed count: the third gradient of version 0 has staleness 2."""
    drive = hand(recipe("ringmaster", cpu_batch=5, accelerator_batch=10, threshold=1, cpu_rate=0.5), momentum=0.9)
    cpu, gpu = drive.give("cpu"), drive.give("gpu")
    (first,) = drive.finish(cpu)
    assert (first.rule, first.rate, first.weights, first.momentum) == ("gradient", 0.25, (1.0,), 0.9)
    (second,) = drive.finish(drive.give("cpu"))
    assert second.rule == "gradient"  # staleness 1: the merge before it
    (dropped,) = drive.finish(gpu, read=0)
    assert (dropped.rule, dropped.reason) == ("discard", "staleness 2 > 1")
    drive.land(first)
    drive.land(second)
    (third,) = drive.finish(drive.give("gpu"))
    assert (third.rule, third.rate) == ("gradient", 0.5)


def test_easgd_ties_each_replica_to_the_model_on_its_visit(hand: HandMaker) -> None:
    drive = hand(recipe("easgd", steps=3, rho=0.2, cpu_batch=2, accelerator_batch=10, cpu_rate=0.5))
    cpu, gpu = drive.give("cpu"), drive.give("gpu")
    assert (cpu.work.read, cpu.work.write, cpu.work.rate, cpu.rows) == ("own", "keep", 0.25, 4 * 2 * 3)
    assert (gpu.work.rate, gpu.rows) == (0.5, 30)
    (merge,) = drive.finish(gpu)
    assert (merge.rule, merge.inputs, merge.weights) == ("elastic", (gpu.id,), (1.0,))
    assert merge.rate == pytest.approx(0.5 * 0.2)
    assert not drive.coordinator.may_start(gpu.seat)  # its replica is still being merged
    drive.land(merge)
    assert drive.coordinator.may_start(gpu.seat)
    assert recipe("easgd", alpha=0.3).begin(drive.fleet) is not None


def test_the_elastic_force_is_a_key_or_rate_times_rho(hand: HandMaker) -> None:
    drive = hand(recipe("easgd", alpha=0.3, rho=7.0))
    (merge,) = drive.finish(drive.give("gpu"))
    assert merge.rate == 0.3
    with pytest.raises(PolicyError, match=r"elastic force .* must be <= 1, got 3\.5"):
        hand(recipe("easgd", rho=7.0))
    with pytest.raises(PolicyError, match="nothing would reach the global model"):
        recipe("easgd", rho=0.0)


@pytest.mark.parametrize("name", ["hogwild", "minibatch", "hogbatch", "adaptive-hogbatch", "easgd"])
def test_policies_without_a_server_refuse_momentum(name: str) -> None:
    made = recipe(name)
    members = tuple(member for member in (CPU, GPU) if member.kind in made.kinds)
    fleet = Fleet(members=members, rows=10, learning_rate=0.1, momentum=0.9)
    with pytest.raises(PolicyError, match=rf"run\.momentum must be 0 for {name}, got 0\.9: .*; synchronous"):
        made.begin(fleet)


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in ("hogwild", "minibatch")])
def test_every_policy_scales_the_rate_per_class(name: str, hand: HandMaker) -> None:
    """Doubling a class's rate doubles what its result changes: the local rate, the merge rate or the weight."""

    def strength(**keys: Any) -> float:
        drive = hand(recipe(name, **keys), rows=10**6)
        gpu, cpu = drive.give("gpu"), drive.give("cpu")
        merges = [*drive.finish(gpu), *drive.finish(cpu)]
        merge = next((m for m in merges if m.rule == "gradient"), None)
        if merge is None:
            return float(cpu.work.rate)
        weight = dict(zip(merge.inputs, merge.weights, strict=True)).get(cpu.id)
        if weight is None:
            merge = merges[-1]
            weight = merge.weights[0]
        return float(merge.rate * weight)

    keys = {"backups": 0} if name == "backup-workers" else {}
    assert strength(cpu_rate=2.0, **keys) == pytest.approx(2 * strength(**keys))
