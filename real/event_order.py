"""Event-order replay: the loss curve that a recorded order of reads and writes implies.

A trace says which version of the model every piece read and which version every write made. Replaying that order
with exact arithmetic gives the losses of the same run on a machine whose lanes see whole versions: what differs
from the losses that were measured is due to what no record holds (torn reads, lost updates, rounding), and what
differs from a prediction is due to the predicted order and its times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.plan import Plan
from hetsgd.models.policy import Assign, Loss, Merge, Seat
from hetsgd.models.recorded import Recorded, Row
from hetsgd.models.trace import SPAN_CODE, Trace
from hetsgd.real.replay import ReplayLearner

_WRITES: Final = 0  # what makes a version comes before all that read it
_READS: Final = 1

Happen = Callable[[ReplayLearner], None]
Step = tuple[int, int, float, int, Happen]
"""Version, whether it makes that version or reads it, time, number, and what happens."""


def event_order_replay(trace: Trace, plan: Plan, dataset: Dataset, *, threads: int = 1) -> tuple[Loss, ...]:
    """The losses of the evaluations of a trace, in the order of the table, with the order of events as recorded.

    `plan` is that of the run, `trace` of level `full`, from either engine. What a version was is exact for updates
    in place and for copies of an accelerator; of a team's gradient, whose lanes record their times only, each lane
    reads the version of that time, and lanes on a replica of the team step in the order of their times.

    Raises ValueError where the trace is not `full`, or workers or lanes were lost: which rows a lost lane had written
    is not recorded.
    """
    if trace.level != "full":
        raise ValueError(f"event order: needs the updates that only level 'full' keeps, got level {trace.level!r}")
    if len(trace["faults"]):
        raise ValueError("event order: a run that lost workers or lanes cannot be replayed, since half-done work of "
                         "theirs is in the model")  # fmt: skip
    learner = ReplayLearner(plan, dataset, threads=threads)
    losses: dict[int, Loss] = {}
    order = _Order(trace, losses)
    for *_, happen in sorted(order.steps(), key=lambda step: step[:4]):
        happen(learner)
    return tuple(losses[row] for row in range(len(trace["evaluations"])))


@dataclass(frozen=True, slots=True)
class _Piece:
    """One lane step of an assignment that was computed from `start_s` to `end_s`."""

    lane: int
    step: int
    start_s: float
    end_s: float


class _Order:
    """The steps of a recorded run. Times only order what happened within one version."""

    def __init__(self, trace: Trace, losses: dict[int, Loss]) -> None:
        self._recorded = Recorded(trace)
        self._trace = trace
        self._losses = losses
        self._number = 0
        updates = np.sort(trace["updates"], order="version")
        self._update_s = np.maximum.accumulate(updates["at_s"])
        self._in_place: dict[int, list[Row]] = defaultdict(list)
        for row in updates[updates["merge"] < 0].tolist():
            self._in_place[row[5]].append(row)
        spans, texts = trace["spans"], trace.texts
        self._computed: dict[int, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
        for _, place, _, id_, start_s, end_s, _ in spans[spans["kind"] == SPAN_CODE["compute"]].tolist():
            self._computed[id_][texts[place]].append((start_s, end_s))
        self._merges_of_seat: dict[Seat, list[tuple[float, int, int]]] = defaultdict(list)
        for id_, row in self._recorded.merge_rows.items():
            for key in self._recorded.merge(id_).inputs if row[6] >= 0 else ():
                self._merges_of_seat[self._recorded.assign(key).seat].append((row[3], key, row[6]))

    # -- what was recorded ----------------------------------------------------------------------------------------

    def _version_at(self, at_s: float) -> int:
        """The version of the model that somebody saw at this time."""
        return int(np.searchsorted(self._update_s, at_s, side="left"))

    def _merged_before(self, assign: Assign, at_s: float) -> int:
        """The version after the merges of the seat's earlier results: it began when they had landed."""
        found = self._merges_of_seat.get(assign.seat, ())
        return max((version for decided_s, key, version in found if decided_s <= at_s and key < assign.id), default=0)

    @staticmethod
    def _position(assign: Assign, lane: int) -> int:
        """Which of the assignment's lanes a lane of the team is: a free lane has the assignment to itself."""
        return lane if assign.seat.lane < 0 else 0

    def _pieces(self, assign: Assign) -> list[_Piece]:
        """The lane steps by the time of their start. Where one span covers several steps, they share it evenly."""
        found = []
        for place, spans in self._computed.get(assign.id, {}).items():
            name = place.partition("[")[2].rstrip("]")
            is_lane = self._trace.workers[assign.seat.worker] == "cpu" and name.isdecimal()
            lane = self._position(assign, int(name)) if is_lane else 0
            steps = len(assign.chunks(lane))
            if len(spans) == steps + 1:
                spans = sorted(spans)[1:]  # gradient norms were measured first
            if len(spans) != steps:
                start_s, end_s = spans[0][0], spans[-1][1]
                edges = np.linspace(start_s, end_s, steps + 1).tolist()
                spans = list(pairwise(edges))
            found += [_Piece(lane, step, start_s, end_s) for step, (start_s, end_s) in enumerate(sorted(spans))]
        return sorted(found, key=lambda piece: (piece.start_s, piece.lane, piece.step))

    # -- steps ----------------------------------------------------------------------------------------------------

    def steps(self) -> Iterator[Step]:
        """All of them, in any order."""
        recorded = self._recorded
        for row, (id_, epoch, update, at_s, end_s, *_) in enumerate(self._trace["evaluations"].tolist()):
            happen = self._evaluation(row, epoch, update, at_s, end_s)
            yield self._step(update if id_ >= 0 else 0, _READS, at_s, happen)
        for id_ in recorded.assigned:
            assign = recorded.assign(id_)
            if assign.work.write == "in_place":
                yield from self._written_in_place(assign)
            elif id_ in recorded.results:
                yield from self._handed_in(assign)
        for id_, merge_row in recorded.merge_rows.items():
            yield from self._merged(recorded.merge(id_), merge_row)

    def _step(self, version: int, phase: int, at_s: float, happen: Happen) -> Step:
        self._number += 1
        return version, phase, at_s, self._number, happen

    def _evaluation(self, row: int, epoch: int, update: int, at_s: float, end_s: float) -> Happen:
        def happen(learner: ReplayLearner) -> None:
            loss = learner.evaluate(at_s=at_s, epoch=epoch, update=update)
            self._losses[row] = replace(loss, end_s=end_s)

        return happen

    def _written_in_place(self, assign: Assign) -> Iterator[Step]:
        rows = self._in_place.get(assign.id, [])
        if not rows:
            return
        if self._trace.workers[assign.seat.worker] == "accelerator":
            yield from self._copied_back(assign, rows[0])
            return
        done: dict[int, int] = defaultdict(int)
        for version, read, at_s, _, lane, *_ in rows:
            position, step = self._position(assign, lane), done[lane]
            done[lane] += 1
            yield self._step(read, _READS, at_s, _starting(assign, position, step))
            yield self._step(version, _WRITES, at_s, _finishing(assign, position, step))
        last = rows[-1]
        yield self._step(last[0], _READS, last[2], lambda learner: _hand_in(learner, assign))

    def _copied_back(self, assign: Assign, row: Row) -> Iterator[Step]:
        version, read, at_s = row[:3]

        def computed(learner: ReplayLearner) -> None:
            learner.pull(assign)
            for step in range(assign.pieces):
                learner.start(assign, 0, step)
                learner.finish(assign, 0, step)

        def pushed(learner: ReplayLearner) -> None:
            learner.push(assign)
            learner.result(assign)

        yield self._step(read, _READS, at_s, computed)
        yield self._step(version, _WRITES, at_s, pushed)

    def _handed_in(self, assign: Assign) -> Iterator[Step]:
        """A gradient or a replica: read at its version, and handed in when its last piece is done."""
        result, pieces = self._recorded.result(assign.id), self._pieces(assign)
        if assign.work.write == "gradient" and self._trace.workers[assign.seat.worker] == "cpu":
            for piece in pieces:
                read = max(result.read, self._version_at(piece.start_s))
                yield self._step(read, _READS, piece.start_s, _starting(assign, piece.lane, piece.step))
                yield self._step(read, _READS, piece.start_s, _finishing(assign, piece.lane, piece.step))
            return
        begun_s = pieces[0].start_s if pieces else result.start_s
        read = result.read
        if assign.work.read == "own":
            # What was recorded is the version of the replica; which global model stood beside it, the time says.
            read = max(self._version_at(begun_s), self._merged_before(assign, begun_s))
        moments = sorted(
            moment
            for number, piece in enumerate(pieces)
            for moment in ((piece.start_s, _READS, number), (piece.end_s, _WRITES, number))
        )

        def computed(learner: ReplayLearner) -> None:
            learner.pull(assign)
            for _, phase, number in moments:
                piece = pieces[number]
                (learner.start if phase == _READS else learner.finish)(assign, piece.lane, piece.step)
            learner.result(assign)

        yield self._step(read, _READS, begun_s, computed)

    def _merged(self, merge: Merge, row: Row) -> Iterator[Step]:
        decided_s, end_s, version = row[3], row[5], row[6]
        if merge.rule == "discard":
            read = max([self._version_at(decided_s), *(self._recorded.result(key).read for key in merge.inputs)])
            yield self._step(read, _READS, self._trace.elapsed_s, lambda learner: learner.merge(merge))
        elif version >= 0:
            yield self._step(version, _WRITES, end_s, lambda learner: learner.merge(merge))


def _hand_in(learner: ReplayLearner, assign: Assign) -> None:
    learner.result(assign)


def _starting(assign: Assign, lane: int, step: int) -> Happen:
    return lambda learner: learner.start(assign, lane, step)


def _finishing(assign: Assign, lane: int, step: int) -> Happen:
    return lambda learner: learner.finish(assign, lane, step)
