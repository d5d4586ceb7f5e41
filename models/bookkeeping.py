"""How the coordinator writes the trace: decisions, calls and answers, and what became of every row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from hetsgd.models.policy import (
    EVENTS,
    READS,
    RULES,
    WRITES,
    Assign,
    Evaluate,
    Event,
    Fault,
    Fleet,
    Kind,
    Loss,
    Merge,
    Result,
    Seat,
    Stop,
    Wait,
    Work,
)
from hetsgd.models.trace import ANSWERS, CALLS, FATES, Call, Fate, Trace

_READ = {name: code for code, name in enumerate(READS)}
_WRITE = {name: code for code, name in enumerate(WRITES)}
_RULE = {name: code for code, name in enumerate(RULES)}
_FATE = {name: code for code, name in enumerate(FATES)}
_CALL = {name: code for code, name in enumerate(CALLS)}
_EVENT = {name: 1 << code for code, name in enumerate(EVENTS)}
_NONE, _ASSIGN, _EVALUATE, _WAIT, _STOP, _MERGE = range(len(ANSWERS))
_REQUEST, _FINISHED, _IN_PLACE = _CALL["request"], _CALL["finished"], _FATE["in_place"]
_TRIM_EVERY: Final = 1024
_NAN: Final = math.nan


def event_mask(events: Iterable[Event]) -> int:
    """Events as the bits that the column `events` of `calls` holds, by their order in policy.EVENTS.

    >>> event_mask(("finished", "evaluated"))
    5
    """
    return sum(_EVENT[event] for event in events)


class _Worker:
    """What rows about one worker are written with; `work` is the last that it was given, with its codes."""

    __slots__ = ("code", "kind", "read", "reason", "work", "write")

    def __init__(self, code: int, kind: Kind) -> None:
        self.code = code
        self.kind = kind
        self.work: Work | None = None
        self.read = self.write = self.reason = 0


class Books:
    """Writes one run's decisions into its trace; every row that was given out ends with exactly one fate.

    What is written for every assignment goes straight into the buffers of the tables.
    """

    def __init__(self, trace: Trace, fleet: Fleet) -> None:
        self._trace = trace
        self._full = trace.level == "full"
        self._some = trace.level != "none"
        self._calls = 0
        self._rows: dict[int, int] = {}
        self._decided: dict[int, tuple[int, float, Sequence[Result]]] = {}
        self._tables = [trace.tables[name] for name in ("assignments", "results", "fates", "calls")]
        (
            (self._add_assignment, self._assignment_row),
            (self._add_result, self._result_row),
            (self._add_fate, self._fate_row),
            (self._add_call, self._call_row),
        ) = ((table.buffer.append, table.packed) for table in self._tables)
        self._blank = trace.code("")
        self._workers = {member.name: _Worker(trace.code(member.name), member.kind) for member in fleet.members}
        trace.workers.update({name: worker.kind for name, worker in self._workers.items()})

    def call(
        self, call: Call, now_s: float, seat: Seat | None, id_: int, detail: str = "", answer: int = _NONE,
        answer_id: int = -1, until_s: float = math.nan, events: int = 0,
    ) -> None:  # fmt: skip
        """Record one call of the coordinator with its answer."""
        self._calls += 1
        if not self._calls % _TRIM_EVERY:
            self._trim()
        if self._full:
            worker, lane = (self._workers[seat.worker].code, seat.lane) if seat is not None else (self._blank, -1)
            detail_text = self._trace.code(detail) if detail else self._blank
            self._add_call(
                self._call_row(_CALL[call], now_s, worker, lane, id_, answer, answer_id, detail_text, until_s, events)
            )

    def _trim(self) -> None:
        """Keep the buffers short: to be called now and then."""
        for table in self._tables:
            table.trim()

    def request(self, seat: Seat, now_s: float, answer: Evaluate | Wait | Stop) -> None:
        """Record a request that was not answered with an assignment; that is what `assigned` does."""
        if isinstance(answer, Wait):
            until_s = math.nan if answer.until_s is None else answer.until_s
            self.call("request", now_s, seat, -1, answer.reason, _WAIT, -1, until_s, event_mask(answer.on))
        elif isinstance(answer, Evaluate):
            self.call("request", now_s, seat, -1, "", _EVALUATE, answer.id)
        else:
            self.call("request", now_s, seat, -1, answer.reason, _STOP)

    def assigned(self, assign: Assign, now_s: float) -> None:
        """Record a request with what was given out, and why."""
        work, id_, start, stop = assign.work, assign.id, assign.start, assign.stop
        name, lane = assign.seat
        worker = self._workers[name]
        if work is not worker.work:
            self._note(name, worker, work)
        self._rows[id_] = stop - start
        if self._some:
            row = self._assignment_row(
                id_, self._calls, now_s, worker.code, lane, assign.epoch, start, stop, assign.lanes, work.batch,
                work.steps, work.rate, worker.read, worker.write, worker.reason,
            )  # fmt: skip
            self._add_assignment(row)
            if self._full:
                self._add_call(
                    self._call_row(_REQUEST, now_s, worker.code, lane, -1, _ASSIGN, id_, self._blank, _NAN, 0)
                )
        self._calls += 1
        if not id_ % _TRIM_EVERY:
            self._trim()

    def _note(self, name: str, worker: _Worker, work: Work) -> None:
        """A worker is given other work than before: look up its codes, once."""
        trace = self._trace
        trace.totals.batch[name] = work.batch
        worker.work, worker.read, worker.write = work, _READ[work.read], _WRITE[work.write]
        worker.reason = trace.code(work.reason) if self._some else self._blank

    def finished(self, assign: Assign, result: Result, now_s: float) -> None:
        """Record a result; in-place work is in the model by now, the rest has its fate to come."""
        trace, id_, steps = self._trace, result.id, result.steps
        name, lane = assign.seat
        worker = self._workers[name]
        trace.totals.steps[worker.kind] += steps
        if self._full:
            self._add_call(self._call_row(_FINISHED, now_s, worker.code, lane, id_, _NONE, -1, self._blank, _NAN, 0))
        self._calls += 1
        if self._some:
            row = self._result_row(
                id_, result.start_s, result.end_s, result.read, result.wrote, result.rows, result.updates, steps
            )
            self._add_result(row)
        if result.stats:
            for statistic, value in result.stats.items():
                trace.tables["stats"].add((id_, trace.code(statistic), value))
        if assign.work.write == "in_place":
            rows = self._rows.pop(id_)
            trace.totals.rows["in_place"] += rows
            if self._some:
                self._add_fate(self._fate_row(id_, _IN_PLACE, now_s, -1, rows, self._blank))

    def fate(self, id_: int, fate: Fate, now_s: float, *, merge: int = -1, reason: str = "") -> None:
        """Record what became of an assignment's rows."""
        rows = self._rows.pop(id_)
        self._trace.totals.rows[fate] += rows
        reason_text = self._trace.code(reason) if reason else self._blank
        if self._some:
            self._add_fate(self._fate_row(id_, _FATE[fate], now_s, merge, rows, reason_text))

    def decided(self, merge: Merge, id_: int, results: Sequence[Result], now_s: float) -> Merge:
        """Number a merge; one that discards is done with this."""
        numbered = replace(merge, id=id_)
        self._decided[id_] = (self._calls - 1, now_s, results)
        if merge.rule == "discard":
            self._merge(numbered, -1, now_s, now_s)
            for result in results:
                self.fate(result.id, "discarded", now_s, merge=id_, reason=merge.reason)
        return numbered

    def merged(self, merge: Merge, version: int, start_s: float, now_s: float) -> None:
        """Record that a merge landed and its inputs are in the model; count it as an update of their classes."""
        self.call("merged", now_s, None, merge.id, answer_id=version)
        results = self._merge(merge, version, start_s, now_s)
        totals, share = self._trace.totals, 1.0 / len(results)
        for result in results:
            kind = self._workers[result.seat.worker].kind
            totals.updates[kind] += share
            totals.staleness[kind][version - 1 - result.read] += 1
            self.fate(result.id, "merged", now_s, merge=merge.id)
        if self._full:
            read = min(result.read for result in results)
            rows = sum(result.rows for result in results)
            self._trace.updates.add((version, read, now_s, self._trace.code(""), -1, -1, merge.id, rows))

    def _merge(self, merge: Merge, version: int, start_s: float, end_s: float) -> Sequence[Result]:
        """Write a merge and its inputs; version -1: it was no update (dropped, or not landed at the stop)."""
        trace = self._trace
        call, decided_s, results = self._decided.pop(merge.id)
        for result, weight in zip(results, merge.weights or (1.0,) * len(results), strict=True):
            staleness = version - 1 - result.read if version >= 0 else -1
            trace.tables["merge_inputs"].add((merge.id, result.id, weight, staleness))
        row = (
            merge.id, call, _RULE[merge.rule], decided_s, start_s, end_s, version, merge.rate, merge.momentum,
            merge.compensate, int(merge.at_read), trace.code(",".join(merge.write_back)), trace.code(merge.reason),
        )  # fmt: skip
        trace.tables["merges"].add(row)
        return results

    def loss(self, id_: int, loss: Loss) -> None:
        """Record one point of the loss curve: nan where losses are not computed, inf where the run diverged."""
        train = math.inf if loss.diverged else loss.train
        row = (
            id_, loss.epoch, loss.update, loss.at_s, loss.end_s, train, loss.test, loss.train_score,
            loss.test_score,
        )  # fmt: skip
        self._trace.tables["evaluations"].add(row)

    def evaluated(self, evaluate: Evaluate, loss: Loss, now_s: float) -> None:
        """Record the answer to an ordered evaluation."""
        self.call("evaluated", now_s, None, evaluate.id)
        self.loss(evaluate.id, loss)

    def failed(self, fault: Fault, lost: Sequence[Assign | Result], now_s: float) -> None:
        """Record a lost worker or lane with the rows that went with it."""
        trace = self._trace
        self.call("failed", now_s, fault.seat, fault.lanes_left, fault.kind, answer_id=int(fault.half_applied))
        rows = 0
        for item in lost:
            rows += item.rows
            half = fault.half_applied and item.work.write == "in_place"
            self.fate(item.id, "lost", now_s, reason=f"{fault.kind}, may be half applied" if half else fault.kind)
        row = (now_s, trace.code(fault.seat.worker), fault.seat.lane, trace.code(fault.kind), rows)
        trace.tables["faults"].add(row)

    def epoch(self, epoch: int, start_s: float, end_s: float) -> None:
        """Record a finished epoch."""
        self._trace.tables["epochs"].add((epoch, start_s, end_s))

    def stop(self, reason: str, status: str, now_s: float) -> None:
        """Record that the engine ended the run."""
        self.call("stop", now_s, None, -1, f"{status}: {reason}")

    def close(
        self, now_s: float, in_flight: Iterable[Assign], held: Iterable[Result], merging: Iterable[Merge],
        reason: str, status: str,
    ) -> None:  # fmt: skip
        """Record the end of the run and what is still open: work in flight, held results, merges under way."""
        for assign in in_flight:
            self.fate(assign.id, "in_flight", now_s)
        for result in held:
            self.fate(result.id, "held", now_s)
        for merge in merging:
            self._merge(merge, -1, math.nan, math.nan)
            for key in merge.inputs:
                self.fate(key, "held", now_s, merge=merge.id, reason="its merge had not landed at the stop")
        self._trace.elapsed_s = now_s
        self._trace.stop_reason = reason
        self._trace.status = status
