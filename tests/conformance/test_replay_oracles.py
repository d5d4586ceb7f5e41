"""Policies in the simulator with replayed gradients against loops written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.initial import initial_parameters
from hetsgd.models.machine import Machine, Noise
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.policy import Fleet, Kind, LaneMode, Merge, Recipe, Result, Schedule, View, Wait, Work
from hetsgd.models.run import Evaluation, Order, RunSettings, StopRule
from hetsgd.models.streams import row_order
from hetsgd.models.trace import Trace
from hetsgd.models.workload import Workload
from hetsgd.real.network import Network
from hetsgd.real.replay import ReplayLearner
from hetsgd.sim import simulate
from tests.uneven_machine import uneven_machine

ROWS = 210
RATE = 0.1
EPOCHS = 2

LOAD = Workload(name="w", dataset="d", rows=ROWS, test_rows=0, features=6, outputs=3, hidden=(9, 7), activation="tanh")


def machine(lanes: int, accelerators: int) -> Machine:
    return uneven_machine(lanes, accelerators, Noise(cpu_sigma=0.2, accelerator_sigma=0.1))


def dataset() -> Dataset:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(ROWS, 6)).astype(np.float32)
    y = np.argmax(x[:, :3] + x[:, 3:], axis=1)
    return Dataset(
        name="d", train_x=x, train_y=y, test_x=x[:0], test_y=y[:0], classes=3, multilabel=False, source="random"
    )


@dataclass(frozen=True)
class Run:
    """A simulated run: its trace and its final model."""

    plan: Plan
    trace: Trace
    parameters: NDArray[Any]


def run(policy: Recipe, on: Machine, **settings: Any) -> Run:
    values: dict[str, Any] = {"stop": StopRule(epochs=EPOCHS), "seed": 4, "learning_rate": RATE}
    of = Plan(machine=on, workload=LOAD, policy="p", recipe=policy, run=RunSettings(**(values | settings)))
    learner = ReplayLearner(of, dataset())
    trace = simulate(of, learner)
    assert trace.status == "done", trace.stop_reason
    assert not learner.held
    return Run(of, trace, learner.parameters)


class ByHand:
    """The same network and rows, for loops that know nothing of engines."""

    def __init__(self, order: Order = "shuffled") -> None:
        data = dataset()
        self.network = Network(LOAD, max_batch=ROWS)
        self.w = torch.from_numpy(initial_parameters(LOAD, 4))
        self.x, self.y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
        orders = [row_order(4, epoch, ROWS, order) for epoch in range(EPOCHS)]
        self.orders = [torch.arange(ROWS) if found is None else torch.from_numpy(found) for found in orders]

    def rows(self, epoch: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        index = self.orders[epoch][start:stop]
        return self.x[index], self.y[index]

    def gradient(self, at: Tensor, epoch: int, start: int, stop: int) -> Tensor:
        out = torch.empty_like(at)
        self.network.gradient(at, *self.rows(epoch, start, stop), out)
        return out

    def spans(self, batch: int) -> list[tuple[int, int, int]]:
        return [(e, low, min(low + batch, ROWS)) for e in range(EPOCHS) for low in range(0, ROWS, batch)]

    def serial(self, batch: int) -> NDArray[Any]:
        for epoch, start, stop in self.spans(batch):
            self.network.step(self.w, *self.rows(epoch, start, stop), RATE)
        return self.w.numpy()


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simple:
    """One kind of work for accelerators; every `group` results are merged together as `decide` says."""

    kinds: ClassVar[tuple[Kind, ...]] = ("accelerator",)
    lane_modes: ClassVar[tuple[LaneMode, ...]] = ("barrier",)
    max_lookahead: ClassVar[int] = 4
    reads_losses: ClassVar[bool] = False

    work: Work
    merge: Callable[[tuple[int, ...], tuple[float, ...]], Merge]
    together: bool = False

    def begin(self, fleet: Fleet) -> Schedule:
        return _Simple(self, len(fleet.members))


class _Simple:
    def __init__(self, policy: Simple, workers: int) -> None:
        self.policy = policy
        self.group = workers if policy.together else 1
        self.round: list[Result] = []
        self.out: set[str] = set()

    def next(self, view: View, worker: str) -> Work | Wait:
        if self.policy.together and (worker in self.out or view.merging):
            return Wait(reason="round", on=("merged",))
        self.out.add(worker)
        return self.policy.work

    def on_result(self, view: View, result: Result) -> Sequence[Merge]:
        self.round.append(result)
        return self.close() if len(self.round) == self.group else ()

    def on_drained(self, view: View, why: str) -> Sequence[Merge]:
        return self.close() if self.round else ()

    def close(self) -> Sequence[Merge]:
        done, self.round = sorted(self.round, key=lambda result: result.id), []
        self.out.clear()
        rows = sum(result.rows for result in done)
        return (self.policy.merge(tuple(r.id for r in done), tuple(r.rows / rows for r in done)),)


@pytest.mark.parametrize("lanes", ["barrier", "free"])
@pytest.mark.parametrize("lookahead", [0, 1])
@pytest.mark.parametrize(("batch", "order"), [(1, "shuffled"), (8, "shuffled"), (8, "file")])
def test_one_lane_is_serial_sgd_bit_for_bit(batch: int, order: Order, lookahead: int, lanes: LaneMode) -> None:
    done = run(recipe("hogwild", cpu_batch=batch), machine(1, 0), lanes=lanes, lookahead=lookahead, order=order)
    assert np.array_equal(done.parameters, ByHand(order).serial(batch))


@pytest.mark.parametrize("lookahead", [0, 1])
@pytest.mark.parametrize("evaluation", ["blocking", "concurrent", "deferred"])
def test_one_accelerator_is_serial_sgd_bit_for_bit(lookahead: int, evaluation: Evaluation) -> None:
    policy = recipe("minibatch", accelerator_batch=16)
    done = run(policy, machine(1, 1), lookahead=lookahead, evaluation=evaluation)
    assert np.array_equal(done.parameters, ByHand().serial(16))


@pytest.mark.parametrize("lookahead", [0, 1])
@pytest.mark.parametrize(
    ("rule", "write", "tolerance"),
    [("gradient", "gradient", 0.0), ("overwrite", "replica", 0.0), ("delta", "replica", 1e-5)],
)
def test_one_accelerator_that_merges_is_serial_sgd(rule: Any, write: Any, tolerance: float, lookahead: int) -> None:
    rate = RATE if rule == "gradient" else 1.0
    policy = Simple(
        work=Work(batch=16, rate=RATE, write=write),
        merge=lambda ids, weights: Merge(inputs=ids, rule=rule, weights=weights, rate=rate),
    )
    done = run(policy, machine(1, 1), lookahead=lookahead)
    np.testing.assert_allclose(done.parameters, ByHand().serial(16), rtol=0, atol=tolerance)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_synchronous_is_minibatch_sgd_of_one_process(momentum: float) -> None:
    policy = recipe("synchronous", cpu_batch=4, accelerator_batch=20)
    done = run(policy, machine(3, 2), momentum=momentum)
    hand, velocity = ByHand(), torch.zeros(LOAD.parameters)
    for epoch, start, stop in hand.spans(3 * 4 + 2 * 20):
        velocity = momentum * velocity + hand.gradient(hand.w, epoch, start, stop)
        hand.w -= RATE * velocity
    np.testing.assert_allclose(done.parameters, hand.w.numpy(), rtol=0, atol=1e-5)


def test_local_sgd_with_one_step_is_minibatch_sgd() -> None:
    policy = Simple(
        work=Work(batch=15, rate=RATE, write="replica"),
        merge=lambda ids, weights: Merge(inputs=ids, rule="average", weights=weights),
        together=True,
    )
    done = run(policy, machine(1, 2))
    hand = ByHand()
    for epoch, start, stop in hand.spans(30):
        hand.w -= RATE * hand.gradient(hand.w, epoch, start, stop)
    np.testing.assert_allclose(done.parameters, hand.w.numpy(), rtol=0, atol=1e-5)


def test_model_averaging_with_momentum_equals_the_loop() -> None:
    policy = Simple(
        work=Work(batch=15, rate=RATE, read="own", write="keep"),
        merge=lambda ids, _: Merge(
            inputs=ids, rule="elastic", weights=(1.0,) * len(ids), rate=0.1, momentum=0.6, at_read=True
        ),
        together=True,
    )
    done = run(policy, machine(1, 2))
    hand = ByHand()
    replicas = {name: hand.w.clone() for name in ("gpu0", "gpu1")}
    previous = hand.w.clone()
    assigned = {int(row["id"]): row for row in done.trace["assignments"]}
    texts, inputs = done.trace.texts, done.trace["merge_inputs"]
    for merge in done.trace["merges"]["id"]:
        total = torch.zeros_like(hand.w)
        for key in inputs["id"][inputs["merge"] == merge]:
            row = assigned[int(key)]
            replica = replicas[texts[row["worker_text"]]]
            pull = 0.1 * (replica - hand.w)
            replica -= RATE * hand.gradient(replica, row["epoch"], row["start"], row["stop"]) + pull
            total += pull
        hand.w, previous = hand.w + total + 0.6 * (hand.w - previous), hand.w
    np.testing.assert_allclose(done.parameters, hand.w.numpy(), rtol=0, atol=1e-5)


def test_easgd_with_one_worker_equals_the_loop() -> None:
    policy = Simple(
        work=Work(batch=10, steps=3, rate=RATE, read="own", write="keep"),
        merge=lambda ids, weights: Merge(inputs=ids, rule="elastic", weights=weights, rate=0.25),
    )
    done = run(policy, machine(1, 1), lookahead=1)
    hand = ByHand()
    replica = hand.w.clone()
    for epoch, start, stop in hand.spans(30):
        for low in range(start, stop, 10):
            replica -= RATE * hand.gradient(replica, epoch, low, min(low + 10, stop))
        pull = 0.25 * (replica - hand.w)
        replica -= pull
        hand.w += pull
    np.testing.assert_allclose(done.parameters, hand.w.numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("lanes", ["barrier", "free"])
def test_hogwild_equals_a_loop_over_the_versions_in_the_trace(lanes: LaneMode) -> None:
    """Every in-place write of the trace says which version it read: a loop with all versions at hand agrees."""
    done = run(recipe("hogwild", cpu_batch=3), machine(4, 0), lanes=lanes)
    hand = ByHand()
    versions = [hand.w.clone()]
    assigned = {int(row["id"]): row for row in done.trace["assignments"]}
    updates = np.sort(done.trace["updates"], order="version")
    assert list(updates["version"]) == list(range(1, len(updates) + 1))
    for update in updates:
        row = assigned[int(update["id"])]
        lane = int(update["lane"]) if lanes == "barrier" else 0
        start = int(row["start"]) + 3 * lane
        gradient = hand.gradient(versions[update["read"]], row["epoch"], start, min(start + 3, int(row["stop"])))
        versions.append(versions[-1] - RATE * gradient)
    assert (updates["version"] - 1 - updates["read"]).max() > 0
    np.testing.assert_allclose(done.parameters, versions[-1].numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("policy", ["hogbatch", "adaptive-hogbatch", "easgd", "backup-workers", "ringmaster"])
@pytest.mark.parametrize("lookahead", [0, 1])
def test_every_policy_learns_and_is_the_same_twice(policy: str, lookahead: int) -> None:
    first = run(recipe(policy), machine(2, 2), lookahead=lookahead)
    again = run(recipe(policy), machine(2, 2), lookahead=lookahead)
    assert np.array_equal(first.parameters, again.parameters)
    losses = first.trace["evaluations"]
    assert losses.tobytes() == again.trace["evaluations"].tobytes()
    assert losses["train"][-1] < losses["train"][0]


def test_a_rate_that_is_far_too_large_ends_the_run_as_diverged() -> None:
    values = RunSettings(stop=StopRule(epochs=3), learning_rate=1e30)
    relu = Workload(
        name="w", dataset="d", rows=ROWS, test_rows=0, features=6, outputs=3, hidden=(9,), activation="relu"
    )
    of = Plan(machine=machine(2, 0), workload=relu, policy="p", recipe=recipe("hogwild", cpu_batch=8), run=values)
    trace = simulate(of, ReplayLearner(of, dataset()))
    assert trace.status == "diverged"
    assert not np.isfinite(trace["evaluations"]["train"][-1])
