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
from typing import Final, Literal

from hetsgd.models.bookkeeping import Books
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

Answer = Assign | Evaluate | Wait | Stop
Status = Literal["done", "diverged", "interrupted", "failed"]

_DRAIN: Final = Wait(reason="drain: waits for the work in flight", on=("finished", "merged"))
_EVALUATION: Final = Wait(reason="evaluation: waits for the loss", on=("evaluated",))


def check_recipe(recipe: Recipe, fleet: Fleet, run: RunSettings) -> None:
    """Raise PolicyError when the recipe does not support these settings, rather than run something else."""
    name = type(recipe).__name__
    if run.lanes not in recipe.lane_modes:
        allowed = ", ".join(recipe.lane_modes)
        raise PolicyError(f"run.lanes: {name} supports {allowed}, got {run.lanes!r}")
    if recipe.reads_losses and run.evaluation == "deferred":
        raise PolicyError(f"run.evaluation: {name} reads losses during the run, so 'deferred' is refused")
    for member in fleet.members:
        if member.kind not in recipe.kinds:
            raise PolicyError(f"{name} does not use workers of kind {member.kind}, got {member.name}")


class Coordinator:
    """One run's coordinator. See the module for its contract; `trace` receives decisions, fates and calls."""

    def __init__(self, *, recipe: Recipe, fleet: Fleet, run: RunSettings, trace: Trace) -> None:
        check_recipe(recipe, fleet, run)
        self.fleet = fleet
        self.run = run
        self.lookahead = min(run.lookahead, recipe.max_lookahead)
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
        self._schedule = recipe.begin(fleet)
        self._books = Books(trace, fleet)
        self._load: dict[Seat, int] = dict.fromkeys(fleet.seats, 0)
        self._own_merges: dict[Seat, int] = dict.fromkeys(fleet.seats, 0)
        self._input_seats: dict[int, list[Seat]] = {}
        self._dead: set[Seat] = set()
        self._drain: str | None = None  # why we drain: "epoch", "evaluate" or "stop"
        self._drained = False
        self._evaluating: dict[int, tuple[Evaluate, Seat | None]] = {}
        self._evaluation_due = False
        self._snapshots: list[Evaluate] = []
        self._last_evaluation_s = 0.0
        self._epoch_start_s = 0.0
        self._ids = 0
        self._merge_ids = 0
        self._evaluation_ids = 0

    # -- what engines ask ---------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Assignments that one seat may hold: 1 + the lookahead in force."""
        return 1 + self.lookahead

    def load(self, seat: Seat) -> int:
        """Assignments that the seat holds."""
        return self._load[seat]

    def may_start(self, seat: Seat) -> bool:
        """Whether the seat may read the model: no merge with its own results is still under way."""
        return self._own_merges[seat] == 0

    def alive(self, seat: Seat) -> bool:
        """Whether the seat can still be asked."""
        return seat not in self._dead

    @property
    def quiet(self) -> bool:
        """Nothing is in flight, merging or being evaluated: only a decision can bring the run on."""
        return not (self.in_flight or self.merging or any(seat for _, seat in self._evaluating.values()))

    def begin(self, loss: Loss | None) -> None:
        """Start the clock at 0 with the loss of the initial model, if it was computed."""
        if loss is not None:
            self.losses.append(loss)
            self._books.loss(-1, loss)

    def request(self, seat: Seat, now_s: float) -> Answer:
        """What this seat does next. The caller keeps to `capacity`."""
        self.view.now_s = now_s
        answer = self._answer(seat, now_s)
        self._books.request(seat, now_s, answer)
        return answer

    def finished(self, result: Result, now_s: float) -> tuple[Merge, ...]:
        """An assignment has come in: the merges that follow from it."""
        self.view.now_s = now_s
        assign = self.in_flight.pop(result.id, None)
        if assign is None:
            raise PolicyError(f"finished: no assignment {result.id} is in flight")
        self._load[assign.seat] -= 1
        self._tallies[assign.seat.worker].finished(result)
        self.version = max(self.version, result.wrote)
        self._books.finished(assign, result, now_s)
        if assign.work.write != "in_place":
            self.held[result.id] = result
        merges = self._register(self._schedule.on_result(self.view, result), now_s)
        return self._settle(merges, now_s)

    def merged(self, merge: Merge, *, version: int, start_s: float, now_s: float) -> tuple[Merge, ...]:
        """A merge begun at `start_s` has landed as `version`: the merges that follow (when a drain closes)."""
        self.view.now_s = now_s
        if self.merging.pop(merge.id, None) is None:
            raise PolicyError(f"merged: no merge {merge.id} is under way")
        self.version = max(self.version, version)
        for seat in self._input_seats.pop(merge.id):
            self._own_merges[seat] -= 1
        self._books.merged(merge, version, start_s, now_s)
        return self._settle([], now_s)

    def evaluated(self, evaluate: Evaluate, loss: Loss, now_s: float) -> tuple[Merge, ...]:
        """The loss of an ordered evaluation is known."""
        self.view.now_s = now_s
        self._evaluating.pop(evaluate.id, None)
        self.losses.append(loss)
        self._books.evaluated(evaluate, loss, now_s)
        target = self.run.stop.target_loss
        if loss.diverged:
            self._end("the loss is not finite", now_s, "diverged")
        elif target is not None and loss.train <= target:
            self._end(f"target loss {target:g} reached", now_s)
        elif self._drain is not None and self._drained and not (self._evaluating or self._evaluation_due):
            why, self._drain, self._drained = self._drain, None, False
            if why == "stop":
                self._end(self.stop_reason, now_s)
            elif why == "epoch":
                self._next_epoch(now_s)
        return self._settle([], now_s)

    def failed(self, fault: Fault, now_s: float) -> tuple[Merge, ...]:
        """A seat is gone, or a team goes on with fewer lanes: the merges that follow.

        Queued and running assignments of the seat are lost, and so are its replicas that wait with it (`keep`).
        Gradients and replicas that were handed in stay.
        """
        self.view.now_s = now_s
        self.wake_all = True
        seat = fault.seat
        tally = self._tallies[seat.worker]
        lost = [assign for assign in self.in_flight.values() if assign.seat == seat]
        kept = [r.id for r in self.held.values() if r.seat == seat and r.work.write == "keep"]
        for assign in lost:
            del self.in_flight[assign.id]
            tally.in_flight -= 1
        self._load[seat] = 0
        for key in kept:
            self._books.fate(key, "lost", now_s, rows=self.held.pop(key).rows, reason=fault.kind)
        if fault.lanes_left:
            tally.lanes = fault.lanes_left
        else:
            self._dead.add(seat)
            if seat.lane >= 0:
                tally.lanes = max(tally.lanes - 1, 1)
            tally.alive = any(s not in self._dead for s in self.fleet.member(seat.worker).seats)
        self._books.failed(fault, lost, now_s)
        for key, (order, evaluator) in self._evaluating.items():
            if evaluator == seat:
                self._evaluating[key] = (order, None)
        if len(self._dead) == len(self._load):
            self._end("every worker is lost", now_s, "failed")
            return ()
        on_fault = getattr(self._schedule, "on_fault", None)
        asked: Sequence[Merge] = on_fault(self.view, fault) if on_fault is not None else ()
        return self._settle(self._register(asked, now_s), now_s)

    def snapshots(self, now_s: float) -> tuple[Evaluate, ...]:
        """Evaluations that are due as snapshots now, to be computed after the run (`deferred`)."""
        self.view.now_s = now_s
        if self.run.evaluation == "deferred" and not self.done and self._due(now_s):
            self._last_evaluation_s = now_s
            self._snapshots.append(self._new_evaluation())
        taken, self._snapshots = tuple(self._snapshots), []
        for order in taken:
            self._books.call("snapshot", now_s, None, order.id)
        return taken

    def next_evaluation_s(self) -> float | None:
        """When the next timed evaluation is due, for an engine to wake up for it; None without a period."""
        period = self.run.evaluate_every_s
        return None if period is None or self.done else self._last_evaluation_s + period

    def stop(self, reason: str, now_s: float, status: Status = "done") -> None:
        """The engine ends the run here: a deadline, an interrupt, a failure."""
        self.view.now_s = now_s
        self._books.stop(reason, status, now_s)
        self._end(reason, now_s, status)

    def note(self, loss: Loss, evaluate: Evaluate | None = None) -> None:
        """Record a loss computed outside the clock: of a deferred snapshot, or (None) of the final model.

        It changes no decision. A run that was done with a model that is not finite has diverged.
        """
        order = self._new_evaluation() if evaluate is None else evaluate
        self.losses.append(loss)
        self._books.loss(order.id, loss)
        if loss.diverged and self.status == "done":
            self.status = "diverged"

    def close(self, now_s: float) -> None:
        """Book what is still held or in flight, and the end of the run. Called once, last."""
        for assign in self.in_flight.values():
            self._books.fate(assign.id, "in_flight", now_s, rows=assign.rows)
        for result in self.held.values():
            self._books.fate(result.id, "held", now_s, rows=result.rows)
        for merge in self.merging.values():
            for key in merge.inputs:
                self._books.fate(key, "held", now_s, reason="its merge had not landed at the stop")
        self._books.close(now_s, self.stop_reason, self.status)

    # -- the answer to a request --------------------------------------------------------------------------------

    def _answer(self, seat: Seat, now_s: float) -> Answer:
        if self.done or seat in self._dead:
            return Stop(reason=self.stop_reason if self.done else "lost")
        evaluation = self._evaluation_for(seat)
        if evaluation is not None:
            return evaluation
        if self._drain is not None:
            return _EVALUATION if self._drained else _DRAIN
        decision = self._schedule.next(self.view, seat.worker)
        if isinstance(decision, Wait):
            return decision
        return self._assign(seat, decision, now_s)

    def _assign(self, seat: Seat, work: Work, now_s: float) -> Assign:
        if seat.lane >= 0 and (work.read == "own" or work.write in ("replica", "keep")):
            raise PolicyError(
                f"free lanes share the worker's memory: read 'own' and write 'replica' or 'keep' need "
                f"lanes='barrier', got read {work.read!r}, write {work.write!r} for {seat}"
            )
        tally = self._tallies[seat.worker]
        lanes = 1 if seat.lane >= 0 else tally.lanes
        start, stop = self.cursor.take(lanes * work.batch * work.steps)
        assign = Assign(
            id=self._ids, seat=seat, epoch=self.cursor.epoch, start=start, stop=stop, lanes=lanes, work=work
        )
        self._ids += 1
        self.in_flight[assign.id] = assign
        self._load[seat] += 1
        tally.asked += 1
        tally.in_flight += 1
        tally.batch = work.batch
        self._books.assigned(assign, now_s)
        if not self.cursor.left:
            self._exhausted(now_s)
        return assign

    def _exhausted(self, now_s: float) -> None:
        """The last row of the epoch has been given out."""
        if self.cursor.last_epoch:
            self.stop_reason = self.stop_reason or f"{self.cursor.epochs} epochs done"
            self._start_drain("stop")
        elif self.run.evaluate_every_s is None and self.run.evaluation == "blocking":
            self._start_drain("epoch")
        else:
            if self.run.evaluate_every_s is None:
                if self.run.evaluation == "deferred":
                    self._snapshots.append(self._new_evaluation())
                else:
                    self._evaluation_due = True
            self._next_epoch(now_s)

    def _next_epoch(self, now_s: float) -> None:
        self._books.epoch(self.cursor.epoch, self._epoch_start_s, now_s)
        self._epoch_start_s = now_s
        self.cursor.next_epoch()

    # -- evaluation, drain and stop -----------------------------------------------------------------------------

    def _due(self, now_s: float) -> bool:
        period = self.run.evaluate_every_s
        return period is not None and now_s >= self._last_evaluation_s + period

    def _evaluation_for(self, seat: Seat) -> Evaluate | None:
        """The evaluation that this seat should do now, if any is waiting and the seat is the one to do it."""
        if self._evaluation_due and not (self._drain is not None and not self._drained):
            if not self._is_evaluator(seat):
                return None
            self._evaluation_due = False
            self._last_evaluation_s = self.view.now_s
            order = self._new_evaluation()
            self._evaluating[order.id] = (order, seat)
            return order
        for key, (order, evaluator) in self._evaluating.items():
            if evaluator is None and self._is_evaluator(seat):
                self._evaluating[key] = (order, seat)
                return order
        return None

    def _is_evaluator(self, seat: Seat) -> bool:
        """Losses are computed by the first live accelerator, else by the first live worker: its first seat."""
        live = [member for member in self.fleet.members if self._tallies[member.name].alive]
        chosen = next((member for member in live if member.kind == "accelerator"), live[0])
        return seat == next(s for s in chosen.seats if s not in self._dead)

    def _new_evaluation(self) -> Evaluate:
        order = Evaluate(id=self._evaluation_ids, epoch=self.cursor.epoch, update=self.version)
        self._evaluation_ids += 1
        return order

    def _start_drain(self, why: str) -> None:
        if self._drain is None or why == "stop":
            self._drain = why
            self._drained = False
            self.wake_all = True

    def _settle(self, merges: list[Merge], now_s: float) -> tuple[Merge, ...]:
        """After every event: start what has come due, close a drain that is complete."""
        if self.done:
            return tuple(merges)
        limit = self.run.stop.updates
        if limit is not None and self.version >= limit and self._drain != "stop":
            self.stop_reason = f"{limit} updates done"
            self._start_drain("stop")
        if self._drain is None and self._due(now_s):
            if self.run.evaluation == "blocking":
                self._start_drain("evaluate")
            elif self.run.evaluation == "concurrent":
                self._evaluation_due = self._evaluation_due or not self._evaluating
                self.wake_all = True
        landing = any(merge.rule != "discard" for merge in merges)
        if self._drain is not None and not self._drained and not (self.in_flight or self.merging or landing):
            merges = merges + self._close_round(now_s)
        return tuple(merges)

    def _close_round(self, now_s: float) -> list[Merge]:
        """Everything has come in: let the policy close its round; with nothing left to merge, evaluate."""
        on_drained = getattr(self._schedule, "on_drained", None)
        asked: Sequence[Merge] = on_drained(self.view, self._drain) if on_drained is not None else ()
        merges = self._register(asked, now_s)
        if self.merging:
            return merges
        self._drained = True
        self.wake_all = True
        known = bool(self.losses) and self.losses[-1].update == self.version
        if self._drain == "stop" and (known or self.run.evaluation == "deferred"):
            self._end(self.stop_reason, now_s)
        else:
            self._evaluation_due = True
        return merges

    def _end(self, reason: str, now_s: float, status: Status = "done") -> None:
        if self.done:
            return
        if not self.cursor.left and self._drain in ("stop", "epoch"):
            self._books.epoch(self.cursor.epoch, self._epoch_start_s, now_s)
        self.done = True
        self.wake_all = True
        self.stop_reason = reason
        self.status = status

    # -- merges -------------------------------------------------------------------------------------------------

    def _register(self, asked: Sequence[Merge], now_s: float) -> list[Merge]:
        """Number the merges of a decision and take their inputs out of the held results."""
        merges = []
        for merge in asked:
            missing = [key for key in merge.inputs if key not in self.held]
            if missing:
                raise PolicyError(f"merge: results {missing} are not held (unknown, in place or merged before)")
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
