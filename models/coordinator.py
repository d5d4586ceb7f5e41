"""The coordinator: what runs between a policy and an engine. No I/O, no clock, no random numbers, no engine.

Each engine calls it with the time of its own clock: `request` when a seat has room for work, `finished`,
`merged`, `evaluated` and `failed` when something has happened. It owns the row cursor, the epochs, the counts and
versions, evaluation and stop rules, and writes decisions and their reasons into the trace.

An epoch ends when its last row is given out. Where losses are read `blocking`, and at the end of the run, it
drains: nothing new is given out until everything in flight has come in and merged, `on_drained` lets the policy
close a partial round, then one worker evaluates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

from hetsgd.models.bookkeeping import Books
from hetsgd.models.contract import (
    begun,
    check_decision,
    check_merge,
    check_merges,
    check_result,
    check_wait,
    check_work,
    compensates,
    refuse_escape,
)
from hetsgd.models.contract import check_recipe as check_recipe  # offered here too: callers know only this module
from hetsgd.models.drafts import new_assign
from hetsgd.models.evaluations import Evaluations
from hetsgd.models.ledger import CoordinatorView, Cursor, tallies_of
from hetsgd.models.policy import (
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
from hetsgd.models.trace import Trace
from hetsgd.models.words import counted

Answer = Assign | Evaluate | Wait | Stop
Status = Literal["done", "diverged", "interrupted", "failed"]

_DRAIN: Final = Wait(reason="drain: waits for the work in flight", on=("finished", "merged"))
_EVALUATION: Final = Wait(reason="evaluation: waits for the loss", on=("evaluated",))

_EPOCHS_WITHOUT_UPDATE: Final = 20
"""A policy that gives out so many epochs of rows and makes no update of them will not make one."""


class Coordinator:
    """One run's coordinator. See the module for its contract; `trace` receives decisions, fates and calls."""

    def __init__(self, *, recipe: Recipe, fleet: Fleet, run: RunSettings, trace: Trace) -> None:
        check_recipe(recipe, fleet, run)
        self.fleet = fleet
        self.run = run
        self.lookahead = min(run.lookahead, recipe.max_lookahead)
        self.capacity = 1 + self.lookahead
        """Assignments that one seat may hold."""
        self.cursor = Cursor(fleet.rows, run.stop.epochs)
        self.version = 0
        self.in_flight: dict[int, Assign] = {}
        self.held: dict[int, Result] = {}
        self.merging: dict[int, Merge] = {}
        self.losses: list[Loss] = []
        self.done = False
        self.status: Status = "done"
        self.stop_reason = ""
        self.wake_all = False
        self._tallies = tallies_of(fleet)
        self.view = CoordinatorView(self, self._tallies, self.in_flight, self.held, self.losses)
        self._schedule = begun(recipe, fleet)
        self._compensates = compensates(recipe)
        self._books = Books(trace, fleet)
        self.loads: dict[Seat, int] = dict.fromkeys(fleet.seats, 0)
        """Assignments that each seat holds."""
        self._own_merges: dict[Seat, int] = dict.fromkeys(fleet.seats, 0)
        self._input_seats: dict[int, list[Seat]] = {}
        self.dead: set[Seat] = set()
        """Seats that cannot be asked any more."""
        self._drain: str | None = None  # why we drain: "epoch", "evaluate" or "stop"
        self._drained = False
        self._evaluations = Evaluations(run, fleet, self._tallies)
        self._timed = run.evaluate_every_s is not None
        self._update_limit = run.stop.updates
        self._counts_alone = run.stop.epochs is None and run.stop.seconds is None
        self._moved = (0, 0)  # the version at the end of an epoch, and the first epoch that ended with it
        # What all seats hold may be of an epoch each, where a batch is all the data.
        self._patience = _EPOCHS_WITHOUT_UPDATE + self.capacity * len(fleet.seats)
        self._epoch_start_s = 0.0
        self._ids = 0
        self._merge_ids = 0

    # -- what engines ask ---------------------------------------------------------------------------------------

    def load(self, seat: Seat) -> int:
        """Assignments that the seat holds."""
        return self.loads[seat]

    def may_start(self, seat: Seat) -> bool:
        """Whether the seat may read the model: no merge with its own results is still under way."""
        return self._own_merges[seat] == 0

    def alive(self, seat: Seat) -> bool:
        """Whether the seat can still be asked."""
        return seat not in self.dead

    @property
    def quiet(self) -> bool:
        """Nothing is in flight, merging or being evaluated: only a decision can bring the run on."""
        return not (self.in_flight or self.merging or self._evaluations.under_way)

    def begin(self, loss: Loss | None) -> None:
        """Start the clock at 0 with the loss of the initial model, if it was computed."""
        if loss is not None:
            self.losses.append(loss)
            self._books.loss(-1, loss)
            self._judge(loss, loss.at_s)

    def tick(self, now_s: float) -> None:
        """Time has passed: a timed evaluation may have come due. The dispatcher calls it before it asks."""
        if not self._timed or self.done or self._drain is not None or not self._evaluations.period_over(now_s):
            return
        if self.run.evaluation != "deferred":
            self.view.now_s = now_s
            self._books.call("tick", now_s, None, -1)
            self._come_due()

    def request(self, seat: Seat, now_s: float) -> Answer:
        """What this seat does next. The caller keeps to `capacity`."""
        view, evaluations = self.view, self._evaluations
        view.now_s = now_s
        # Not `evaluations.open`: this is asked for every assignment.
        if self.done or self._drain is not None or evaluations.due or evaluations.ordered or seat in self.dead:
            answer = self._held_back(seat)
            if answer is not None:
                self._books.request(seat, now_s, answer)
                return answer
        try:
            decision = self._schedule.next(view, seat.worker)
        except BaseException as error:
            refuse_escape(error, "next")
            raise
        if isinstance(decision, Wait):
            check_wait(decision, seat, now_s)
            self._books.request(seat, now_s, decision)
            return decision
        try:
            return self._assign(seat, decision, now_s)
        except Exception:  # looked at only now, since this comes with every assignment
            check_decision(decision, seat)
            raise

    def finished(self, result: Result, now_s: float) -> tuple[Merge, ...]:
        """An assignment has come in: the merges that follow from it."""
        view = self.view
        view.now_s = now_s
        assign = self.in_flight.pop(result.id, None)
        if assign is None:
            raise PolicyError(f"finished: no assignment {result.id} is in flight")
        check_result(assign, result)
        seat = assign.seat
        self.loads[seat] -= 1
        self._tallies[seat.worker].finished(result)
        if result.wrote > self.version:
            self.version = result.wrote
        self._books.finished(assign, result, now_s)
        if assign.work.write != "in_place":
            self.held[result.id] = result
        try:
            asked = self._schedule.on_result(view, result)
        except BaseException as error:
            refuse_escape(error, "on_result")
            raise
        return self._settle(self._register(asked, now_s) if asked else [], now_s)

    def merged(self, merge: Merge, *, version: int, start_s: float, now_s: float) -> tuple[Merge, ...]:
        """A merge begun at `start_s` has landed as `version`: the merges that follow (when a drain closes)."""
        self.view.now_s = now_s
        if self.merging.pop(merge.id, None) is None:
            raise PolicyError(f"merged: no merge {merge.id} is under way")
        self.version = max(self.version, version)
        seats = self._input_seats.pop(merge.id)
        for seat in seats:
            self._own_merges[seat] -= 1
        for name in {seat.worker for seat in seats}:
            self._tallies[name].updates += 1
        self._books.merged(merge, version, start_s, now_s)
        return self._settle([], now_s)

    def evaluated(self, evaluate: Evaluate, loss: Loss, now_s: float) -> tuple[Merge, ...]:
        """The loss of an ordered evaluation is known."""
        self.view.now_s = now_s
        if not self._evaluations.answered(evaluate, now_s):
            raise PolicyError(f"evaluated: no evaluation {evaluate.id} is under way")
        self.losses.append(loss)
        self._books.evaluated(evaluate, loss, now_s)
        self._judge(loss, now_s)
        if self._drained and not self.done and not self._evaluations.open:
            if self._drain == "stop":
                self._end(self.stop_reason, now_s)
            elif self._drain == "epoch":
                self._next_epoch(now_s)
            self._drain, self._drained = None, False
        return self._settle([], now_s)

    def failed(self, fault: Fault, now_s: float) -> tuple[Merge, ...]:
        """A seat is gone, or a team goes on with fewer lanes: the merges that follow.

        Queued and running assignments of the seat are lost, and with a worker the replicas that wait with it
        (`keep`). Gradients and replicas that were handed in stay. A seat that is lost already changes nothing.
        """
        seat = fault.seat
        if seat in self.dead:
            return ()
        self.view.now_s = now_s
        self.wake_all = True
        tally = self._tallies[seat.worker]
        tally.lost(self.fleet.member(seat.worker), fault)
        lost: list[Assign | Result] = [assign for assign in self.in_flight.values() if assign.seat == seat]
        for assign in lost:
            del self.in_flight[assign.id]
        tally.in_flight -= len(lost)
        self.loads[seat] = 0
        if seat in tally.dead:
            self.dead.add(seat)
            kept = [r for r in self.held.values() if r.seat == seat and r.work.write == "keep"]
            for result in kept:
                del self.held[result.id]
            lost += kept
        fault = replace(fault, lost=tuple(item.id for item in lost))
        self._books.failed(fault, lost, now_s)
        self._evaluations.lost(seat)
        if len(self.dead) == len(self.loads):
            self._end("every worker is lost", now_s, "failed")
            return ()
        return self._settle(self._register(self._optional("on_fault", fault), now_s), now_s)

    def snapshots(self, now_s: float) -> tuple[Evaluate, ...]:
        """Evaluations that are due as snapshots now, to be computed after the run (`deferred`)."""
        if self.run.evaluation != "deferred" or not (self._timed or self._evaluations.snapshots):
            return ()
        self.view.now_s = now_s
        if self._timed and not self.done and self._evaluations.period_over(now_s):
            self._evaluations.snapshot(self.cursor.epoch, self.version)
        taken = self._evaluations.taken(now_s)
        for order in taken:
            self._books.call("snapshot", now_s, None, order.id)
        return taken

    def next_evaluation_s(self) -> float | None:
        """When the next timed evaluation comes due, for an engine to wake up for it; None when there is none."""
        return None if self.done or self._drain is not None else self._evaluations.next_s()

    def stop(self, reason: str, now_s: float, status: Status = "done") -> None:
        """The engine ends the run here: a deadline, an interrupt, a failure."""
        self.view.now_s = now_s
        self._books.stop(reason, status, now_s)
        self._end(reason, now_s, status)

    def note(self, loss: Loss, evaluate: Evaluate | None = None) -> None:
        """Record a loss computed outside the clock: of a deferred snapshot, or (None) of the final model.

        It changes no decision. A run that was done with a model that is not finite has diverged.
        """
        order = self._evaluations.new(self.cursor.epoch, self.version) if evaluate is None else evaluate
        self.losses.append(loss)
        self._books.loss(order.id, loss)
        if loss.diverged and self.status == "done":
            self.status = "diverged"

    def close(self, now_s: float) -> None:
        """Book what is still held or in flight, and the end of the run. Called once, last."""
        self._books.close(
            now_s, self.in_flight.values(), self.held.values(), self.merging.values(), self.stop_reason, self.status
        )

    # -- the answer to a request --------------------------------------------------------------------------------

    def _held_back(self, seat: Seat) -> Evaluate | Wait | Stop | None:
        """What comes before any new assignment of this seat, if anything does."""
        if self.done or seat in self.dead:
            return Stop(reason=self.stop_reason if self.done else "lost")
        evaluation = self._evaluations.order_for(seat, self.cursor.epoch, self.version)
        if evaluation is not None:
            return evaluation
        if self._drain is not None:
            return _EVALUATION if self._drained else _DRAIN
        return None

    def _assign(self, seat: Seat, work: Work, now_s: float) -> Assign:
        tally, lanes = self._tallies[seat.worker], 1
        if seat.lane < 0:
            lanes = tally.lanes
        else:
            check_work(work, seat)
        cursor = self.cursor
        start, stop = cursor.take(lanes * work.batch * work.steps)
        assign = new_assign(self._ids, seat, cursor.epoch, start, stop, lanes, work)
        self._ids += 1
        self.in_flight[assign.id] = assign
        self.loads[seat] += 1
        tally.asked += 1
        tally.in_flight += 1
        tally.batch = work.batch
        self._books.assigned(assign, now_s)
        if stop == cursor.rows:
            self._exhausted(now_s)
        return assign

    def _exhausted(self, now_s: float) -> None:
        """The last row of the epoch has been given out."""
        if self.cursor.last_epoch:
            self.stop_reason = self.stop_reason or f"after {counted(self.cursor.epoch + 1, 'epoch')}"
            self._start_drain("stop")
        elif self.run.evaluate_every_s is None and self.run.evaluation == "blocking":
            self._start_drain("epoch")
        else:
            if self.run.evaluate_every_s is None:
                if self.run.evaluation == "deferred":
                    self._evaluations.snapshot(self.cursor.epoch, self.version)
                else:
                    self._evaluations.due = True
                    self.wake_all = True
            self._next_epoch(now_s)

    def _next_epoch(self, now_s: float) -> None:
        self._books.epoch(self.cursor.epoch, self._epoch_start_s, now_s)
        self._epoch_start_s = now_s
        self.cursor.next_epoch()
        self.view.epoch = epoch = self.cursor.epoch
        if self.version > self._moved[0]:
            self._moved = (self.version, epoch)
        elif self._counts_alone and epoch - self._moved[1] > self._patience:
            words = f"no update of the model for {counted(epoch - self._moved[1], 'epoch')} of rows"
            self._end(f"{words}, and the run stops by updates alone", now_s, "failed")

    # -- evaluation, drain and stop -----------------------------------------------------------------------------

    def _start_drain(self, why: str) -> None:
        if self._drain is None or why == "stop":
            self._drain = why
            self._drained = False
            self.wake_all = True

    def _come_due(self) -> None:
        """A timed evaluation is due. With nothing under way there is no round to close: it starts at once."""
        if self.run.evaluation == "concurrent":
            self._evaluations.due = True
            self.wake_all = True
        elif self.run.evaluation == "blocking":
            self._start_drain("evaluate")
            if self.quiet:
                self._drained = True
                self._evaluations.due = True

    def _settle(self, merges: list[Merge], now_s: float) -> tuple[Merge, ...]:
        """After every event: start what has come due, close a drain that is complete."""
        if self.done:
            return tuple(merges)
        limit = self._update_limit
        if limit is not None and self.version >= limit and self._drain != "stop":
            self.stop_reason = f"after {counted(limit, 'update')}"
            self._start_drain("stop")
        if self._timed and self._drain is None and self._evaluations.period_over(now_s):
            self._come_due()
        if self._drain is not None and not self._drained and not (self.in_flight or self.merging):
            merges = merges + self._close_round(now_s)
        return tuple(merges)

    def _close_round(self, now_s: float) -> list[Merge]:
        """Everything has come in: let the policy close its round; with nothing left to merge, evaluate."""
        merges = self._register(self._optional("on_drained", self._drain), now_s)
        if self.merging:
            return merges
        self._drained = True
        self.wake_all = True
        known = self.run.evaluation == "deferred" or (bool(self.losses) and self.losses[-1].update == self.version)
        if self._drain != "stop" or not known:
            self._evaluations.due = True
        elif not self._evaluations.open:
            self._end(self.stop_reason, now_s)
        return merges

    def _judge(self, loss: Loss, now_s: float) -> None:
        """End the run where the loss says so."""
        target = self.run.stop.target_loss
        if loss.diverged:
            self._end("the loss is not finite", now_s, "diverged")
        elif target is not None and loss.train <= target:
            self._end(f"target loss {target:g} reached", now_s)

    def _end(self, reason: str, now_s: float, status: Status = "done") -> None:
        if self.done:
            return
        if self._drain in ("stop", "epoch") and not (self.cursor.left or self.in_flight or self.merging):
            self._books.epoch(self.cursor.epoch, self._epoch_start_s, now_s)
        self.done = True
        self.wake_all = True
        self.stop_reason = reason
        self.status = status

    # -- merges -------------------------------------------------------------------------------------------------

    def _optional(self, method: str, about: object) -> Sequence[Merge]:
        """What a schedule answers to `on_fault` or `on_drained`, if it has that."""
        asked = getattr(self._schedule, method, None)
        if asked is None:
            return ()
        try:
            merges: Sequence[Merge] | None = asked(self.view, about)
        except BaseException as error:
            refuse_escape(error, method)
            raise
        return merges or ()

    def _register(self, asked: Sequence[Merge], now_s: float) -> list[Merge]:
        """Number the merges of a decision and take their inputs out of the held results."""
        merges = []
        for merge in asked if isinstance(asked, tuple | list) else check_merges(asked):
            check_merge(merge, self.held, self.fleet, compensates=self._compensates)
            results = [self.held.pop(key) for key in merge.inputs]
            numbered = self._books.decided(merge, self._merge_ids, results, now_s)
            self._merge_ids += 1
            if merge.rule != "discard":
                self.merging[numbered.id] = numbered
                self._input_seats[numbered.id] = [result.seat for result in results]
                for result in results:
                    self._own_merges[result.seat] += 1
            merges.append(numbered)
        return merges
