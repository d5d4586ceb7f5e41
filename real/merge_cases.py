"""Every way to write and to merge, run by one worker on its device and beside it as a plain loop in float64.

The loop shares nothing with the executor: gradients by autograd on the CPU, merges written out. With one worker the
order of everything is fixed, so the two must agree to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.initial import initial_parameters
from hetsgd.models.machine import Machine
from hetsgd.models.plan import Plan
from hetsgd.models.policy import Fleet, Kind, LaneMode, Merge, Read, Result, Rule, View, Work, Write
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.streams import row_order
from hetsgd.models.workload import Precision, Workload
from hetsgd.real.engine import train

Vector = NDArray[np.float64]
Change = Callable[[Vector, Vector, Vector], tuple[Vector, Vector]]

_ROWS: Final = 660
_TEST_ROWS: Final = 60
_FEATURES: Final = 10
_BATCH: Final = 16
_STEPS: Final = 3
_RATE: Final = 0.05
_DECAY: Final = 0.02
TOLERANCE: Final[dict[Precision, float]] = {"float64": 1e-9, "float32": 1e-3}
"""How far the parameters may be from the loop's, as a share of the distance that training has moved them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneAccelerator:
    """One accelerator that always gets the same work, each result of which makes one merge (none in place)."""

    kinds: ClassVar[tuple[Kind, ...]] = ("accelerator",)
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
    write_back: bool = False
    steps: int = _STEPS

    def begin(self, fleet: Fleet) -> _Schedule:
        """The schedule of a run."""
        return _Schedule(self, fleet)


class _Schedule:
    def __init__(self, recipe: OneAccelerator, fleet: Fleet) -> None:
        self._work = Work(
            batch=_BATCH, steps=recipe.steps, rate=fleet.learning_rate, read=recipe.read, write=recipe.write,
            reason="check",
        )  # fmt: skip
        self._recipe = recipe
        self._names = tuple(member.name for member in fleet.members) if recipe.write_back else ()

    def next(self, view: View, worker: str) -> Work:
        return self._work

    def on_result(self, view: View, result: Result) -> Sequence[Merge]:
        if self._work.write == "in_place":
            return ()
        recipe = self._recipe
        merge = Merge(
            inputs=(result.id,), rule=recipe.rule, weights=(recipe.weight,), rate=recipe.rate, reason="check",
            momentum=recipe.momentum, compensate=recipe.compensate, at_read=recipe.at_read, write_back=self._names,
        )  # fmt: skip
        return (merge,)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeCase:
    """One way to write and merge. `change` makes the loop's rule: model, own replica and local result to new ones.

    The local result is a replica after the local steps, or a gradient.
    """

    name: str
    recipe: OneAccelerator
    change: Callable[[], Change]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far a run was from the loop: the largest difference of a parameter over the largest way of one."""

    case: str
    error: float
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether the two agree; never where the error is not finite."""
        return bool(self.error <= self.tolerance)


def _becomes(w: Vector, own: Vector, local: Vector) -> tuple[Vector, Vector]:
    return local, local


def _quarter(w: Vector, own: Vector, local: Vector) -> tuple[Vector, Vector]:
    return 0.75 * w + 0.25 * local, local


def _half_back(w: Vector, own: Vector, local: Vector) -> tuple[Vector, Vector]:
    merged = 0.5 * w + 0.5 * local
    return merged, merged


def _elastic(w: Vector, own: Vector, local: Vector) -> tuple[Vector, Vector]:
    pull = 0.3 * (local - w)
    return w + pull, local - pull


def _elastic_at_read(w: Vector, own: Vector, local: Vector) -> tuple[Vector, Vector]:
    pull = 0.3 * (own - w)
    return w + pull, local - pull


def _heavy_ball(momentum: float) -> Callable[[], Change]:
    def begin() -> Change:
        velocity: list[Any] = [0.0]

        def change(w: Vector, own: Vector, local: Vector) -> tuple[Vector, Vector]:
            velocity[0] = momentum * velocity[0] + local
            return (1.0 - _RATE * _DECAY) * w - _RATE * velocity[0], own

        return change

    return begin


def _case(name: str, change: Change, **keys: Any) -> MergeCase:
    return MergeCase(name=name, recipe=OneAccelerator(**keys), change=lambda: change)


def _gradient_case(name: str, momentum: float, compensate: float) -> MergeCase:
    recipe = OneAccelerator(
        write="gradient", rule="gradient", steps=1, rate=_RATE, momentum=momentum, compensate=compensate
    )  # fmt: skip
    return MergeCase(name=name, recipe=recipe, change=_heavy_ball(momentum))


CASES: Final = (
    _case("in_place", _becomes, write="in_place"),
    _case("replica, overwrite", _becomes, rule="overwrite"),
    _case("replica, delta", _becomes, rule="delta"),
    _case("replica, average", _quarter, rule="average", weight=0.25),
    _case("keep, overwrite", _becomes, write="keep", rule="overwrite"),
    _case("keep, delta", _becomes, write="keep", rule="delta"),
    _case("keep, elastic", _elastic, read="own", write="keep", rule="elastic", rate=0.3),
    _case("keep, elastic at read", _elastic_at_read, read="own", write="keep", rule="elastic", rate=0.3, at_read=True),
    _case("keep, average, written back", _half_back, read="own", write="keep", rule="average", weight=0.5,
          write_back=True),
    _gradient_case("gradient", 0.0, 0.0),
    _gradient_case("gradient, momentum", 0.9, 0.0),
    _gradient_case("gradient, compensated", 0.0, 0.5),
)  # fmt: skip
"""All of them. One worker's gradients are never stale, so delay compensation must change nothing."""


def check_case(case: MergeCase, machine: Machine, precision: Precision = "float64") -> Agreement:
    """Train two epochs with the one accelerator of `machine` and compare with the loop.

    Raises KeyboardInterrupt where an interrupt has ended the training.
    """
    data = check_data()
    plan = Plan(
        machine=machine,
        workload=Workload(
            name="merge check", dataset=data.name, rows=data.rows, test_rows=data.test_rows, features=data.features,
            outputs=data.outputs, hidden=(16,), precision=precision,
        ),
        policy="check",
        recipe=case.recipe,
        run=RunSettings(
            stop=StopRule(epochs=2), learning_rate=_RATE, weight_decay=_DECAY, seed=3, lookahead=1, trace="none"
        ),
    )  # fmt: skip
    begun = initial_parameters(plan.workload, plan.run.seed).astype(np.float64)
    wanted = _loop(case, plan, data)
    trained = train(plan, data)
    if trained.trace.status == "interrupted":
        raise KeyboardInterrupt
    found = trained.parameters.astype(np.float64)
    way = float(np.abs(wanted - begun).max())
    error = float(np.abs(found - wanted).max()) / way
    return Agreement(case=case.name, error=error, tolerance=TOLERANCE[precision])


def one_accelerator(machine: Machine, name: str) -> Machine:
    """The machine with one of its accelerators and without its CPU team."""
    links = tuple(
        link for link in machine.links
        if not {other.name for other in machine.accelerators if other.name != name} & set(link.ends)
    )  # fmt: skip
    return replace(machine, accelerators=(machine.accelerator(name),), links=links)


def check_data() -> Dataset:
    """Rows that a plane separates, the same each time."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(_ROWS, _FEATURES)).astype(np.float32)
    y = (x @ rng.normal(size=(_FEATURES, 2))).argmax(axis=1).astype(np.int64)
    rows = _ROWS - _TEST_ROWS
    return Dataset(
        name="check", train_x=x[:rows], train_y=y[:rows], test_x=x[rows:], test_y=y[rows:], classes=2,
        multilabel=False, source="made",
    )  # fmt: skip


def _loop(case: MergeCase, plan: Plan, data: Dataset) -> Vector:
    """What the run must come to."""
    recipe, change = case.recipe, case.change()
    w = initial_parameters(plan.workload, plan.run.seed).astype(np.float64)
    own = w.copy()
    for pieces in _assignments(plan, data, recipe.steps):
        if recipe.write == "gradient":
            ((x, y),) = pieces
            w, own = change(w, own, _gradient(plan.workload, w, x, y))
            continue
        local = own.copy() if recipe.read == "own" else w.copy()
        for x, y in pieces:
            local = (1.0 - _RATE * _DECAY) * local - _RATE * _gradient(plan.workload, local, x, y)
        w, own = change(w, own, local)
    return w


def _assignments(plan: Plan, data: Dataset, steps: int) -> Iterator[list[tuple[NDArray[Any], NDArray[Any]]]]:
    """The batches of one assignment after the other; the last of an epoch may be smaller."""
    for epoch in range(2):
        order = row_order(plan.run.seed, epoch, data.rows, plan.run.order)
        order = np.arange(data.rows) if order is None else order
        batches = [order[low : low + _BATCH] for low in range(0, data.rows, _BATCH)]
        for first in range(0, len(batches), steps):
            yield [(data.train_x[rows], data.train_y[rows]) for rows in batches[first : first + steps]]


def _gradient(workload: Workload, w: Vector, x: NDArray[Any], y: NDArray[Any]) -> Vector:
    """The mean gradient of the rows, by autograd on the CPU."""
    flat = torch.tensor(w, requires_grad=True)
    value: Tensor = torch.from_numpy(x.astype(np.float64))
    for number, layer in enumerate(workload.layers):
        if number:
            value = torch.sigmoid(value)
        size = layer.inputs * layer.outputs
        weights = flat[layer.weight_offset : layer.weight_offset + size].view(layer.inputs, layer.outputs)
        value = value @ weights + flat[layer.bias_offset : layer.bias_offset + layer.outputs]
    (gradient,) = torch.autograd.grad(functional.cross_entropy(value, torch.from_numpy(y)), flat)
    return gradient.numpy()
