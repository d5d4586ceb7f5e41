"""A surrogate's state through the learner seam is what the same events do to a plain model of K numbers."""

from collections.abc import Callable

import numpy as np
import pytest

from hetsgd.models.learner import NoLearner
from hetsgd.models.plan import Plan
from hetsgd.models.policy import Assign, Merge, Rule, Seat, Work, Write
from hetsgd.models.surrogates.dynamics import Vector
from hetsgd.models.surrogates.learner import SurrogateLearner
from hetsgd.models.surrogates.tape import Tape, lead
from hetsgd.sim import simulate


class Decay:
    """A bowl without noise: the gradient is the state itself."""

    initial: Vector = np.array([1.0])

    def step(self, state: Vector, read: Vector, rate: float, rows: int) -> Vector:
        return state - rate * read

    def gradient(self, read: Vector, rows: int) -> Vector:
        return read


class Work_:
    """Assignments of one worker or several, led by hand."""

    def __init__(self) -> None:
        self.learner = SurrogateLearner("decay", Decay(), _read)
        self.count = 0

    def give(self, write: Write, worker: str = "gpu", steps: int = 1, *, own: bool = False) -> Assign:
        work = Work(batch=4, rate=0.5, steps=steps, write=write, read="own" if own else "global")
        self.count += 1
        return Assign(id=self.count, seat=Seat(worker), epoch=0, start=0, stop=4 * steps, lanes=1, work=work)

    def run(self, assign: Assign) -> None:
        self.learner.pull(assign)
        self.compute(assign)

    def compute(self, assign: Assign) -> None:
        for step in range(assign.work.steps):
            self.learner.start(assign, 0, step)
            self.learner.finish(assign, 0, step)
        if assign.work.write == "in_place":
            self.learner.push(assign)
        self.learner.result(assign)

    def merge(self, rule: Rule, *assigns: Assign, **extra: object) -> None:
        weights = (1.0 / len(assigns),) * len(assigns)
        values = {"rule": rule, "inputs": tuple(item.id for item in assigns), "weights": weights, **extra}
        self.learner.merge(Merge(**values))  # type: ignore[arg-type] # a test's keywords are of many types

    @property
    def value(self) -> float:
        return float(self.learner.state[0])


def _read(state: Vector) -> tuple[float, float, float]:
    value = float(state[0])
    return 0.9 * value, value, 1.1 * value


def test_a_copy_back_undoes_what_was_written_meanwhile() -> None:
    hand = Work_()
    slow, fast = hand.give("in_place"), hand.give("in_place", "other", 2)
    hand.learner.pull(slow)
    hand.run(fast)
    assert hand.value == 0.25
    hand.compute(slow)
    assert hand.value == 0.5


def test_a_delta_keeps_what_was_written_meanwhile() -> None:
    hand = Work_()
    slow, fast = hand.give("replica"), hand.give("in_place", "other")
    hand.learner.pull(slow)
    hand.run(fast)
    hand.compute(slow)
    hand.merge("delta", slow)
    assert hand.value == 0.0  # 0.5 of the one, minus the half that the other went from its stale start


def test_a_stale_gradient_is_that_of_the_state_it_was_read_at() -> None:
    hand = Work_()
    slow, fast = hand.give("gradient"), hand.give("in_place", "other")
    hand.learner.pull(slow)
    hand.learner.start(slow, 0, 0)
    hand.run(fast)
    hand.learner.finish(slow, 0, 0)
    hand.learner.result(slow)
    hand.merge("gradient", slow, rate=0.25)
    assert hand.value == pytest.approx(0.5 - 0.25 * 1.0)


def test_momentum_keeps_a_velocity_of_states() -> None:
    hand = Work_()
    for _ in range(2):
        assign = hand.give("gradient")
        hand.run(assign)
        hand.merge("gradient", assign, rate=0.1, momentum=0.5)
    velocity = 0.5 * 1.0 + 0.9
    assert hand.value == pytest.approx(0.9 - 0.1 * velocity)


def test_averages_and_own_replicas() -> None:
    hand = Work_()
    one, two = hand.give("keep", "a", 1, own=True), hand.give("keep", "b", 2, own=True)
    hand.run(one)
    hand.run(two)
    hand.merge("average", one, two, write_back=("a",))
    assert hand.value == pytest.approx((0.5 + 0.25) / 2)
    again = hand.give("replica", "a", own=True)
    hand.run(again)
    hand.merge("overwrite", again)
    assert hand.value == pytest.approx(0.375 / 2)


def test_an_elastic_merge_moves_replica_and_model_towards_each_other() -> None:
    hand = Work_()
    kept = hand.give("keep", "a", 1, own=True)
    hand.run(kept)
    hand.merge("elastic", kept, rate=0.2)
    assert hand.value == pytest.approx(1.0 - 0.2 * 0.5)
    again = hand.give("replica", "a", own=True)
    hand.run(again)
    hand.merge("overwrite", again)
    assert hand.value == pytest.approx((0.5 + 0.2 * 0.5) / 2)


def test_delay_compensation_is_refused_by_name() -> None:
    hand = Work_()
    assign = hand.give("gradient")
    hand.run(assign)
    with pytest.raises(ValueError, match="delay compensation"):
        hand.merge("gradient", assign, compensate=0.04)


def test_the_interval_of_a_loss_is_kept_by_its_update() -> None:
    learner = SurrogateLearner("decay", Decay(), _read)
    assert learner.begin().train == 1.0
    assert learner.intervals[0] == pytest.approx((0.9, 1.1))


@pytest.mark.parametrize("policy", ["hogwild", "hogbatch", "synchronous", "ringmaster", "easgd"])
def test_nothing_is_held_for_what_is_done_and_a_tape_repeats_the_run(plan_of: Callable[..., Plan], policy: str) -> None:
    plan = plan_of(policy, machine__cpu_lanes=4, updates=120)
    tape = Tape(SurrogateLearner("decay", Decay(), _read))
    trace = simulate(plan, tape)
    plain = simulate(plan, NoLearner())
    assert trace.totals.updates == plain.totals.updates
    again = SurrogateLearner("decay", Decay(), _read)
    losses = lead(again, tape.calls)
    assert [loss.train for loss in losses] == [loss.train for loss in tape.losses]
    assert len(again.held) <= 64
