"""Measure steps anew, to compare them with what a calibrated machine predicts."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hetsgd.models.calibration_scope import Cell
from hetsgd.models.machine import Machine
from hetsgd.models.repeats import Central, central
from hetsgd.real.calibrate import Sink
from hetsgd.real.interrupts import Interrupts
from hetsgd.real.launch import warm_start
from hetsgd.real.step_rig import Timed, step_rig
from hetsgd.real.workforce import Interrupted

_SAMPLE_S: Final = 0.015


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A cell with what was predicted and what was measured, both at their best; `slowdown`: average over best."""

    cell: Cell
    predicted_s: float
    measured: Central
    slowdown: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted_s / self.measured.value - 1.0


def predicted_s(machine: Machine, cell: Cell) -> float:
    """What the machine's calibration says of a cell, at its best. Raises KeyError where the device has none."""
    calibration = machine.calibrations[cell.device]
    return calibration.best_s(cell.shape.workload(), cell.batch, lanes=cell.lanes, write=cell.write)


def check(machine: Machine, cells: Sequence[Cell], repeats: int, interrupts: Interrupts, tell: Sink) -> list[Checked]:
    """Measure every cell so many times, network by network in each of as many rounds.

    `interrupts` is entered. Raises Interrupted at an interrupt, ChildLost when a child cannot start.
    """
    shapes = list(dict.fromkeys(cell.shape for cell in cells))
    lanes = max(cell.lanes for cell in cells)
    largest = lanes * max(cell.batch for cell in cells)
    found: dict[Cell, list[Timed]] = defaultdict(list)
    with warm_start():
        for turn in range(repeats):
            for number, shape in enumerate(shapes):
                chosen = [cell for cell in cells if cell.shape == shape]
                random.Random(turn).shuffle(chosen)
                with step_rig(machine, shape, lanes=lanes, largest=largest, interrupts=interrupts) as rig:
                    for cell in sorted(chosen, key=lambda cell: -cell.batch)[:3]:
                        rig.warm(cell)
                    for cell in chosen:
                        if interrupts.received:
                            raise Interrupted
                        found[cell].append(rig.timed(cell, _SAMPLE_S, predicted_s(machine, cell)))
                        tell((turn + number / len(shapes)) / repeats, f"round {turn + 1} of {repeats}, {shape}")
    return [_checked(machine, cell, timed) for cell, timed in found.items()]


def _checked(machine: Machine, cell: Cell, timed: Sequence[Timed]) -> Checked:
    measured = central([one.best_s for one in timed])
    mean_s = sum(one.mean_s for one in timed) / len(timed)
    return Checked(
        cell=cell, predicted_s=predicted_s(machine, cell), measured=measured, slowdown=mean_s / measured.value
    )
