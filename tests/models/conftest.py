"""A coordinator that a test drives by hand, and a policy that answers what the test wants."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from hetsgd.models.coordinator import Answer, Coordinator
from hetsgd.models.policy import (
    Assign,
    Evaluate,
    Fault,
    Fleet,
    Kind,
    LaneMode,
    Loss,
    Member,
    Merge,
    Recipe,
    Result,
    Schedule,
    Seat,
    View,
    Wait,
    Work,
)
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.trace import Trace

CPU = Member(name="cpu", kind="cpu", lanes=4)
GPU = Member(name="gpu", kind="accelerator")


class Hand:
    """A coordinator with a clock and versions that the test moves; everything takes effect when it is reported."""

    def __init__(self, recipe: Recipe, members: Iterable[Member], rows: int, momentum: float, **run: Any) -> None:
        values: dict[str, Any] = {"stop": StopRule(epochs=1), "learning_rate": 0.5}
        settings = RunSettings(**(values | run))
        self.trace = Trace()
        self.run = settings
        self.recipe = recipe
        self.fleet = Fleet(
            members=tuple(members), rows=rows, learning_rate=settings.learning_rate, momentum=momentum,
            lookahead=min(settings.lookahead, recipe.max_lookahead),
        )  # fmt: skip
        self.coordinator = Coordinator(recipe=recipe, fleet=self.fleet, run=settings, trace=self.trace)
        self.now_s = 0.0
        self.version = 0

    def ask(self, worker: str, lane: int = -1) -> Answer:
        return self.coordinator.request(Seat(worker, lane), self.now_s)

    def give(self, worker: str, lane: int = -1) -> Assign:
        answer = self.ask(worker, lane)
        assert isinstance(answer, Assign), answer
        return answer

    def finish(self, assign: Assign, read: int | None = None, stats: dict[str, float] | None = None) -> list[Merge]:
        updates = 0
        if assign.work.write == "in_place":
            updates = 1 if self.fleet.member(assign.seat.worker).kind == "accelerator" else assign.pieces
        before = self.version if read is None else read
        self.version += updates
        result = Result(
            id=assign.id, seat=assign.seat, rows=assign.rows, updates=updates, steps=assign.pieces, read=before,
            wrote=self.version if updates else before, start_s=self.now_s, end_s=self.now_s, work=assign.work,
            stats=stats or {},
        )  # fmt: skip
        return list(self.coordinator.finished(result, self.now_s))

    def land(self, merge: Merge) -> list[Merge]:
        self.version += 1
        start_s, now_s = self.now_s, self.now_s
        return list(self.coordinator.merged(merge, version=self.version, start_s=start_s, now_s=now_s))

    def evaluate(self, order: Answer, train: float) -> list[Merge]:
        assert isinstance(order, Evaluate), order
        loss = Loss(at_s=self.now_s, epoch=order.epoch, update=self.version, end_s=self.now_s, train=train)
        return list(self.coordinator.evaluated(order, loss, self.now_s))

    def kill(self, worker: str, lane: int = -1, lanes_left: int = 0, half_applied: bool = False) -> list[Merge]:
        fault = Fault(seat=Seat(worker, lane), kind="killed", lanes_left=lanes_left, half_applied=half_applied)
        return list(self.coordinator.failed(fault, self.now_s))

    def fates(self) -> dict[str, int]:
        return {fate: rows for fate, rows in self.trace.totals.rows.items() if rows}


@dataclass
class Scripted:
    """A policy whose answers a test gives as functions; it counts what it was asked."""

    kinds: ClassVar[tuple[Kind, ...]] = ("cpu", "accelerator")
    lane_modes: ClassVar[tuple[LaneMode, ...]] = ("barrier", "free")
    max_lookahead: ClassVar[int] = 2
    reads_losses: ClassVar[bool] = False

    work: Callable[[View, str], Work | Wait] = field(default=lambda view, worker: Work(batch=2, rate=0.5))
    result: Callable[[View, Result], list[Merge]] = field(default=lambda view, result: [])
    fault: Callable[[View, Fault], list[Merge]] = field(default=lambda view, fault: [])
    drained: Callable[[View, str], list[Merge]] = field(default=lambda view, why: [])
    asked: list[str] = field(default_factory=list)
    drains: list[str] = field(default_factory=list)

    def begin(self, fleet: Fleet) -> Schedule:
        return self

    def next(self, view: View, worker: str) -> Work | Wait:
        self.asked.append(worker)
        return self.work(view, worker)

    def on_result(self, view: View, result: Result) -> list[Merge]:
        return self.result(view, result)

    def on_fault(self, view: View, fault: Fault) -> list[Merge]:
        return self.fault(view, fault)

    def on_drained(self, view: View, why: str) -> list[Merge]:
        self.drains.append(why)
        return self.drained(view, why)


@pytest.fixture
def hand() -> Callable[..., Any]:
    """Make a `Hand`: hand(recipe, members=..., rows=..., momentum=..., **run settings)."""

    def make(
        recipe: Recipe, *, members: Iterable[Member] = (CPU, GPU), rows: int = 1000, momentum: float = 0.0, **run: Any
    ) -> Hand:
        return Hand(recipe, members, rows, momentum, **run)

    return make


@pytest.fixture
def scripted() -> Callable[..., Any]:
    """Make a `Scripted` policy: scripted(work=..., result=..., fault=..., drained=...)."""
    return Scripted
