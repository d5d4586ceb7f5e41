"""The loop of a real run: the coordinator on the wall clock, hearing its children and the merge place.

The clock is `time.perf_counter` since the run started, and the only one. After each event the dispatcher asks who
may be waiting, orders go out, snapshots are taken, and seats whose merges have landed may read the model.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from numpy.typing import NDArray

from hetsgd.models.coordinator import Coordinator
from hetsgd.models.cost import merge_bytes
from hetsgd.models.dispatcher import Dispatcher
from hetsgd.models.plan import Plan, ProgressSink
from hetsgd.models.policy import Assign, Evaluate, Event, Fault, Loss, Merge, Seat
from hetsgd.models.run import Progress
from hetsgd.models.trace import Trace
from hetsgd.models.words import counted
from hetsgd.real.children import ChildProcess
from hetsgd.real.interrupts import Interrupts
from hetsgd.real.merge_place import HandedIn, LandedMerge, MergePlace
from hetsgd.real.row_orders import RowOrders
from hetsgd.real.station import Evaluated, Finished
from hetsgd.real.versions import Landed
from hetsgd.real.workforce import Workforce

_LOOK_S: Final = 0.1  # how often logs are emptied and progress is told when nothing else happens


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """A model whose loss is computed after the run."""

    evaluate: Evaluate
    at_s: float
    version: int
    parameters: NDArray[Any]


class Loop:
    """One run while its clock runs.

    What it leaves for afterwards: `snapshots`, the merges that `landed`, the `most_handed` results that were held at
    once, and the `largest` batch of each worker.
    """

    def __init__(
        self, plan: Plan, coordinator: Coordinator, trace: Trace, workforce: Workforce, merges: MergePlace,
        orders: RowOrders, interrupts: Interrupts, progress: ProgressSink | None,
    ) -> None:  # fmt: skip
        self._plan = plan
        self._coordinator = coordinator
        self._trace = trace
        self._workforce = workforce
        self._merges = merges
        self._orders = orders
        self._interrupts = interrupts
        self._progress = progress
        self._dispatcher = Dispatcher(coordinator)
        self._handed: dict[int, HandedIn] = {}
        self.most_handed = 0
        self.largest: dict[str, int] = {}
        self._losing = False  # whether some child's death has not been told yet
        self._last_look_s = 0.0
        self.zero_s = 0.0
        self.snapshots: list[Snapshot] = []
        self.landed: list[Landed] = []

    def now(self) -> float:
        """Seconds since the run started."""
        return time.perf_counter() - self.zero_s

    def run(self, initial: Loss) -> None:
        """Start the clock and run until the coordinator is done."""
        coordinator, seconds = self._coordinator, self._plan.run.stop.seconds
        self._workforce.start_clock()
        self.zero_s = time.perf_counter()
        if seconds is not None:
            self._workforce.set_deadline(self.zero_s + seconds)
        coordinator.begin(initial)
        self._faults()  # of children that died before
        self._sweep(None)
        while not coordinator.done:
            ready = self._workforce.children.select(self._timeout_s())
            now_s = self.now()
            if self._interrupts.received:
                coordinator.stop(f"interrupted by {self._interrupts.received[0]}", now_s, "interrupted")
            elif seconds is not None and now_s >= seconds:
                coordinator.stop(f"after {counted(seconds, 'second')}", now_s)
            else:
                self._events(ready)

    def _timeout_s(self) -> float:
        """Until something is due, and not longer than the next look."""
        due = [self._last_look_s + _LOOK_S, self._plan.run.stop.seconds]
        due += [self._dispatcher.wake_s(), self._coordinator.next_evaluation_s()]
        return max(min(at_s for at_s in due if at_s is not None) - self.now(), 0.0)

    def _events(self, ready: Sequence[ChildProcess]) -> None:
        for merge in self._merges.landed():
            self._land(merge)
        for child in ready:
            self._hear(child)
        if self._losing:
            self._faults()
        now_s = self.now()
        wake_s, evaluation_s = self._dispatcher.wake_s(), self._coordinator.next_evaluation_s()
        if any(at_s is not None and at_s <= now_s for at_s in (wake_s, evaluation_s)):
            self._sweep("timer")
        if now_s >= self._last_look_s + _LOOK_S:
            self._last_look_s = now_s
            self._workforce.drain()
            owed = (item for station in self._workforce.stations.values() for item in station.owed())
            self._workforce.end_the_hung(owed)
            self.tell(now_s)

    # -- what has happened ----------------------------------------------------------------------------------------

    def _hear(self, child: ChildProcess) -> None:
        station = self._workforce.stations[child.seat]
        reports = child.receive()
        if reports is None:
            station.lost(child, self._workforce.bury(child), self._workforce.serial())
            self._losing = True
            return
        for report in reports:
            self._workforce.note_loss(child, report)
            done = station.report(child, report, self.zero_s)
            if isinstance(done, Finished):
                self._finished(child.seat, done)
            elif isinstance(done, Evaluated):
                self._trace.totals.events += 1
                merges = self._coordinator.evaluated(done.evaluate, done.loss, self.now())
                self._after(child.seat, merges, "evaluated")
        child.flush()

    def _finished(self, seat: Seat, done: Finished) -> None:
        self._trace.totals.events += 1
        result = done.result
        if done.slot >= 0:
            pool = self._workforce.pools[seat]
            self._handed[result.id] = pool.handed_in(result.work.write, done.slot, done.rows)
            self.most_handed = max(self.most_handed, len(self._handed))
        self._after(seat, self._coordinator.finished(result, self.now()), "finished")

    def _land(self, landed: LandedMerge) -> None:
        self._after(None, self.note_landed(landed), "merged")

    def note_landed(self, landed: LandedMerge) -> tuple[Merge, ...]:
        """Book a merge that has landed; the merges that follow."""
        merge, zero_s, trace = landed.merge, self.zero_s, self._trace
        trace.totals.events += 1
        size_bytes = merge_bytes(merge, self._plan.workload.model_bytes, host_write_backs=len(merge.write_back))
        trace.span("merge", "merge", "", merge.id, landed.start_s - zero_s, landed.end_s - zero_s, size_bytes)
        self.landed.append(Landed(version=landed.version, end_s=landed.end_s - zero_s))
        return self._coordinator.merged(
            merge, version=landed.version, start_s=landed.start_s - zero_s, now_s=self.now()
        )  # fmt: skip

    def _faults(self) -> None:
        """Tell the coordinator of deaths, once the lanes that are left have put down what is void."""
        coordinator, workforce = self._coordinator, self._workforce
        self._losing = any(not station.quiet for station in workforce.stations.values())
        for seat, station in workforce.stations.items():
            how = station.fault_due()
            if not how or coordinator.done:
                continue
            half = station.clear(workforce.pools[seat].give)
            fault = Fault(seat=seat, kind=how, lanes_left=len(station.children), half_applied=half)
            if not station.children:
                self._dispatcher.lost(seat)
            merges = coordinator.failed(fault, self.now())
            known = {*coordinator.held, *(key for merge in merges for key in merge.inputs)}
            for key in [key for key in self._handed if key not in known]:
                self._handed.pop(key).release()
            self._after(seat if station.children else None, merges, "failed")

    # -- what follows ---------------------------------------------------------------------------------------------

    def _after(self, seat: Seat | None, merges: Sequence[Merge], event: Event) -> None:
        for merge in merges:
            inputs = [self._handed.pop(key) for key in merge.inputs]
            if merge.rule == "discard":
                for item in inputs:
                    item.release()
            else:
                self._merges.submit(merge, inputs)
        if seat is not None and self._coordinator.load(seat) < self._coordinator.capacity:
            self._dispatcher.free(seat)
        self._sweep(event)

    def _sweep(self, event: Event | None) -> None:
        now_s = self.now()
        for seat, task in self._dispatcher.sweep(event, now_s):
            self._send(seat, task)
        for evaluate in self._coordinator.snapshots(now_s):
            version = self._workforce.counter.version()
            parameters = self._workforce.parameters.copy()
            self.snapshots.append(Snapshot(evaluate=evaluate, at_s=now_s, version=version, parameters=parameters))
        for seat, station in self._workforce.stations.items():
            if station.waits and self._coordinator.may_start(seat):
                station.grant()

    def _send(self, seat: Seat, task: Assign | Evaluate) -> None:
        workforce, coordinator = self._workforce, self._coordinator
        station, serial = workforce.stations[seat], workforce.serial()
        if isinstance(task, Evaluate):
            station.evaluate(task, serial=serial)
            return
        self.largest[seat.worker] = max(self.largest.get(seat.worker, 0), min(task.work.batch, task.rows))
        slot = -1
        if task.work.write != "in_place":
            held = (self._handed[key] for key in coordinator.held)
            slot = workforce.pools[seat].take(held, self._merges.check)
        epochs = (assign.epoch for assign in coordinator.in_flight.values())
        rows_slot = self._orders.slot(task.epoch, epochs)
        station.assign(
            task, serial=serial, rows_slot=rows_slot, slot=slot, may_start=coordinator.may_start(seat)
        )  # fmt: skip

    def tell(self, now_s: float) -> None:
        """Tell the progress: towards the nearest of the stop rules."""
        if self._progress is None:
            return
        coordinator, stop = self._coordinator, self._plan.run.stop
        rows, cursor = coordinator.fleet.rows, coordinator.cursor
        examples = cursor.epoch * rows + cursor.position
        parts = [
            part / whole
            for part, whole in (
                (now_s, stop.seconds),
                (examples, None if stop.epochs is None else stop.epochs * rows),
                (coordinator.version, stop.updates),
            )
            if whole
        ]
        self._progress(
            Progress(
                now_s=now_s,
                epoch=cursor.epoch,
                examples=examples,
                updates=coordinator.version,
                loss=coordinator.losses[-1].train if coordinator.losses else None,
                fraction=min(max(parts, default=0.0), 1.0),
            )
        )
