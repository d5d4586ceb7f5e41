"""Calibrate this machine: measure in rounds until the time is over, each sample on disk as soon as it is there.

Every round measures everything once, networks in turn, so that slow drift of the machine falls on all alike. The first
round is always finished. What a resumed calibration has measured before counts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

from hetsgd.models.calibrated_machine import accelerator_start, core_start
from hetsgd.models.calibration_scope import Cell, Scope, distinct_accelerators
from hetsgd.models.machine_local import memory_bytes
from hetsgd.models.repeats import log_sigma, median_of
from hetsgd.models.sample_store import SampleStore
from hetsgd.models.step_fit import StepFit
from hetsgd.models.step_table import Shape
from hetsgd.real.bandwidth import copiers, working_sets
from hetsgd.real.interrupts import Interrupts
from hetsgd.real.launch import warm_start
from hetsgd.real.link_rates import launch_seconds, memory_rate, transfers
from hetsgd.real.round_trip import round_trip
from hetsgd.real.step_rig import StepRig, step_rig
from hetsgd.real.workforce import Interrupted

Sink = Callable[[float, str], None]
"""Told the share of the time that is over, and what is being measured."""

_COPY_S: Final = 0.05
_TRIP_S: Final = 0.6
_SHORT_TRIP_S: Final = 0.35
_SERIES: Final = 200
_SERIES_BATCH: Final = 32
_MEMORY_BYTES: Final = 1 << 28


def calibrate(scope: Scope, store: SampleStore, interrupts: Interrupts, tell: Sink) -> None:
    """Measure all of the scope, again and again until its minutes are over.

    `interrupts` is entered. Raises Interrupted at an interrupt, ChildLost when a child cannot start; the store has
    everything that was measured before.
    """
    with warm_start():
        run = _Calibration(scope, store, interrupts, tell)
        run.all_rounds()


class _Calibration:
    """One run of a calibration."""

    def __init__(self, scope: Scope, store: SampleStore, interrupts: Interrupts, tell: Sink) -> None:
        self._scope = scope
        self._store = store
        self._interrupts = interrupts
        self._tell = tell
        self._begun_s = time.monotonic() - store.elapsed_s
        self._round = 0
        self._things = sum(1 for shape in scope.shapes for _ in scope.cells(shape))
        socket = scope.machine.sockets[0]
        self._guesses: dict[str, StepFit] = {socket.name: core_start(socket, {"l2": None, "l3": None, "dram": None})}
        for acc in distinct_accelerators(scope.machine):
            memory = acc.memory_bandwidth_bytes_per_s
            self._guesses[acc.name] = self._guesses[socket.name] if acc.stand_in else accelerator_start(acc, memory)

    def all_rounds(self) -> None:
        """Rounds until the time is over."""
        while self._round == 0 or not self._over():
            for measure in (self._bandwidths, self._links, self._round_trips):
                measure()
                if self._enough():
                    return
            for shape in self._scope.shapes:
                self._network(shape)
                if self._enough():
                    return
            self._round += 1

    # -- the course -----------------------------------------------------------------------------------------------

    def _over(self) -> bool:
        return self._elapsed_s() >= 60.0 * self._scope.minutes

    def _enough(self) -> bool:
        """Whether the time is over; not before everything has been measured once."""
        return self._round > 0 and self._over()

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._begun_s

    def _wanted(self, key: str) -> bool:
        """Whether a measurement is still to be made in this round; a resumed calibration has some already."""
        return self._store.count(key) <= self._round

    def _add(self, key: str, *values: float) -> None:
        self._store.add(key, list(values), self._elapsed_s())

    def _at(self, what: str) -> None:
        """Tell where the calibration is; Interrupted when it is to end."""
        if self._interrupts.received:
            raise Interrupted
        share = self._elapsed_s() / (60.0 * self._scope.minutes)
        if self._round == 0:
            # The first round is finished however long it takes.
            share = min(share, len(self._store.measured()) / self._things)
        self._tell(min(share, 1.0), f"round {self._round + 1}, {what}")

    # -- memory, links, messages ----------------------------------------------------------------------------------

    def _bandwidths(self) -> None:
        socket, counts = self._scope.machine.sockets[0], self._scope.lane_counts
        wanted = [
            (lanes, working) for lanes in counts for working in working_sets(socket, lanes, memory_bytes())
            if self._wanted(f"bandwidth {working.tier}, {lanes} lanes")
        ]  # fmt: skip
        if not wanted:
            return
        with copiers(counts[-1]) as copying:
            for lanes, working in wanted:
                self._at(f"memory bandwidth, {working.tier}")
                rate = copying.rate(lanes, working.size_bytes, _COPY_S)
                self._add(f"bandwidth {working.tier}, {lanes} lanes", rate)

    def _links(self) -> None:
        for acc in distinct_accelerators(self._scope.machine):
            if not self._wanted(f"launch {acc.name}"):
                continue
            self._at(f"copies and launches of {acc.name}")
            if not acc.stand_in:
                for found in transfers(acc.device):
                    key = f"{found.memory} copy {acc.name} {found.direction}, {found.size_bytes} bytes"
                    self._add(key, found.seconds)
                self._add(f"memory rate {acc.name}", memory_rate(acc.device, _MEMORY_BYTES))
            self._add(f"launch {acc.name}", launch_seconds(acc.device))

    def _round_trips(self) -> None:
        if not self._wanted("round trip gap"):
            return
        self._at("messages and decisions")
        found = round_trip(self._scope.machine, _SHORT_TRIP_S if self._scope.short else _TRIP_S)
        if self._interrupts.received:
            raise Interrupted
        if found is not None:
            self._add("round trip gap", found.gap_s)
            self._add("round trip decision", found.decision_s)

    # -- steps ----------------------------------------------------------------------------------------------------

    def _network(self, shape: Shape) -> None:
        """Everything about one network, in a new order each round."""
        scope = self._scope
        cells = [cell for cell in scope.cells(shape) if self._wanted(str(cell))]
        if not cells:
            return
        random.Random(self._round).shuffle(cells)
        lanes = scope.lane_counts[-1]
        with step_rig(
            scope.machine, shape, lanes=lanes, largest=scope.largest, interrupts=self._interrupts
        ) as rig:  # fmt: skip
            self._warm(rig)
            for cell in cells:
                self._at(str(shape))
                self._step(rig, cell)
                if self._enough():
                    return
            self._losses(rig)
            if shape in (scope.shapes[0], scope.shapes[-1]) or scope.short:
                self._noise(rig)

    def _warm(self, rig: StepRig) -> None:
        """Buffers for the largest batch, and code that has run once."""
        for cell in self._largest(rig.shape):
            rig.warm(cell)

    def _largest(self, shape: Shape) -> list[Cell]:
        found: dict[tuple[str, int], Cell] = {}
        for cell in self._scope.cells(shape):
            known = found.get((cell.device, cell.lanes))
            if known is None or cell.batch > known.batch:
                found[cell.device, cell.lanes] = cell
        return list(found.values())

    def _step(self, rig: StepRig, cell: Cell) -> None:
        guess_s = median_of(self._store, str(cell)) or self._guess_s(cell)
        timed = rig.timed(cell, self._scope.sample_s, guess_s)
        self._add(str(cell), timed.best_s, timed.mean_s, float(timed.disturbed))
        for copy in rig.copies:
            self._add(f"copy of a run {cell.device} {copy.kind}, {copy.size_bytes} bytes", copy.seconds)

    def _guess_s(self, cell: Cell) -> float:
        return self._guesses[cell.device].step_s(cell.shape.workload(), cell.batch)

    def _losses(self, rig: StepRig) -> None:
        scope = self._scope
        for lanes in scope.lane_counts:
            key = f"loss of {rig.shape}, {scope.machine.sockets[0].name}, {lanes} lanes"
            if self._wanted(key):
                self._at(str(rig.shape))
                self._add(key, rig.loss_row_s(rig.lanes[:lanes]))
        for acc in distinct_accelerators(scope.machine):
            key = f"loss of {rig.shape}, {acc.name}, 1 lanes"
            if self._wanted(key):
                self._at(str(rig.shape))
                self._add(key, rig.loss_row_s([rig.accelerators[acc.name]]))

    def _noise(self, rig: StepRig) -> None:
        """The spread of steps in a row, of two networks: a small and a large one."""
        scope = self._scope
        self._at("noise")
        cell = Cell(device=scope.machine.sockets[0].name, lanes=1, shape=rig.shape, batch=_SERIES_BATCH)
        count = min(_SERIES, max(round(0.2 / self._guess_s(cell)), 20))
        self._add(f"noise {cell.device}", log_sigma(rig.lane_series(_SERIES_BATCH, count)))
        for acc in distinct_accelerators(scope.machine):
            series = rig.accelerator_series(acc.name, _SERIES_BATCH, count)
            self._add(f"noise {acc.name}", log_sigma(series))
