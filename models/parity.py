"""Whether a recorded run's decisions are those of its policy: its calls are fed to a fresh coordinator (invariant 6).

A run of the real executor cannot be repeated, but its coordinator can: given the same calls at the same times, a
coordinator with the same recipe must answer the same, Waits included.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

from hetsgd.models.coordinator import Answer, Coordinator, Status
from hetsgd.models.policy import (
    EVENTS,
    READS,
    RULES,
    WRITES,
    Assign,
    Evaluate,
    Fault,
    Fleet,
    Loss,
    Merge,
    PolicyError,
    Recipe,
    Result,
    Seat,
    Stop,
    Wait,
    Work,
)
from hetsgd.models.run import RunSettings
from hetsgd.models.trace import ANSWERS, CALLS, Trace

Row = tuple[Any, ...]
Unlike = tuple[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first call whose answer differs: its number, what was called, and both answers in words."""

    call: int
    what: str
    recorded: str
    replayed: str

    def __str__(self) -> str:
        return f"call {self.call} ({self.what}): recorded {self.recorded}, replayed {self.replayed}"


def first_difference(trace: Trace, *, recipe: Recipe, fleet: Fleet, run: RunSettings) -> Difference | None:
    """The first decision of a recorded run that a fresh coordinator does not repeat; None: it repeats them all.

    `recipe`, `fleet` and `run` are those of the run. ValueError when the trace is not at level `full`.
    """
    if trace.level != "full":
        raise ValueError(f"trace: a replay needs the calls that only level 'full' keeps, got level {trace.level!r}")
    return _Replay(trace, recipe, fleet, run).compare()


class _Replay:
    """A recorded trace, decoded, beside the coordinator that repeats it."""

    def __init__(self, trace: Trace, recipe: Recipe, fleet: Fleet, run: RunSettings) -> None:
        self._texts = trace.texts
        self._calls: list[Row] = trace["calls"].tolist()
        self._assigned: dict[int, Row] = {row[0]: row for row in trace["assignments"].tolist()}
        self._results: dict[int, Row] = {row[0]: row for row in trace["results"].tolist()}
        self._stats: dict[int, dict[str, float]] = defaultdict(dict)
        for id_, name, value in trace["stats"].tolist():
            self._stats[id_][self._texts[name]] = value
        self._losses: dict[int, Row] = {row[0]: row for row in trace["evaluations"].tolist()}
        self._merges: dict[int, Row] = {row[0]: row for row in trace["merges"].tolist()}
        self._inputs: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for merge, id_, weight, _ in trace["merge_inputs"].tolist():
            self._inputs[merge].append((id_, weight))
        self._merges_of: dict[int, list[int]] = defaultdict(list)
        for id_, row in sorted(self._merges.items()):
            self._merges_of[row[1]].append(id_)
        self._snapshots: list[int] = []
        self._coordinator = Coordinator(recipe=recipe, fleet=fleet, run=run, trace=Trace(level="none"))

    def compare(self) -> Difference | None:
        """Feed all calls; stop at the first answer that differs."""
        if -1 in self._losses:
            self._coordinator.begin(self._loss(-1))
        for number, row in enumerate(self._calls):
            try:
                unlike = self._step(number, CALLS[row[0]], row)
            except (PolicyError, KeyError) as error:
                unlike = "an answer", f"{type(error).__name__}: {error}"
            if unlike is not None:
                about = str(self._seat(row)) or f"{row[4]}"
                what = f"{CALLS[row[0]]} {about} at {row[1]!r} s"
                return Difference(call=number, what=what, recorded=unlike[0], replayed=unlike[1])
        return None

    def _step(self, number: int, name: str, row: Row) -> Unlike:
        coordinator, now_s, id_ = self._coordinator, row[1], row[4]
        if name == "request":
            return _unlike(self._answer(row), _plain(coordinator.request(self._seat(row), now_s)))
        if name == "snapshot":
            self._snapshots = self._snapshots or [order.id for order in coordinator.snapshots(now_s)]
            return _unlike(id_, self._snapshots.pop(0) if self._snapshots else None)
        merges: Sequence[Merge] = ()
        if name == "finished":
            merges = coordinator.finished(self._result(id_), now_s)
        elif name == "merged":
            merge = coordinator.merging[id_]
            merges = coordinator.merged(merge, version=row[6], start_s=self._merges[id_][4], now_s=now_s)
        elif name == "evaluated":
            loss = self._loss(id_)
            merges = coordinator.evaluated(Evaluate(id=id_, epoch=loss.epoch, update=loss.update), loss, now_s)
        elif name == "failed":
            kind, half = self._texts[row[7]], bool(row[6])
            fault = Fault(seat=self._seat(row), kind=kind, lanes_left=id_, half_applied=half)
            merges = coordinator.failed(fault, now_s)
        elif name == "stop":
            status, _, reason = self._texts[row[7]].partition(": ")
            coordinator.stop(reason, now_s, cast(Status, status))
        else:
            coordinator.tick(now_s)
        recorded = [self._merge(key) for key in self._merges_of.get(number, ())]
        return _unlike(recorded, [_normal(merge) for merge in merges])

    # -- from rows to values --------------------------------------------------------------------------------------

    def _seat(self, row: Row) -> Seat:
        return Seat(self._texts[row[2]], row[3])

    def _answer(self, row: Row) -> Answer | int:
        answer, detail = ANSWERS[row[5]], self._texts[row[7]]
        if answer == "assign":
            return self._assign(row[6])
        if answer == "evaluate":
            return int(row[6])
        if answer == "stop":
            return Stop(reason=detail)
        events = tuple(event for code, event in enumerate(EVENTS) if row[9] >> code & 1)
        return Wait(reason=detail, until_s=None if math.isnan(row[8]) else row[8], on=events)

    def _assign(self, id_: int) -> Assign:
        row = self._assigned[id_]
        work = Work(
            batch=row[9], steps=row[10], rate=row[11], read=READS[row[12]], write=WRITES[row[13]],
            reason=self._texts[row[14]],
        )  # fmt: skip
        seat = Seat(self._texts[row[3]], row[4])
        return Assign(id=id_, seat=seat, epoch=row[5], start=row[6], stop=row[7], lanes=row[8], work=work)

    def _result(self, id_: int) -> Result:
        row, assign = self._results[id_], self._assign(id_)
        return Result(
            id=id_, seat=assign.seat, rows=row[5], updates=row[6], steps=row[7], read=row[3], wrote=row[4],
            start_s=row[1], end_s=row[2], work=assign.work, stats=self._stats.get(id_, {}),
        )  # fmt: skip

    def _merge(self, id_: int) -> Merge:
        row = self._merges[id_]
        workers = self._texts[row[11]]
        return Merge(
            inputs=tuple(key for key, _ in self._inputs[id_]),
            rule=RULES[row[2]],
            weights=tuple(weight for _, weight in self._inputs[id_]),
            rate=row[7],
            momentum=row[8],
            compensate=row[9],
            at_read=bool(row[10]),
            write_back=tuple(workers.split(",")) if workers else (),
            reason=self._texts[row[12]],
            id=id_,
        )

    def _loss(self, id_: int) -> Loss:
        row = self._losses[id_]
        return Loss(
            epoch=row[1], update=row[2], at_s=row[3], end_s=row[4], train=row[5], test=row[6], train_score=row[7],
            test_score=row[8], computed=not math.isnan(row[5]),
        )  # fmt: skip


def _normal(merge: Merge) -> Merge:
    """The merge as the trace keeps it: weights that a rule does not need are 1."""
    values = {field.name: getattr(merge, field.name) for field in fields(merge)}
    return Merge(**(values | {"weights": merge.weights or (1.0,) * len(merge.inputs)}))


def _plain(answer: Answer) -> Answer | int:
    """The answer as the trace keeps it: an evaluation by its number, waits with their events in order."""
    if isinstance(answer, Evaluate):
        return answer.id
    if isinstance(answer, Wait):
        return Wait(reason=answer.reason, until_s=answer.until_s, on=tuple(e for e in EVENTS if e in answer.on))
    return answer


def _unlike(recorded: object, replayed: object) -> Unlike:
    return None if recorded == replayed else (str(recorded), str(replayed))
