"""Whether a recorded run's decisions are those of its policy: its calls are fed to a fresh coordinator (invariant 6).

A run of the real executor cannot be repeated, but its coordinator can: given the same calls at the same times, a
coordinator with the same recipe must answer the same, Waits included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import cast

from hetsgd.models.coordinator import Answer, Coordinator, Status
from hetsgd.models.policy import (
    EVENTS,
    Evaluate,
    Fault,
    Fleet,
    Merge,
    PolicyError,
    Recipe,
    Seat,
    Stop,
    Wait,
)
from hetsgd.models.recorded import Recorded, Row
from hetsgd.models.run import RunSettings
from hetsgd.models.trace import ANSWERS, CALLS, Trace

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
        self._recorded = Recorded(trace)
        self._texts = trace.texts
        self._calls: list[Row] = trace["calls"].tolist()
        self._snapshots: list[int] = []
        self._coordinator = Coordinator(recipe=recipe, fleet=fleet, run=run, trace=Trace(level="none"))

    def compare(self) -> Difference | None:
        """Feed all calls; stop at the first answer that differs."""
        if -1 in self._recorded.losses:
            self._coordinator.begin(self._recorded.loss(-1))
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
        coordinator, recorded, now_s, id_ = self._coordinator, self._recorded, row[1], row[4]
        if name == "request":
            return _unlike(self._answer(row), _plain(coordinator.request(self._seat(row), now_s)))
        if name == "snapshot":
            self._snapshots = self._snapshots or [order.id for order in coordinator.snapshots(now_s)]
            return _unlike(id_, self._snapshots.pop(0) if self._snapshots else None)
        merges: Sequence[Merge] = ()
        if name == "finished":
            merges = coordinator.finished(recorded.result(id_), now_s)
        elif name == "merged":
            merge = coordinator.merging[id_]
            merges = coordinator.merged(merge, version=row[6], start_s=recorded.merge_rows[id_][4], now_s=now_s)
        elif name == "evaluated":
            loss = recorded.loss(id_)
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
        decided = [recorded.merge(key) for key in recorded.merges_of.get(number, ())]
        return _unlike(decided, [_normal(merge) for merge in merges])

    # -- from rows to values --------------------------------------------------------------------------------------

    def _seat(self, row: Row) -> Seat:
        return Seat(self._texts[row[2]], row[3])

    def _answer(self, row: Row) -> Answer | int:
        answer, detail = ANSWERS[row[5]], self._texts[row[7]]
        if answer == "assign":
            return self._recorded.assign(row[6])
        if answer == "evaluate":
            return int(row[6])
        if answer == "stop":
            return Stop(reason=detail)
        events = tuple(event for code, event in enumerate(EVENTS) if row[9] >> code & 1)
        return Wait(reason=detail, until_s=None if math.isnan(row[8]) else row[8], on=events)


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
