"""What a trace recorded, as values again: assignments, results, merges and losses by their numbers."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from hetsgd.models.policy import READS, RULES, WRITES, Assign, Loss, Merge, Result, Seat, Work
from hetsgd.models.trace import Trace

Row = tuple[Any, ...]


class Recorded:
    """The tables of a trace, decoded. KeyError for a number that the trace does not have.

    `merges_of`: by call, the merges that it decided, in the order of their numbers. `merge_rows` and `losses` are the
    rows of `merges` and `evaluations` by number.
    """

    def __init__(self, trace: Trace) -> None:
        self.texts = trace.texts
        self.assigned: dict[int, Row] = {row[0]: row for row in trace["assignments"].tolist()}
        self.results: dict[int, Row] = {row[0]: row for row in trace["results"].tolist()}
        self.losses: dict[int, Row] = {row[0]: row for row in trace["evaluations"].tolist()}
        self.merge_rows: dict[int, Row] = {row[0]: row for row in trace["merges"].tolist()}
        self.merges_of: dict[int, list[int]] = defaultdict(list)
        for id_, row in sorted(self.merge_rows.items()):
            self.merges_of[row[1]].append(id_)
        self._inputs: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for merge, id_, weight, _ in trace["merge_inputs"].tolist():
            self._inputs[merge].append((id_, weight))
        self._stats: dict[int, dict[str, float]] = defaultdict(dict)
        for id_, name, value in trace["stats"].tolist():
            self._stats[id_][self.texts[name]] = value

    def assign(self, id_: int) -> Assign:
        """The assignment with this number."""
        row = self.assigned[id_]
        work = Work(
            batch=row[9], steps=row[10], rate=row[11], read=READS[row[12]], write=WRITES[row[13]],
            reason=self.texts[row[14]],
        )  # fmt: skip
        seat = Seat(self.texts[row[3]], row[4])
        return Assign(id=id_, seat=seat, epoch=row[5], start=row[6], stop=row[7], lanes=row[8], work=work)

    def result(self, id_: int) -> Result:
        """The result of the assignment with this number."""
        row, assign = self.results[id_], self.assign(id_)
        return Result(
            id=id_, seat=assign.seat, rows=row[5], updates=row[6], steps=row[7], read=row[3], wrote=row[4],
            start_s=row[1], end_s=row[2], work=assign.work, stats=self._stats.get(id_, {}),
        )  # fmt: skip

    def merge(self, id_: int) -> Merge:
        """The merge with this number; weights that its rule does not need are 1."""
        row = self.merge_rows[id_]
        workers = self.texts[row[11]]
        return Merge(
            inputs=tuple(key for key, _ in self._inputs[id_]),
            rule=RULES[row[2]],
            weights=tuple(weight for _, weight in self._inputs[id_]),
            rate=row[7],
            momentum=row[8],
            compensate=row[9],
            at_read=bool(row[10]),
            write_back=tuple(workers.split(",")) if workers else (),
            reason=self.texts[row[12]],
            id=id_,
        )

    def loss(self, id_: int) -> Loss:
        """The evaluation with this number."""
        row = self.losses[id_]
        return Loss(
            epoch=row[1], update=row[2], at_s=row[3], end_s=row[4], train=row[5], test=row[6], train_score=row[7],
            test_score=row[8], computed=not math.isnan(row[5]),
        )  # fmt: skip
