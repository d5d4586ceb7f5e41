"""A rehearsal of a policy: a tiny engine without model or machine, with random times, delays and faults.

It drives a coordinator as the two engines do and knows nothing of speed or learning, so that what a policy may
meet (ties, slow merges, lost workers, work that comes in late) is met in milliseconds. `laws` says what is wrong
with the trace it leaves; `first_difference` (parity.py) whether its decisions can be repeated.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from hetsgd.models.coordinator import Coordinator
from hetsgd.models.dispatcher import Dispatcher
from hetsgd.models.policy import Assign, Evaluate, Event, Fault, Fleet, Loss, Merge, Recipe, Result, Seat
from hetsgd.models.run import RunSettings
from hetsgd.models.trace import Place, Trace

# Times are multiples of this, so that many things happen at the same time.
_QUANTUM_S: Final = 0.25
_MOST_EVENTS: Final = 200_000


class RehearsalError(RuntimeError):
    """The rehearsal did not end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """At `at_s` the seat is lost; with `lanes_left` > 0 its team goes on with that many lanes."""

    at_s: float
    seat: Seat
    lanes_left: int = 0


def rehearse(
    recipe: Recipe, fleet: Fleet, run: RunSettings, rng: np.random.Generator, kills: Sequence[Kill] = ()
) -> Trace:
    """Run a policy to its end on random times and return the trace.

    `fleet` has the members with the lanes of the run. Losses are random numbers that fall slowly. Raises
    RehearsalError when the run does not end, PolicyError when the policy breaks its contract.
    """
    return _Engine(recipe, fleet, run, rng, kills).drive()


class _Engine:
    """Seats with queues, one merge place that works in order, and a clock."""

    def __init__(
        self, recipe: Recipe, fleet: Fleet, run: RunSettings, rng: np.random.Generator, kills: Sequence[Kill]
    ) -> None:
        self.trace = Trace(level=run.trace)
        for seat in fleet.seats:
            kind = fleet.member(seat.worker).kind
            self.trace.place(Place(name=str(seat), worker=seat.worker, kind=kind))
        self.coordinator = Coordinator(recipe=recipe, fleet=fleet, run=run, trace=self.trace)
        self.dispatcher = Dispatcher(self.coordinator)
        self.run = run
        self.rng = rng
        self.version = 0
        self.now_s = 0.0
        self.queues: dict[Seat, deque[Assign | Evaluate]] = {seat: deque() for seat in fleet.seats}
        self.running: dict[Seat, tuple[Assign | Evaluate, int, float]] = {}
        self.merges: deque[Merge] = deque()
        self.merge_start_s: float | None = None
        self.heap: list[tuple[float, int, str, Seat | Kill | None, int]] = []
        self.sequence = 0
        for kill in kills:
            self.push(kill.at_s, "kill", kill, 0)

    # -- the clock ------------------------------------------------------------------------------------------------

    def push(self, at_s: float, what: str, subject: Seat | Kill | None, id_: int) -> None:
        self.sequence += 1
        heapq.heappush(self.heap, (at_s, self.sequence, what, subject, id_))

    def some_s(self, least: int) -> float:
        return float(self.rng.integers(least, 6)) * _QUANTUM_S

    def drive(self) -> Trace:
        coordinator = self.coordinator
        coordinator.begin(self.loss(0.0, 0, 0))
        self.after(None)
        for _ in range(_MOST_EVENTS):
            if coordinator.done:
                break
            self.advance()
        else:
            raise RehearsalError(f"no end after {_MOST_EVENTS} events, at {self.now_s} s: {self.dispatcher.waits()}")
        if coordinator.losses[-1].update != self.version:
            coordinator.note(self.loss(self.now_s, coordinator.cursor.epoch, self.version))
        coordinator.close(self.now_s)
        return self.trace

    def advance(self) -> None:
        """Go to the next event or timer and let it happen."""
        timers = [t for t in (self.dispatcher.wake_s(), self.coordinator.next_evaluation_s()) if t is not None]
        due_s = min(timers, default=None)
        at_s = self.heap[0][0] if self.heap else None
        if at_s is None and due_s is None:
            raise RehearsalError(f"nothing is to happen at {self.now_s} s: {self.dispatcher.waits()}")
        next_s = min(t for t in (at_s, due_s) if t is not None)
        deadline_s = self.run.stop.seconds
        if deadline_s is not None and next_s >= deadline_s:
            self.now_s = deadline_s
            self.coordinator.stop("deadline", deadline_s)
        elif at_s is None or (due_s is not None and due_s < at_s):
            self.now_s = max(self.now_s, next_s)
            self.after("timer")
        else:
            self.now_s, _, what, subject, id_ = heapq.heappop(self.heap)
            self.happen(what, subject, id_)

    def after(self, event: Event | None) -> None:
        """Ask who is to be asked and start what can start."""
        for seat, order in self.dispatcher.sweep(event, self.now_s):
            if isinstance(order, Evaluate):
                self.queues[seat].appendleft(order)
            else:
                self.queues[seat].append(order)
        self.coordinator.snapshots(self.now_s)
        for seat, queue in self.queues.items():
            if queue and seat not in self.running:
                self.start(seat, queue)

    # -- what happens ---------------------------------------------------------------------------------------------

    def start(self, seat: Seat, queue: deque[Assign | Evaluate]) -> None:
        order = queue[0]
        if isinstance(order, Assign) and not self.coordinator.may_start(seat):
            return
        queue.popleft()
        self.running[seat] = (order, self.version, self.now_s)
        end_s = self.now_s + self.some_s(1)
        if isinstance(order, Assign) and order.work.write == "in_place" and order.pieces > 1:
            self.push(self.now_s + (end_s - self.now_s) / 2, "write", seat, order.id)
        self.push(end_s, "end", seat, order.id)

    def happen(self, what: str, subject: Seat | Kill | None, id_: int) -> None:
        if isinstance(subject, Kill):
            self.kill(subject)
        elif subject is None:
            self.land()
        elif subject in self.running and self.running[subject][0].id == id_:
            order, read, start_s = self.running[subject]
            if isinstance(order, Evaluate):
                del self.running[subject]
                self.evaluated(subject, order, read, start_s)
            elif what == "write":
                self.write(order, read, 1)
            else:
                del self.running[subject]
                self.finished(order, read, start_s)

    def write(self, assign: Assign, read: int, updates: int) -> None:
        kind = self.coordinator.fleet.member(assign.seat.worker).kind
        for _ in range(updates):
            self.version += 1
            seat = assign.seat
            self.trace.update(
                kind, self.version, read, self.now_s, seat.worker, seat.lane, assign.id, assign.work.batch
            )

    def finished(self, assign: Assign, read: int, start_s: float) -> None:
        updates, wrote = 0, read
        self.trace.span("compute", str(assign.seat), assign.seat.worker, assign.id, start_s, self.now_s)
        if assign.work.write == "in_place":
            accelerator = self.coordinator.fleet.member(assign.seat.worker).kind == "accelerator"
            updates = 1 if accelerator else assign.pieces
            self.write(assign, read, updates - (1 if assign.pieces > 1 and not accelerator else 0))
            wrote = self.version
        result = Result(
            id=assign.id, seat=assign.seat, rows=assign.rows, updates=updates, steps=assign.pieces, read=read,
            wrote=wrote, start_s=start_s, end_s=self.now_s, work=assign.work, stats={"norm": float(assign.id)},
        )  # fmt: skip
        self.enqueue(self.coordinator.finished(result, self.now_s))
        self.dispatcher.free(assign.seat)
        self.after("finished")

    def evaluated(self, seat: Seat, order: Evaluate, update: int, start_s: float) -> None:
        loss = replace(self.loss(start_s, order.epoch, update), end_s=self.now_s)
        self.enqueue(self.coordinator.evaluated(order, loss, self.now_s))
        if self.coordinator.load(seat) < self.coordinator.capacity:
            self.dispatcher.free(seat)
        self.after("evaluated")

    def enqueue(self, merges: Sequence[Merge]) -> None:
        self.merges.extend(merge for merge in merges if merge.rule != "discard")
        if self.merges and self.merge_start_s is None:
            self.merge_start_s = self.now_s
            self.push(self.now_s + self.some_s(0), "land", None, self.merges[0].id)

    def land(self) -> None:
        merge, start_s = self.merges.popleft(), self.merge_start_s
        self.merge_start_s = None
        self.version += 1
        more = self.coordinator.merged(merge, version=self.version, start_s=start_s or 0.0, now_s=self.now_s)
        self.enqueue(more)
        self.after("merged")

    def kill(self, kill: Kill) -> None:
        seat = kill.seat
        order = self.running.pop(seat, None)
        writing = order is not None and isinstance(order[0], Assign) and order[0].work.write == "in_place"
        self.queues[seat].clear()
        fault = Fault(seat=seat, kind="killed", lanes_left=kill.lanes_left, half_applied=writing)
        self.enqueue(self.coordinator.failed(fault, self.now_s))
        if self.coordinator.alive(seat):
            self.dispatcher.free(seat)
        else:
            self.dispatcher.lost(seat)
        self.after("failed")

    def loss(self, at_s: float, epoch: int, update: int) -> Loss:
        train = 1.0 / (1.0 + update) + 0.01 * float(self.rng.random())
        return Loss(at_s=at_s, epoch=epoch, update=update, end_s=at_s, train=train)
