"""The children of a run with the memory they share, and what they do while its clock does not run."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from numpy.typing import NDArray

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.initial import initial_parameters
from hetsgd.models.plan import Plan
from hetsgd.models.policy import Assign, Fleet, Loss, Seat
from hetsgd.models.trace import SPAN_CODE
from hetsgd.real.child import Setup
from hetsgd.real.children import ChildProcess, Children
from hetsgd.real.cores import pinning
from hetsgd.real.interrupts import Interrupts
from hetsgd.real.logs import LogReader, UpdateCounter
from hetsgd.real.losses import loss_of
from hetsgd.real.merge_place import SlotPool
from hetsgd.real.messages import WRITE_CODE, Order, OrderKind, Report, ReportKind
from hetsgd.real.parts import share_data
from hetsgd.real.run_memory import run_arrays
from hetsgd.real.shared_memory import SharedMemory, layout_of
from hetsgd.real.slots import Slots
from hetsgd.real.station import Station, send_parts
from hetsgd.real.watch import Owed, Watch, What

_NEVER: Final = float("inf")
_LOOK_S: Final = 0.5
_GRACE_S: Final = 3.0
_WORK: Final[Mapping[What, str]] = {"assignment": "an assignment", "loss": "a loss", "other": "an answer in a run"}


class ChildLost(RuntimeError):
    """A child process has ended that should not have; the message says which and how."""


class Interrupted(Exception):
    """An interrupt came while something was done outside the clock."""


class Workforce:
    """Children, shared memory, and a station and a pool of slots for every seat.

    `stations` and `pools` by seat, `readers` by child. Children end when `children` is left as a context.
    """

    def __init__(
        self, plan: Plan, dataset: Dataset, fleet: Fleet, capacity: int, children: Children, interrupts: Interrupts
    ) -> None:
        self.children = children
        self._interrupts = interrupts
        self._serials = itertools.count(1)
        self._reports: dict[tuple[int, int, int], Report] = {}
        self._deaths: dict[int, str] = {}
        self._hung: dict[int, str] = {}
        self._watch = Watch()
        self.rows = (dataset.rows, dataset.test_rows)
        count = sum(member.lanes for member in fleet.members)
        self.memory = SharedMemory(layout_of(run_arrays(plan, fleet, count, capacity)))
        data = share_data(plan.workload, dataset)
        try:
            self._begin_values(plan)
            self.stations = self._start(plan, fleet, data)
            children.send_setups((self.memory.descriptor, data.descriptor))
        finally:
            self.memory.close_descriptor()
            data.close_descriptor()
        self.counter = UpdateCounter(self.memory, count)
        self.readers = [LogReader(self.memory, index) for index in range(count)]
        own = self.memory["own"]
        self.own = {member.name: own[index] for index, member in enumerate(fleet.members)}
        versions = self.memory["own_version"]
        self.own_versions = {member.name: versions[index] for index, member in enumerate(fleet.members)}
        self.pools = {seat: SlotPool(Slots(self.memory, str(seat)), self.own[seat.worker]) for seat in fleet.seats}
        self.parameters: NDArray[Any] = self.memory["parameters"]

    def _begin_values(self, plan: Plan) -> None:
        initial = initial_parameters(plan.workload, plan.run.seed)
        self.memory["parameters"][:] = initial
        self.memory["own"][:] = initial
        self.memory["deadline"][0] = _NEVER

    def _start(self, plan: Plan, fleet: Fleet, data: SharedMemory) -> dict[Seat, Station]:
        """Start a child for every lane and accelerator; a core for each that computes on the CPU."""
        devices = {
            member.name: "cpu" if member.kind == "cpu" else plan.machine.accelerator(member.name).device
            for member in fleet.members
        }
        cores = iter(pinning(sum(member.lanes for member in fleet.members if devices[member.name] == "cpu")))
        stations, indices = {}, itertools.count()
        for number, member in enumerate(fleet.members):
            started: list[ChildProcess] = []
            for lane in range(member.lanes):
                index = next(indices)
                seat = Seat(member.name, lane if member.free else -1)
                place = Seat(member.name, lane if member.kind == "cpu" else -1)
                setup = Setup(
                    name=str(place), index=index, first=index if member.free else index - lane, worker=member.name,
                    worker_index=number, seat=str(seat), device=devices[member.name],
                    core=next(cores) if devices[member.name] == "cpu" else None, workload=plan.workload,
                    weight_decay=plan.run.weight_decay, gradient_stats=plan.run.gradient_stats,
                    memory=self.memory.layout, data=data.layout,
                )  # fmt: skip
                started.append(
                    self.children.start(setup, member.kind, seat, place.lane)
                )  # fmt: skip
            for seat in member.seats:
                own = [child for child in started if child.seat == seat]
                stations[seat] = Station(seat, member.kind, own, self.memory, self.rows)
        return stations

    # -- control --------------------------------------------------------------------------------------------------

    def serial(self) -> int:
        """A new number for an order."""
        return next(self._serials)

    def set_deadline(self, at_s: float | None) -> None:
        """When children break off by themselves, on `perf_counter`; None: not at all."""
        self.memory["deadline"][0] = _NEVER if at_s is None else at_s

    def drain(self) -> None:
        """Copy new records out of the logs of the children."""
        for child, reader in zip(self.children.all, self.readers, strict=True):
            new = reader.drain()
            if new is not None:
                steps = new[new["kind"] == SPAN_CODE["compute"]]
                seconds = float((steps["end_s"] - steps["start_s"]).sum())
                self._watch.measured(child.setup.worker, "assignment", rows=int(steps["rows"].sum()), seconds=seconds)

    def end_the_hung(self, owed: Iterable[Owed]) -> None:
        """Kill a child that has been silent for too long. Its death is then heard of as any other's."""
        found = self._watch.late(((item, self.readers[item.index].published) for item in owed), time.monotonic())
        if found is not None:
            item, silent_s = found
            child = self.children.all[item.index]
            self._hung[item.index] = (
                f"{child.name} hung: no sign of it for {silent_s:.0f} s in {_WORK[item.what]} of {item.rows} rows, "
                "so it was killed"
            )
            child.kill()

    def bury(self, child: ChildProcess) -> str:
        """Take a dead child out, and say in words what it died of."""
        how = self.children.bury(child)
        area = bytes(self.memory["errors"][child.setup.index])
        text = area[: area.index(0)].decode(errors="replace")
        died = f"{child.name}: {text}" if text else f"{child.name} {how}"
        self._deaths[child.setup.index] = self._hung.get(child.setup.index, died)
        return self._deaths[child.setup.index]

    # -- outside the clock ----------------------------------------------------------------------------------------

    def get_ready(self) -> None:
        """Wait until every child has loaded what it needs."""
        self._collect(ReportKind.READY, 0, self.children.all, self._interrupted)

    def start_clock(self) -> None:
        """Tell the children that what they do counts from now on."""
        for reader in self.readers:
            reader.discard()
        for child in self.children.live:
            child.send(Order(kind=OrderKind.START, serial=self.serial()))

    def warm(self, assigns: Sequence[Assign], rows_slot: int) -> None:
        """Let every seat do steps of the batch size that it will be given first."""
        serial, told = self.serial(), []
        for assign in assigns:
            work = assign.work
            order = Order(
                kind=OrderKind.WARM, serial=serial, stop=min(work.batch, self.rows[0]), batch=work.batch, steps=1,
                rate=work.rate, write=WRITE_CODE[work.write], rows_slot=rows_slot,
            )  # fmt: skip
            for child in self.stations[assign.seat].children:
                child.send(order)
                told.append(child)
        while told:
            try:
                self._collect(ReportKind.WARMED, serial, told, self._interrupted)
            except ChildLost:
                told = [child for child in told if child.alive]
                continue
            return

    def evaluate(self, parameters: NDArray[Any], *, at_s: float, epoch: int, update: int, patience: int = 0) -> Loss:
        """The loss of a model, computed by all children together; a child that dies is done without.

        Raises ChildLost when none is left, Interrupted at more than `patience` interrupts.
        """
        self.memory["snapshot"][:] = parameters
        while True:
            order = Order(kind=OrderKind.EVALUATE, serial=self.serial(), source=1)
            told = self.children.live
            if not told:
                raise ChildLost("train: no child process is left to compute a loss")
            send_parts(told, self.rows, order)
            try:
                reports = self._collect(
                    ReportKind.LOSS, order.serial, told, lambda: len(self._interrupts.received) > patience
                )
            except ChildLost:
                continue
            return loss_of(reports, at_s=at_s, end_s=at_s, epoch=epoch, update=update)

    def ask(self, orders: Sequence[tuple[ChildProcess, Order]], answer: ReportKind) -> list[Report]:
        """Give children their orders, all of one serial, and wait for all their answers, in the same order.

        Raises ChildLost when one of them is gone, Interrupted at an interrupt.
        """
        for child, order in orders:
            child.send(order)
        serial, children = orders[0][1].serial, [child for child, _ in orders]
        return self._collect(answer, serial, children, self._interrupted)

    def finish(self) -> dict[int, float]:
        """Stop the children's clock: processor seconds since the start, by child; a dead one has none.

        They end the piece at hand first. Whoever interrupts a second time does not wait for that much longer.
        """
        self.set_deadline(0.0)
        serial, first_s = self.serial(), time.monotonic()
        for child in self.children.live:
            child.send(Order(kind=OrderKind.FINISH, serial=serial))

        def impatient() -> bool:
            return len(self._interrupts.received) > 1 and time.monotonic() > first_s + _GRACE_S

        while True:
            told = self.children.live
            try:
                reports = self._collect(ReportKind.FINISHED, serial, told, impatient)
            except ChildLost:
                continue
            except Interrupted:
                return {index: report.value for (_, _, index), report in self._reports.items()}
            self.set_deadline(None)
            return {child.setup.index: report.value for child, report in zip(told, reports, strict=True)}

    def _collect(
        self, kind: ReportKind, serial: int, children: Sequence[ChildProcess], give_up: Callable[[], bool]
    ) -> list[Report]:
        """One report of this kind from each child, in their order; other reports are dropped.

        Raises ChildLost when one of them is gone, Interrupted when `give_up` says so.
        """
        self._reports = {key: report for key, report in self._reports.items() if key[:2] == (kind, serial)}
        while True:
            for child in children:
                if not child.alive:
                    raise ChildLost(f"train: {self._deaths[child.setup.index]}")
            if all((kind, serial, child.setup.index) in self._reports for child in children):
                return [self._reports.pop((kind, serial, child.setup.index)) for child in children]
            if give_up():
                raise Interrupted
            for child in self.children.select(_LOOK_S):
                reports = child.receive()
                if reports is None:
                    self.stations[child.seat].gone(child, self.bury(child))
                for report in reports or ():
                    if (report.kind, report.serial) == (kind, serial):
                        self._reports[kind, serial, child.setup.index] = report
                        self.note_loss(child, report)
            silent = [child for child in children if (kind, serial, child.setup.index) not in self._reports]
            self.end_the_hung(self._owed(child, kind, serial, len(children)) for child in silent)

    def note_loss(self, child: ChildProcess, report: Report) -> None:
        """Learn from the report of a loss how fast its child is."""
        if report.kind == ReportKind.LOSS:
            rows = int(report.train[1] + report.test[1])
            self._watch.measured(child.setup.worker, "loss", rows=rows, seconds=report.end_s - report.start_s)

    def _owed(self, child: ChildProcess, kind: ReportKind, serial: int, sharing: int) -> Owed:
        loss = kind == ReportKind.LOSS
        rows = math.ceil(sum(self.rows) / sharing) if loss else self.rows[0]
        return Owed(
            index=child.setup.index, worker=child.setup.worker, what="loss" if loss else "other", serial=serial,
            rows=rows,
        )  # fmt: skip

    def _interrupted(self) -> bool:
        return bool(self._interrupts.received)
