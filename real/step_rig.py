"""Step times on demand: the real children of one network, told to do steps of any batch size outside any run.

What is timed is what a run does: rows taken in a shuffled order, the step, and the books that a child keeps. Lanes
that are measured together work on one model at the same time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.calibration_scope import Cell
from hetsgd.models.data.dataset import Dataset
from hetsgd.models.machine import Machine
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.policy import Write
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.step_table import Shape
from hetsgd.models.trace import SPAN_CODE, SpanKind
from hetsgd.real.children import ChildProcess, Children
from hetsgd.real.cores import usable_cores
from hetsgd.real.interrupts import Interrupts
from hetsgd.real.launch import launcher
from hetsgd.real.messages import WRITE_CODE, Order, OrderKind, Report, ReportKind
from hetsgd.real.workforce import Workforce

_RATE: Final = 1e-9
"""So small that the model stays what it was, however many steps are done."""
_DATA_BYTES: Final = 16 << 20
_LEAST_ROWS: Final = 4096
_DISTURBED: Final = 1.03
"""A step took so much longer than its processor time: the core was given to something else meanwhile."""
_LOSS_ROWS: Final = 4096
_BURST_S: Final = 0.004
_BEST: Final = 0.1
_LEAST_PIECES: Final = 2
_LONG_STEP_S: Final = 0.01
_MOST_PIECES: Final = 200
_MOST_BURSTS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One measurement: seconds of a step at its best and on average; `disturbed`: others had the core meanwhile.

    For disturbed work on cores the processor time counts, which others lengthen only by what they leave in the caches.
    """

    best_s: float
    mean_s: float
    disturbed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One copy of an accelerator: kind `load` (rows), `pull` (model down) or `push` (model up)."""

    kind: SpanKind
    size_bytes: int
    seconds: float


class StepRig:
    """The children of one network: `lanes` of the CPU team, and the accelerators by name."""

    def __init__(self, force: Workforce, workforce_rows: int, shape: Shape) -> None:
        self._force = force
        self._rows = workforce_rows
        self._position = 0
        self.shape = shape
        children = force.children.all
        self.lanes = [child for child in children if child.kind == "cpu"]
        self.accelerators = {child.setup.worker: child for child in children if child.kind == "accelerator"}
        self.copies: list[Copy] = []

    def lane_steps(self, lanes: int, batch: int, pieces: int, write: Write = "in_place") -> Timed:
        """So many steps on each of the first `lanes` lanes, all at the same time."""
        children = self.lanes[:lanes]
        reports = self._assign(children, batch, pieces, write)
        self._forget(children)
        wall_s = [(report.end_s - report.start_s) / report.steps for report in reports]
        spent_s = [report.value / report.steps for report in reports]
        return _timed(float(np.mean(wall_s)), float(np.mean(spent_s)))

    def accelerator_steps(self, name: str, batch: int, pieces: int, write: Write = "in_place", lanes: int = 0) -> Timed:
        """So many local steps of one accelerator in one assignment; its copies are noted in `copies`.

        Meanwhile `lanes` lanes do steps of the same batch, and go on a little longer.
        """
        child, serial = self.accelerators[name], self._force.serial()
        orders = self._orders([child], batch, pieces, write, serial)
        if lanes:
            more = pieces + pieces // 2 + 1
            orders = [*self._orders(self.lanes[:lanes], batch, more, "in_place", serial), *orders]
        report = self._force.ask(orders, ReportKind.DONE)[-1]
        self._forget(self.lanes[:lanes])
        records = self._records(child, report.serial)
        compute = _spans(records, "compute")
        wall_s = float(compute["end_s"][0] - compute["start_s"][0]) / report.steps
        for kind in _COPIES:
            for span in _spans(records, kind):
                seconds = float(span["end_s"] - span["start_s"])
                self.copies.append(Copy(kind=kind, size_bytes=int(span["bytes"]), seconds=seconds))
        if child.setup.device != "cpu":
            return Timed(best_s=wall_s, mean_s=wall_s, disturbed=False)
        return _timed(wall_s, report.value / report.steps)

    def timed(self, cell: Cell, seconds: float, guess_s: float) -> Timed:
        """Steps of a cell for about so long, after some that warm up; `guess_s`: about what a step takes.

        They come in short bursts: other programs, and other guests of a shared host, lengthen some and not others,
        and the best of them are what a step takes. On a lane a gradient is one step an assignment.
        """
        pieces = 1 if cell.write == "gradient" else _burst_steps(guess_s)
        self._burst(cell, max(pieces // 2, 1))
        self.copies.clear()
        bursts: list[Timed] = []
        until = time.perf_counter() + seconds
        while len(bursts) < 2 or (time.perf_counter() < until and len(bursts) < _MOST_BURSTS):
            bursts.append(self._burst(cell, pieces))
        return Timed(
            best_s=float(np.quantile([burst.best_s for burst in bursts], _BEST)),
            mean_s=float(np.mean([burst.mean_s for burst in bursts])),
            disturbed=sum(burst.disturbed for burst in bursts) > len(bursts) / 2,
        )

    def warm(self, cell: Cell) -> None:
        """One step of a cell."""
        self._burst(cell, 1)

    def _burst(self, cell: Cell, pieces: int) -> Timed:
        if cell.device in self.accelerators:
            return self.accelerator_steps(cell.device, cell.batch, pieces, cell.write, cell.lanes - 1)
        return self.lane_steps(cell.lanes, cell.batch, pieces, cell.write)

    def lane_series(self, batch: int, count: int) -> list[float]:
        """The seconds of each of so many steps in a row on one lane."""
        child = self.lanes[0]
        (report,) = self._assign([child], batch, count, "in_place")
        compute = _spans(self._records(child, report.serial), "compute")
        return [float(value) for value in compute["end_s"] - compute["start_s"]]

    def accelerator_series(self, name: str, batch: int, count: int) -> list[float]:
        """The seconds of each of so many assignments of one step on one accelerator."""
        child, seconds = self.accelerators[name], []
        for _ in range(count):
            (report,) = self._assign([child], batch, 1, "in_place")
            compute = _spans(self._records(child, report.serial), "compute")
            seconds.append(float(compute["end_s"][0] - compute["start_s"][0]))
        return seconds

    def loss_row_s(self, children: Sequence[ChildProcess]) -> float:
        """Seconds per row of a loss that these children compute at the same time, each of the same rows."""
        rows = min(self._rows, _LOSS_ROWS)
        order = Order(kind=OrderKind.EVALUATE, serial=self._force.serial(), source=1, stop=rows)
        reports = self._force.ask([(child, order) for child in children], ReportKind.LOSS)
        wall_s = []
        for child in children:
            spans = _spans(self._records(child, 0), "evaluate")
            wall_s += [float(value) for value in spans["end_s"] - spans["start_s"]]
        if any(child.setup.device != "cpu" for child in children):
            return float(np.mean(wall_s)) / rows
        spent_s = [report.value for report in reports]
        return _timed(float(np.mean(wall_s)), float(np.mean(spent_s))).best_s / rows

    def _assign(self, children: Sequence[ChildProcess], batch: int, pieces: int, write: Write) -> list[Report]:
        """An assignment of so many steps for each of the children, who share its rows; their reports."""
        return self._force.ask(self._orders(children, batch, pieces, write, self._force.serial()), ReportKind.DONE)

    def _orders(
        self, children: Sequence[ChildProcess], batch: int, pieces: int, write: Write, serial: int
    ) -> list[tuple[ChildProcess, Order]]:
        rows = min(batch * pieces * len(children), self._rows)
        if self._position + rows > self._rows:
            self._position = 0
        start, self._position = self._position, self._position + rows
        order = Order(
            kind=OrderKind.ASSIGN, serial=serial, id=serial, go=1, start=start, stop=start + rows, lanes=len(children),
            batch=batch, steps=pieces, rate=_RATE, write=WRITE_CODE[write], rows_slot=0,
            slot=-1 if write == "in_place" else 0,
        )  # fmt: skip
        return [(child, order._replace(position=position)) for position, child in enumerate(children)]

    def _records(self, child: ChildProcess, serial: int) -> NDArray[Any]:
        """What a child has logged of an assignment (0: of anything); it is forgotten after that."""
        reader = self._force.readers[child.setup.index]
        records = reader.records()
        reader.discard()
        found: NDArray[Any] = records if not serial else records[records["id"] == serial]
        return found

    def _forget(self, children: Sequence[ChildProcess]) -> None:
        for child in children:
            self._force.readers[child.setup.index].discard()


_COPIES: Final[tuple[SpanKind, ...]] = ("load", "pull", "push")


def _spans(records: NDArray[Any], kind: SpanKind) -> NDArray[Any]:
    found: NDArray[Any] = records[records["kind"] == SPAN_CODE[kind]]
    return found


def _timed(wall_s: float, spent_s: float) -> Timed:
    disturbed = wall_s > _DISTURBED * spent_s
    step_s = spent_s if disturbed else wall_s
    return Timed(best_s=step_s, mean_s=step_s, disturbed=disturbed)


def _burst_steps(guess_s: float) -> int:
    """Steps of a burst: so many that the first, which finds the caches cold, hardly counts."""
    least = _LEAST_PIECES if guess_s < _LONG_STEP_S else 1
    return max(least, min(round(_BURST_S / guess_s), _MOST_PIECES))


def rows_of(shape: Shape, largest: int) -> int:
    """Rows of random data for a rig: enough for `largest` at once, and more than fit a core's own caches."""
    return max(_DATA_BYTES // shape.workload().row_bytes, _LEAST_ROWS, largest)


@contextmanager
def step_rig(machine: Machine, shape: Shape, *, lanes: int, largest: int, interrupts: Interrupts) -> Iterator[StepRig]:
    """The children of one network on this machine; `largest`: rows that all lanes together take at once.

    They are pinned as in a run of the machine: lane i to core i, a stand-in to the last core. Raises ChildLost when
    they cannot start, Interrupted at an interrupt.
    """
    workload = shape.workload(rows=rows_of(shape, largest))
    team = replace(machine, cpu_lanes=lanes)
    plan = Plan(
        machine=team, workload=workload, policy="hogbatch", recipe=recipe("hogbatch"),
        run=RunSettings(stop=StopRule(seconds=1.0)),
    )  # fmt: skip
    with launcher() as start, Children(start) as children:
        interrupts.wake = children.wake
        force = Workforce(plan, random_data(shape, workload.rows), plan.fleet(), 1, children, interrupts)
        force.get_ready()
        _pin(children.all)
        force.memory["orders"][0] = np.random.default_rng(1).permutation(workload.rows)
        yield StepRig(force, workload.rows, shape)


def _pin(children: Sequence[ChildProcess]) -> None:
    cores = usable_cores()
    if not hasattr(os, "sched_setaffinity"):
        return
    for child in children:
        if child.setup.device == "cpu":
            core = cores[child.lane % len(cores)] if child.kind == "cpu" else cores[-1]
            with suppress(OSError):
                os.sched_setaffinity(child.pid, {core})


def random_data(shape: Shape, rows: int) -> Dataset:
    """Random rows and labels: what a step costs does not depend on them."""
    generator = np.random.default_rng(0)
    x = generator.random((rows, shape.features), dtype=np.float32).astype(shape.precision)
    multilabel = shape.loss == "sigmoid"
    size = (rows, shape.outputs) if multilabel else rows
    y = generator.integers(0, 2 if multilabel else shape.outputs, size)
    labels = y.astype(np.float32) if multilabel else y
    return Dataset(
        name="random", train_x=x, train_y=labels, test_x=x[:1], test_y=labels[:1],
        classes=shape.outputs, multilabel=multilabel, source="random",
    )  # fmt: skip
