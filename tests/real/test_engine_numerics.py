"""What a real run computes is what a plain loop in one process computes, for every way to write and to merge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from hetsgd.models.initial import initial_parameters
from hetsgd.models.plan import Plan
from hetsgd.models.policy import Fleet, Kind, LaneMode, Merge, Read, Result, Rule, View, Work, Write
from hetsgd.models.run import StopRule
from hetsgd.models.streams import row_order
from hetsgd.models.workload import Workload
from tests.real.small_runs import Bench

pytestmark = pytest.mark.usefixtures("watchdog")

Vector = NDArray[np.float64]
FLOAT64 = {"precision": "float64"}
NO_COPY: tuple[Kind, ...] = ("cpu",)


def agree(parameters: NDArray[Any], wanted: Vector) -> None:
    """To what sums in another order leave of double precision."""
    np.testing.assert_allclose(parameters, wanted, rtol=1e-9, atol=1e-10)


def gradient(load: Workload, w: Vector, x: NDArray[Any], y: NDArray[Any]) -> Vector:
    """The mean gradient of the rows, by autograd."""
    flat = torch.tensor(w, requires_grad=True)
    value: Tensor = torch.from_numpy(np.asarray(x, dtype=np.float64))
    for number, layer in enumerate(load.layers):
        if number:
            value = torch.sigmoid(value)
        size = layer.inputs * layer.outputs
        weights = flat[layer.weight_offset : layer.weight_offset + size].view(layer.inputs, layer.outputs)
        value = value @ weights + flat[layer.bias_offset : layer.bias_offset + layer.outputs]
    functional.cross_entropy(value, torch.from_numpy(y)).backward()  # type: ignore[no-untyped-call]  # torch has no type
    assert flat.grad is not None
    return flat.grad.numpy()


def batches(bench: Bench, plan: Plan, size: int, epochs: int = 2) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Rows in the order of each epoch, cut into batches; the last of an epoch may be smaller."""
    rows = bench.data.rows
    for epoch in range(epochs):
        order = row_order(plan.run.seed, epoch, rows, plan.run.order)
        order = np.arange(rows) if order is None else order
        for low in range(0, rows, size):
            chosen = order[low : low + size]
            yield bench.data.train_x[chosen], bench.data.train_y[chosen]


def serial(bench: Bench, plan: Plan, size: int, epochs: int = 2) -> Vector:
    """Plain SGD with decoupled weight decay."""
    w, rate = initial_parameters(plan.workload, plan.run.seed).astype(np.float64), plan.run.learning_rate
    for x, y in batches(bench, plan, size, epochs):
        w = (1.0 - rate * plan.run.weight_decay) * w - rate * gradient(plan.workload, w, x, y)
    return w


@pytest.mark.parametrize("batch", [1, 16, 600])
@pytest.mark.parametrize("order", ["shuffled", "file"])
def test_one_lane_is_serial_sgd(bench: Bench, batch: int, order: str) -> None:
    plan = bench.plan(
        "hogwild", accelerators=(), keys={"cpu_batch": batch}, workload=FLOAT64, order=order, weight_decay=0.01
    )  # fmt: skip
    agree(bench.run(plan).parameters, serial(bench, plan, batch))


@pytest.mark.parametrize("lookahead", [0, 1, 3])
def test_one_accelerator_is_serial_sgd(bench: Bench, lookahead: int) -> None:
    plan = bench.plan("minibatch", keys={"accelerator_batch": 64}, workload=FLOAT64, lookahead=lookahead)
    agree(bench.run(plan).parameters, serial(bench, plan, 64))


def test_single_precision_agrees_to_its_own_tolerance(bench: Bench) -> None:
    plan = bench.plan("hogwild", accelerators=(), keys={"cpu_batch": 16})
    parameters = bench.run(plan).parameters
    assert parameters.dtype == np.float32
    np.testing.assert_allclose(parameters, serial(bench, plan, 16), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("lanes", [1, 2])
def test_synchronous_is_minibatch_sgd(bench: Bench, lanes: int, momentum: float) -> None:
    """Lanes x 8 + 32 rows a round, and the tail of an epoch in a smaller one."""
    keys = {"cpu_batch": 8, "accelerator_batch": 32}
    plan = bench.plan("synchronous", lanes=lanes, keys=keys, workload=FLOAT64, momentum=momentum)
    rate, velocity = plan.run.learning_rate, np.zeros(plan.workload.parameters)
    w = initial_parameters(plan.workload, plan.run.seed).astype(np.float64)
    for x, y in batches(bench, plan, lanes * 8 + 32):
        velocity = momentum * velocity + gradient(plan.workload, w, x, y)
        w = w - rate * velocity
    agree(bench.run(plan).parameters, w)


# -- every merge rule with one worker, against the same rule written out ------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Alone:
    """One worker whose every result makes one merge, or is held until there are `group` of them."""

    kinds: ClassVar[tuple[Kind, ...]] = NO_COPY
    lane_modes: ClassVar[tuple[LaneMode, ...]] = ("barrier",)
    max_lookahead: ClassVar[int] = 8
    reads_losses: ClassVar[bool] = False
    read: Read = "global"
    write: Write = "replica"
    rule: Rule = "delta"
    weight: float = 1.0
    rate: float = 1.0
    momentum: float = 0.0
    compensate: float = 0.0
    at_read: bool = False
    write_back: tuple[str, ...] = ()
    batch: int = 10
    steps: int = 3
    group: int = 1

    def begin(self, fleet: Fleet) -> AloneSchedule:
        return AloneSchedule(self, fleet.learning_rate)


@dataclass(frozen=True, kw_only=True)
class AloneOnAccelerator(Alone):
    kinds: ClassVar[tuple[Kind, ...]] = ("accelerator",)


class AloneSchedule:
    def __init__(self, recipe: Alone, rate: float) -> None:
        self.recipe = recipe
        self.work = Work(
            batch=recipe.batch, steps=recipe.steps, rate=rate, read=recipe.read, write=recipe.write, reason="alone"
        )  # fmt: skip
        self.held: list[int] = []

    def next(self, view: View, worker: str) -> Work:
        return self.work

    def on_result(self, view: View, result: Result) -> Sequence[Merge]:
        self.held.append(result.id)
        return self._merge() if len(self.held) >= self.recipe.group else ()

    def on_drained(self, view: View, why: str) -> Sequence[Merge]:
        return self._merge() if self.held else ()

    def _merge(self) -> Sequence[Merge]:
        r, inputs = self.recipe, tuple(self.held)
        self.held.clear()
        weights = (r.weight / len(inputs),) * len(inputs)
        return (
            Merge(
                inputs=inputs, rule=r.rule, weights=weights, rate=r.rate, momentum=r.momentum,
                compensate=r.compensate, at_read=r.at_read, write_back=r.write_back, reason="alone",
            ),
        )  # fmt: skip


def run_alone(
    bench: Bench, change: Callable[[Vector, Vector, Vector], tuple[Vector, Vector]], lookahead: int, **keys: Any
) -> None:
    """Compare with a loop over assignments; `change` takes model, own replica and local result to new ones."""
    for kind, accelerators in ((Alone, ()), (AloneOnAccelerator, ("acc0",))):
        recipe = kind(**keys)
        plan = bench.plan(
            recipe, lanes=1, accelerators=accelerators, workload=FLOAT64, lookahead=lookahead,
            stop=StopRule(epochs=1), weight_decay=0.02,
        )  # fmt: skip
        rate, decay = plan.run.learning_rate, 1.0 - plan.run.learning_rate * plan.run.weight_decay
        w = initial_parameters(plan.workload, plan.run.seed).astype(np.float64)
        own = w.copy()
        steps = list(batches(bench, plan, recipe.batch, epochs=1))
        for first in range(0, len(steps), recipe.steps):
            local = own.copy() if recipe.read == "own" else w.copy()
            for x, y in steps[first : first + recipe.steps]:
                local = decay * local - rate * gradient(plan.workload, local, x, y)
            w, own = change(w, own, local)
        agree(bench.run(plan).parameters, w)


@pytest.mark.parametrize("lookahead", [0, 1])
@pytest.mark.parametrize("rule", ["delta", "overwrite"])
@pytest.mark.parametrize("write", ["replica", "keep"])
def test_one_replica_that_replaces_the_model_is_serial_sgd(
    bench: Bench, write: Write, rule: Rule, lookahead: int
) -> None:
    run_alone(bench, lambda w, own, local: (local, local), lookahead, write=write, rule=rule)


@pytest.mark.parametrize("lookahead", [0, 1])
def test_average_goes_part_of_the_way(bench: Bench, lookahead: int) -> None:
    run_alone(
        bench, lambda w, own, local: (0.75 * w + 0.25 * local, local), lookahead, rule="average", weight=0.25
    )  # fmt: skip


@pytest.mark.parametrize("at_read", [False, True])
def test_elastic_ties_a_kept_replica_to_the_model(bench: Bench, at_read: bool) -> None:
    def change(w: Vector, own: Vector, local: Vector) -> tuple[Vector, Vector]:
        pull = 0.3 * ((own if at_read else local) - w)
        return w + pull, local - pull

    run_alone(bench, change, 1, read="own", write="keep", rule="elastic", rate=0.3, at_read=at_read)


@pytest.mark.parametrize("write", ["replica", "keep"])
def test_a_replica_is_written_back(bench: Bench, write: Write) -> None:
    """The worker's own replica becomes the model that the merge leaves, so the next assignment starts from it."""

    def change(w: Vector, own: Vector, local: Vector) -> tuple[Vector, Vector]:
        merged = 0.5 * w + 0.5 * local
        return merged, merged

    for kind, name in ((Alone, "cpu"), (AloneOnAccelerator, "acc0")):
        keys: dict[str, Any] = {"read": "own", "write": write, "rule": "average", "weight": 0.5, "write_back": (name,)}
        recipe = kind(**keys)
        accelerators = () if name == "cpu" else (name,)
        plan = bench.plan(recipe, accelerators=accelerators, workload=FLOAT64, stop=StopRule(epochs=1))
        w = initial_parameters(plan.workload, plan.run.seed).astype(np.float64)
        own, steps = w.copy(), list(batches(bench, plan, recipe.batch, epochs=1))
        for first in range(0, len(steps), recipe.steps):
            local = own.copy()
            for x, y in steps[first : first + recipe.steps]:
                local = local - plan.run.learning_rate * gradient(plan.workload, local, x, y)
            w, own = change(w, own, local)
        trained = bench.run(plan)
        agree(trained.parameters, w)
        # Written back at each merge: nothing is ever stale.
        assert set(trained.trace["merge_inputs"]["staleness"].tolist()) == {0}


@pytest.mark.parametrize("group", [1, 2, 7])
def test_held_gradients_wait_for_their_merge(bench: Bench, group: int) -> None:
    """More results are held than there are slots for: they move out, and none is lost or mixed up.

    All gradients of a group are of the same model; delay compensation then changes nothing.
    """
    for kind, accelerators in ((Alone, ()), (AloneOnAccelerator, ("acc0",))):
        recipe = kind(write="gradient", rule="gradient", steps=1, group=group, rate=0.05, compensate=0.5)
        plan = bench.plan(
            recipe, accelerators=accelerators, workload=FLOAT64, stop=StopRule(epochs=1)
        )  # fmt: skip
        w = initial_parameters(plan.workload, plan.run.seed).astype(np.float64)
        steps = list(batches(bench, plan, recipe.batch, epochs=1))
        for first in range(0, len(steps), group):
            chosen = steps[first : first + group]
            w = w - 0.05 * np.mean([gradient(plan.workload, w, x, y) for x, y in chosen], axis=0)
        agree(bench.run(plan).parameters, w)


@pytest.mark.parametrize("write", ["replica", "keep"])
def test_lanes_of_a_team_share_one_replica(bench: Bench, write: Write) -> None:
    """Two lanes step on one replica: every row counts, and training goes on as if it were one worker."""
    plan = bench.plan(Alone(write=write, steps=5), lanes=2, accelerators=(), workload=FLOAT64)
    trained = bench.run(plan)
    losses = trained.trace["evaluations"]["train"]
    near = serial(bench, plan, 10)
    assert losses[-1] < 0.8 * losses[0]
    start = initial_parameters(plan.workload, plan.run.seed)
    assert np.linalg.norm(trained.parameters - near) < 0.1 * np.linalg.norm(near - start)
