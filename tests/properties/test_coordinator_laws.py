"""Laws of every run, whatever the policy, times, faults and settings: rows balance, no hang, decisions repeat."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsgd.models.invariants import check
from hetsgd.models.parity import first_difference
from hetsgd.models.policies import POLICIES, recipe
from hetsgd.models.policy import (
    Event,
    Fleet,
    Kind,
    LaneMode,
    Member,
    Merge,
    Recipe,
    Result,
    Rule,
    Schedule,
    View,
    Wait,
    Work,
    Write,
)
from hetsgd.models.rehearsal import Kill, rehearse
from hetsgd.models.run import Evaluation, RunSettings, StopRule
from hetsgd.models.trace import Trace

SMALL: dict[str, Any] = {
    "cpu_batch": 2, "accelerator_batch": 16, "accelerator_lower": 4, "accelerator_upper": 64, "steps": 2,
}  # fmt: skip


@dataclass(frozen=True)
class Erratic:
    """Waits, works, merges and drops as it likes; the same for the same seed and the same calls."""

    kinds: ClassVar[tuple[Kind, ...]] = ("cpu", "accelerator")
    lane_modes: ClassVar[tuple[LaneMode, ...]] = ("barrier", "free")
    max_lookahead: ClassVar[int] = 2
    reads_losses: ClassVar[bool] = False

    seed: int
    patience: float

    def begin(self, fleet: Fleet) -> Schedule:
        return ErraticSchedule(self, any(member.free for member in fleet.members))


class ErraticSchedule:
    def __init__(self, recipe: Erratic, free: bool) -> None:
        self.recipe = recipe
        self.writes: tuple[Write, ...] = (
            ("in_place", "gradient") if free else ("in_place", "gradient", "replica", "keep")
        )
        self.given = 0

    def dice(self, *what: object) -> random.Random:
        return random.Random(f"{self.recipe.seed} {self.given} {what}")

    def next(self, view: View, worker: str) -> Work | Wait:
        dice = self.dice(view.now_s, worker)
        if dice.random() < self.recipe.patience:
            events: tuple[Event, ...] = ("finished", "merged", "evaluated")
            if dice.random() < 0.5:
                return Wait(reason=f"{worker} naps", until_s=view.now_s + dice.choice([0.1, 0.25, 2.0]))
            return Wait(reason=f"{worker} waits", on=tuple(e for e in events if dice.random() < 0.6))
        self.given += 1
        write = dice.choice(self.writes)
        steps = 1 if write == "gradient" else dice.randint(1, 3)
        return Work(batch=dice.randint(1, 9), rate=0.1, steps=steps, write=write, reason=f"draw {self.given % 7}")

    def on_result(self, view: View, result: Result) -> Sequence[Merge]:
        if self.dice("result", result.id).random() < 0.3:
            return ()
        return self.merges(view, self.dice("merge", result.id))

    def on_drained(self, view: View, why: str) -> Sequence[Merge]:
        dice = self.dice("drained", view.version)
        return self.merges(view, dice) if dice.random() < 0.7 else ()

    def merges(self, view: View, dice: random.Random) -> list[Merge]:
        """Some of the held results, each write by a rule that can take it."""
        merges = []
        rules: dict[Write, tuple[Rule, ...]] = {
            "gradient": ("gradient", "discard"),
            "replica": ("overwrite", "delta", "average", "discard"),
            "keep": ("elastic", "average", "discard"),
        }
        for write, allowed in rules.items():
            ids = tuple(r.id for r in view.held.values() if r.work.write == write and dice.random() < 0.8)
            if ids:
                weights = tuple(dice.random() for _ in ids)
                rule = dice.choice(allowed)
                merges.append(Merge(inputs=ids, rule=rule, weights=weights, at_read=dice.random() < 0.5, reason=write))
        return merges


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    name = draw(st.sampled_from([*POLICIES, "erratic", "erratic", "erratic"]))
    if name == "erratic":
        return Erratic(seed=draw(st.integers(0, 99)), patience=draw(st.sampled_from([0.0, 0.3, 0.6, 1.0])))
    known = {item.name for item in POLICIES[name].parameters()}
    keys = {key: value for key, value in SMALL.items() if key in known}
    if "threshold" in known:
        keys["threshold"] = draw(st.integers(0, 4))
    if "backups" in known:
        keys["backups"] = draw(st.integers(0, 1))
    return recipe(name, **keys)


@dataclass(frozen=True)
class Case:
    recipe: Recipe
    fleet: Fleet
    run: RunSettings
    kills: list[Kill]
    seed: int

    def play(self) -> Trace:
        return rehearse(self.recipe, self.fleet, self.run, np.random.default_rng(self.seed), self.kills)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    made = draw(recipes())
    lanes = draw(st.sampled_from(made.lane_modes))
    members = []
    if "cpu" in made.kinds:
        members.append(Member(name="cpu", kind="cpu", lanes=draw(st.integers(1, 3)), free=lanes == "free"))
    if "accelerator" in made.kinds:
        count = draw(st.integers(1, 2))
        members.extend(Member(name=f"gpu{index}", kind="accelerator") for index in range(count))
    modes: list[Evaluation] = ["blocking", "concurrent", "deferred"]
    evaluation = draw(st.sampled_from(modes))
    stops: list[dict[str, Any]] = [{"epochs": 1}, {"epochs": 3}, {"updates": 30}, {"seconds": 7.3, "epochs": 9}]
    stop = dict(draw(st.sampled_from(stops)))
    if evaluation != "deferred" and draw(st.booleans()):
        stop["target_loss"] = 0.05
    if "updates" in stop:
        stop["epochs"] = 50  # gradients may be dropped for ever
    run = RunSettings(
        stop=StopRule(**stop), lanes=lanes, lookahead=draw(st.integers(0, 2)), evaluation=evaluation,
        evaluate_every_s=draw(st.sampled_from([None, None, 0.3, 2.0])),
    )  # fmt: skip
    fleet = Fleet(
        members=tuple(members), rows=draw(st.integers(1, 120)), learning_rate=0.1,
        lookahead=min(run.lookahead, made.max_lookahead),
    )  # fmt: skip
    kills = []
    for seat in draw(st.lists(st.sampled_from(fleet.seats), max_size=3)):
        team = fleet.member(seat.worker).lanes if seat.lane < 0 else 1
        left = draw(st.integers(0, team - 1))
        kills.append(Kill(at_s=draw(st.integers(0, 40)) / 8, seat=seat, lanes_left=left))
    return Case(made, fleet, run, kills, draw(st.integers(0, 10**6)))


@settings(max_examples=400)
@given(cases())
def test_every_run_ends_with_balanced_rows_rising_versions_and_decisions_that_repeat(case: Case) -> None:
    trace = case.play()
    assert check(trace, rows=case.fleet.rows) == []
    difference = first_difference(trace, recipe=case.recipe, fleet=case.fleet, run=case.run)
    assert difference is None, str(difference)
    if trace.status == "failed":
        assert trace.stop_reason == "every worker is lost" or trace.stop_reason.startswith("deadlock: ")
    if trace.stop_reason.startswith("deadlock: "):
        assert isinstance(case.recipe, Erratic), trace.stop_reason
        assert not case.kills or "waits" in trace.stop_reason
    if trace.stop_reason.startswith("after ") and "epoch" in trace.stop_reason:
        assert len(trace["epochs"]) == case.run.stop.epochs


@settings(max_examples=60)
@given(cases())
def test_a_rehearsal_is_a_function_of_its_inputs(case: Case) -> None:
    first, second = case.play(), case.play()
    assert first["calls"].tobytes() == second["calls"].tobytes()
    assert first["updates"].tobytes() == second["updates"].tobytes()


@settings(max_examples=60)
@given(cases(), st.sampled_from(["none", "summary"]))
def test_totals_do_not_depend_on_the_trace_level(case: Case, level: Any) -> None:
    full = case.play().totals
    run = RunSettings(
        stop=case.run.stop, lanes=case.run.lanes, lookahead=case.run.lookahead, evaluation=case.run.evaluation,
        evaluate_every_s=case.run.evaluate_every_s, trace=level,
    )  # fmt: skip
    assert Case(case.recipe, case.fleet, run, case.kills, case.seed).play().totals == full


@settings(max_examples=60)
@given(cases())
def test_every_live_seat_of_a_deadlock_is_named_with_its_reason(case: Case) -> None:
    """A policy that only ever waits for events: the run ends at once and says who waits for what."""
    silent = Silent()
    trace = rehearse(silent, case.fleet, case.run, np.random.default_rng(case.seed))
    assert trace.status == "failed"
    waits = [f"{seat} waits: {seat.worker} was told to" for seat in case.fleet.seats]
    assert trace.stop_reason == "deadlock: " + "; ".join(waits)


class Silent:
    kinds: ClassVar[tuple[Kind, ...]] = ("cpu", "accelerator")
    lane_modes: ClassVar[tuple[LaneMode, ...]] = ("barrier", "free")
    max_lookahead: ClassVar[int] = 0
    reads_losses: ClassVar[bool] = False

    def begin(self, fleet: Fleet) -> Schedule:
        return self

    def next(self, view: View, worker: str) -> Wait:
        return Wait(reason=f"{worker} was told to")

    def on_result(self, view: View, result: Result) -> Sequence[Merge]:
        return ()
