"""The parent's side of one seat: what was sent to its children, and what their reports make together.

A barrier team is one seat with several children: an assignment goes to every lane that has rows in it, and is
finished when the last of them reports. A free lane or an accelerator is a seat with one child.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hetsgd.models.gradient_noise import statistics
from hetsgd.models.policy import Assign, Evaluate, Kind, Loss, Result, Seat
from hetsgd.real.children import ChildProcess
from hetsgd.real.losses import loss_of
from hetsgd.real.messages import READ_CODE, WRITE_CODE, Numbers, Order, OrderKind, Report, ReportKind
from hetsgd.real.shared_memory import SharedMemory
from hetsgd.real.watch import Owed


@dataclass(slots=True, eq=False)
class Sent:
    """An order on its way. `missing`: children that have not reported, `go`: whether it may read the model."""

    serial: int
    task: Assign | Evaluate
    slot: int = -1
    go: bool = True
    missing: set[int] = field(default_factory=set)
    reports: list[tuple[int, Report]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """An assignment that has come in, with the rows of each lane and the slot of its result."""

    result: Result
    rows: tuple[int, ...]
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """An evaluation that has come in."""

    evaluate: Evaluate
    loss: Loss


class Station:
    """One seat with its children, in the order of their lanes."""

    def __init__(
        self, seat: Seat, kind: Kind, children: list[ChildProcess], memory: SharedMemory, rows: tuple[int, int]
    ) -> None:
        self.seat = seat
        self.kind = kind
        self.children = children
        self._cancelled = memory["cancelled"]
        self._arrived = memory["arrived"]
        self._rows, self._test_rows = rows
        self._queue: deque[Sent] = deque()
        self._evaluation: Sent | None = None
        self._last_serial = 0
        self._idle_wanted: set[int] = set()
        self._death = ""
        self.waits = False
        """Whether an assignment has been sent that waits for `grant`."""

    # -- orders ---------------------------------------------------------------------------------------------------

    @property
    def quiet(self) -> bool:
        """Whether nothing is being cancelled here."""
        return not self._idle_wanted

    def assign(self, assign: Assign, *, serial: int, rows_slot: int, slot: int, may_start: bool) -> None:
        """Send an assignment. It may begin by itself if the seat may start and all before it write in place."""
        sent = Sent(serial, assign, slot=slot)
        sent.go = may_start and all(map(_in_place, self._queue))
        self._queue.append(sent)
        self.waits = self.waits or not sent.go
        if not self.quiet:
            return  # its lanes are being counted: it is lost with what was given out before
        self._last_serial = serial
        work = assign.work
        for position, child in enumerate(self.children[: min(assign.lanes, assign.pieces)]):
            sent.missing.add(child.setup.index)
            child.send(
                Order(
                    kind=OrderKind.ASSIGN, serial=serial, id=assign.id, go=int(sent.go), start=assign.start,
                    stop=assign.stop, lanes=assign.lanes, position=position, batch=work.batch, steps=work.steps,
                    rate=work.rate, read=READ_CODE[work.read], write=WRITE_CODE[work.write], rows_slot=rows_slot,
                    slot=slot,
                )
            )  # fmt: skip

    def evaluate(self, evaluate: Evaluate, *, serial: int) -> None:
        """Send an evaluation; the lanes of a team share the rows."""
        sent = Sent(serial, evaluate)
        self._evaluation = sent
        if not self.quiet:
            return
        self._last_serial = serial
        sent.missing.update(child.setup.index for child in self.children)
        send_parts(self.children, (self._rows, self._test_rows), Order(OrderKind.EVALUATE, serial, id=evaluate.id))

    def grant(self) -> None:
        """Let the first assignment that waits for it read the model. Call when the seat may start."""
        for sent in self._queue:
            if not sent.go:
                sent.go = True
                self.waits = not all(other.go for other in self._queue)
                for child in self.children:
                    if child.setup.index in sent.missing:
                        child.send(Order(kind=OrderKind.GO, serial=sent.serial))
                return
            if not _in_place(sent):
                return

    # -- reports --------------------------------------------------------------------------------------------------

    def report(self, child: ChildProcess, report: Report, zero_s: float) -> Finished | Evaluated | None:
        """Take a report; what it completes, if anything. Reports on cancelled orders are dropped."""
        if report.kind == ReportKind.IDLE:
            self._idle_wanted.discard(child.setup.index)
            return None
        sent = self._evaluation if report.kind == ReportKind.LOSS else self._sent(report.serial)
        index = child.setup.index
        if sent is None or sent.serial != report.serial or index not in sent.missing:
            return None
        sent.missing.discard(index)
        sent.reports.append((index, report))
        if sent.missing:
            return None
        sent.reports.sort()
        reports = [part for _, part in sent.reports]
        if isinstance(sent.task, Evaluate):
            self._evaluation = None
            return _evaluated(sent.task, reports, zero_s)
        self._queue.remove(sent)
        return _finished(sent.task, self.seat, reports, sent.slot, zero_s)

    def _sent(self, serial: int) -> Sent | None:
        for sent in self._queue:
            if sent.serial == serial:
                return sent
        return None

    # -- deaths ---------------------------------------------------------------------------------------------------

    def lost(self, child: ChildProcess, how: str, serial: int) -> None:
        """A child is gone: what was given out is void. The others say when they are idle, then `fault` is due."""
        self.children.remove(child)
        self._idle_wanted.discard(child.setup.index)
        self._death = f"{self._death}; {how}" if self._death else how
        for survivor in self.children:
            if survivor.setup.index not in self._idle_wanted:
                self._cancelled[survivor.setup.index, 0] = self._last_serial
                self._idle_wanted.add(survivor.setup.index)
                survivor.send(Order(kind=OrderKind.CANCEL, serial=serial))

    def gone(self, child: ChildProcess, how: str) -> None:
        """A child is gone before anything was given out: a fault is due once the clock runs."""
        self.children.remove(child)
        self._death = f"{self._death}; {how}" if self._death else how

    def owed(self) -> Iterator[Owed]:
        """What the children owe now, the oldest first; not what still waits for a merge."""
        worker, rows = self.seat.worker, self._rows
        if not self.quiet:
            for index in self._idle_wanted:
                yield Owed(index=index, worker=worker, what="other", serial=self._last_serial, rows=rows)
            return
        told: set[int] = set()
        evaluation = [] if self._evaluation is None else [self._evaluation]
        for sent in (*evaluation, *self._queue):
            if not sent.go:
                return
            task = sent.task
            for index in sent.missing - told:
                told.add(index)
                loss = isinstance(task, Evaluate)
                share = (rows + self._test_rows if isinstance(task, Evaluate) else task.rows) / len(self.children)
                yield Owed(
                    index=index, worker=worker, what="loss" if loss else "assignment", serial=sent.serial,
                    rows=math.ceil(share), waits_for_others=self._waits_for_others(sent, index),
                )  # fmt: skip

    def _waits_for_others(self, sent: Sent, index: int) -> bool:
        """Whether a lane has copied its share of a replica and others have not."""
        arrived, serial = self._arrived, sent.serial
        return bool(arrived[index, 0] >= serial and any(arrived[other, 0] < serial for other in sent.missing))

    def fault_due(self) -> str:
        """How children of this seat died, once the others are idle and the coordinator can be told; else empty."""
        return self._death if self.quiet else ""

    def clear(self, release: Callable[[int], None]) -> bool:
        """Forget everything given out, giving slots back; whether some of it was being written in place."""
        half = any(_in_place(sent) and sent.go for sent in self._queue)
        for sent in self._queue:
            if sent.slot >= 0:
                release(sent.slot)
        self._queue.clear()
        self._evaluation, self._death, self.waits = None, "", False
        return half


def send_parts(children: list[ChildProcess], rows: tuple[int, int], order: Order) -> None:
    """Send an evaluation order to each child with its part of the training and test rows."""
    lanes, (train, test) = len(children), rows
    for position, child in enumerate(children):
        child.send(
            order._replace(
                lanes=lanes, position=position,
                start=position * train // lanes, stop=(position + 1) * train // lanes,
                test_start=position * test // lanes, test_stop=(position + 1) * test // lanes,
            )
        )  # fmt: skip


def _in_place(sent: Sent) -> bool:
    return isinstance(sent.task, Assign) and sent.task.work.write == "in_place"


def _finished(assign: Assign, seat: Seat, reports: list[Report], slot: int, zero_s: float) -> Finished:
    first = reports[0]
    read, wrote, start_s, end_s = first.read, first.wrote, first.start_s, first.end_s
    updates = steps = handled = 0
    rows = []
    for report in reports:
        read, wrote = min(read, report.read), max(wrote, report.wrote)
        start_s, end_s = min(start_s, report.start_s), max(end_s, report.end_s)
        updates += report.updates
        steps += report.steps
        handled += report.rows
        rows.append(report.rows)
    result = Result(
        id=assign.id, seat=seat, rows=handled, updates=updates, steps=steps, read=read,
        wrote=wrote if updates else read, start_s=start_s - zero_s, end_s=end_s - zero_s, work=assign.work,
        stats=_stats(first.train),
    )  # fmt: skip
    return Finished(result=result, rows=tuple(rows), slot=slot)


def _stats(numbers: Numbers) -> dict[str, float]:
    """Gradient statistics of an assignment, empty where it has not measured any."""
    big_sq, small_sq, big_rows, small_rows, _ = numbers
    return statistics(big_sq, small_sq, (int(big_rows), int(small_rows))) if big_rows else {}


def _evaluated(evaluate: Evaluate, reports: list[Report], zero_s: float) -> Evaluated:
    loss = loss_of(
        reports,
        at_s=min(report.start_s for report in reports) - zero_s,
        end_s=max(report.end_s for report in reports) - zero_s,
        epoch=evaluate.epoch,
        update=min(report.read for report in reports),
    )
    return Evaluated(evaluate=evaluate, loss=loss)
