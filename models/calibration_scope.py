"""What a calibration measures: which networks, devices, batch sizes and numbers of lanes, and for how long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hetsgd.models.machine import Accelerator, Machine
from hetsgd.models.policy import Write
from hetsgd.models.step_table import Shape
from hetsgd.models.workload import Activation, LossName, Precision

BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
HELD_OUT: Final = (3, 12, 48, 192, 768, 3072)
GRADIENT: Final = (1, 16, 128, 1024)
_THINNED: Final = (1, 8, 64, 512, 4096)
_LONGEST_STEP_S: Final = 0.06
_CORE_BATCHES: Final = 1024
_STAND_IN_BATCHES: Final = 8192
_CELL_S: Final = 0.025
_NETWORK_S: Final = 0.5
_SHORT_MINUTES: Final = 0.5

LEAST_MINUTES: Final = 0.05
MOST_MINUTES: Final = 24 * 60


def _shape(
    features: int, hidden: tuple[int, ...], outputs: int, activation: Activation, precision: Precision = "float32", *,
    bias: bool = True, loss: LossName = "softmax",
) -> Shape:  # fmt: skip
    return Shape(
        features=features, hidden=hidden, outputs=outputs, activation=activation, bias=bias, loss=loss,
        precision=precision,
    )  # fmt: skip


# Weights from a few KB to tens of MB, few and many layers, narrow and wide, all activations. Among them the built-in
# workloads quickstart and covtype.
SHAPES: Final = (
    _shape(54, (64, 64), 2, "tanh"),
    _shape(20, (256, 256), 10, "relu"),
    _shape(784, (128, 64), 10, "tanh"),
    _shape(54, (128,) * 10, 2, "sigmoid"),
    _shape(100, (512, 512), 10, "sigmoid"),
    _shape(54, (512,) * 6, 2, "sigmoid"),
    _shape(300, (1024, 1024, 1024), 10, "relu"),
    _shape(784, (2048, 2048), 10, "relu"),
    _shape(54, (64, 64), 2, "tanh", "float64"),
    _shape(100, (512, 512), 10, "sigmoid", "float64"),
    _shape(54, (512,) * 6, 2, "sigmoid", "float64", bias=False),
)
_SHORT_SHAPES: Final = (SHAPES[0], SHAPES[4])

UNSEEN: Final = (
    _shape(40, (200, 100), 5, "relu"),
    _shape(150, (384,) * 4, 20, "tanh"),
    _shape(500, (1024, 256), 50, "sigmoid", loss="sigmoid"),
)
"""Networks that no calibration measures: a check asks how well the fit foretells them."""
UNSEEN_BATCHES: Final = (1, 6, 24, 100, 400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One thing to time: steps of a batch on a device, with `lanes` lanes at work.

    An accelerator has 1; a stand-in counts as a lane, with the others on the CPU team.
    """

    device: str
    lanes: int
    shape: Shape
    batch: int
    write: Write = "in_place"
    held_out: bool = False

    def __str__(self) -> str:
        """The key of its measurements."""
        held = ", held out" if self.held_out else ""
        return f"step of {self.shape}, batch {self.batch}, {self.write}, {self.device}, {self.lanes} lanes{held}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """All that is measured on a machine in so many minutes. `sample_s`: seconds of one measurement."""

    machine: Machine
    minutes: float
    shapes: tuple[Shape, ...]
    lane_counts: tuple[int, ...]
    sample_s: float
    short: bool

    def cells(self, shape: Shape) -> Iterator[Cell]:
        """What is timed of one network."""
        socket, ends = self.machine.sockets[0], (self.lane_counts[0], self.lane_counts[-1])
        for lanes in self.lane_counts:
            grid = BATCHES if lanes in ends else _THINNED
            yield from self._cells(shape, socket.name, lanes, grid, _core_rate(self.machine, shape), _CORE_BATCHES)
        for accelerator in distinct_accelerators(self.machine):
            rate = accelerator.flops_float32 if shape.precision == "float32" else accelerator.flops_float64
            most = _STAND_IN_BATCHES if accelerator.stand_in else BATCHES[-1]
            yield from self._cells(shape, accelerator.name, 1, BATCHES, rate, most)
            for lanes in self.beside(accelerator)[1:]:
                yield from self._cells(shape, accelerator.name, lanes, _THINNED, rate, _CORE_BATCHES)

    def beside(self, accelerator: Accelerator) -> tuple[int, ...]:
        """Numbers of lanes that an accelerator is measured with, itself included: alone; a stand-in also with all."""
        ends = (1, self.lane_counts[-1])
        return tuple(dict.fromkeys(ends)) if accelerator.stand_in else (1,)

    def _cells(
        self, shape: Shape, device: str, lanes: int, grid: Sequence[int], rate: float, most: int
    ) -> Iterator[Cell]:
        flops = shape.workload().step_flops(1)
        fits = [batch for batch in grid if batch <= most and batch * flops <= rate * _LONGEST_STEP_S] or [1]
        fits = fits[::2] if self.short else fits
        for batch in fits:
            yield Cell(device=device, lanes=lanes, shape=shape, batch=batch)
        for batch in HELD_OUT:
            if fits[0] < batch < fits[-1] and grid is BATCHES:
                yield Cell(device=device, lanes=lanes, shape=shape, batch=batch, held_out=True)
        for batch in GRADIENT:
            if batch <= fits[-1] and not self.short and grid is BATCHES:
                yield Cell(device=device, lanes=lanes, shape=shape, batch=batch, write="gradient")

    @property
    def least_s(self) -> float:
        """About how long it takes to measure everything once, which is always done: most of it is timing steps."""
        cells = sum(1 for shape in self.shapes for _ in self.cells(shape))
        return cells * (self.sample_s + _CELL_S) + len(self.shapes) * _NETWORK_S

    @property
    def largest(self) -> int:
        """Rows that all lanes together, or an accelerator, take at once, at most."""
        alone = max(cell.batch for shape in self.shapes for cell in self.cells(shape))
        return max(self.lane_counts[-1] * min(alone, _CORE_BATCHES), alone)


def scope_of(machine: Machine, minutes: float, shapes: Sequence[Shape] = ()) -> Scope:
    """What to measure in so many minutes; `shapes`: networks that get tables of their own beside the usual ones.

    Below half a minute only two networks at every other batch size are measured. Raises ValueError for too few minutes.
    """
    if not LEAST_MINUTES <= minutes <= MOST_MINUTES:
        raise ValueError(f"must be {LEAST_MINUTES} to {MOST_MINUTES} minutes, got {minutes:g}")
    short = minutes < _SHORT_MINUTES
    usual = _SHORT_SHAPES if short else SHAPES
    return Scope(
        machine=machine,
        minutes=minutes,
        shapes=tuple(dict.fromkeys((*usual, *shapes))),
        lane_counts=lane_counts(machine.logical_cpus),
        sample_s=0.008 if short else 0.015,
        short=short,
    )


def check_cells(machine: Machine) -> list[Cell]:
    """What a check of a calibrated machine measures: networks with tables at other batch sizes, and unseen networks.

    `held_out` marks the former. Raises ValueError where nothing of the machine is calibrated.
    """
    cells = []
    devices = [(socket.name, socket.calibration) for socket in machine.sockets]
    devices += [(acc.name, acc.calibration) for acc in distinct_accelerators(machine)]
    for device, calibration in devices:
        if calibration is None:
            continue
        most = max(fit.lanes for fit in calibration.fits)
        for lanes in dict.fromkeys((1, most)):
            tables = [
                curve for curve in calibration.curves
                if (curve.lanes, curve.write, curve.held_out) == (lanes, "in_place", False)
            ]  # fmt: skip
            for curve in tables:
                inside = [batch for batch in HELD_OUT if curve.batches[0] < batch < curve.batches[-1]]
                cells += [
                    Cell(device=device, lanes=lanes, shape=curve.shape, batch=batch, held_out=True) for batch in inside
                ]
            largest = min(curve.batches[-1] for curve in tables) if tables else 1
            for shape in UNSEEN:
                cells += [
                    Cell(device=device, lanes=lanes, shape=shape, batch=batch)
                    for batch in UNSEEN_BATCHES if batch <= largest
                ]  # fmt: skip
    if not cells:
        raise ValueError(f"machine {machine.name} is not calibrated: hetsgd calibrate --out FILE writes one that is")
    return cells


def lane_counts(most: int) -> tuple[int, ...]:
    """Numbers of lanes to measure: powers of two, and all.

    >>> lane_counts(1), lane_counts(2), lane_counts(12)
    ((1,), (1, 2), (1, 2, 4, 8, 12))
    """
    powers = [1 << k for k in range(most.bit_length())]
    return tuple(sorted({*(count for count in powers if count <= most), most}))


def distinct_accelerators(machine: Machine) -> list[Accelerator]:
    """One accelerator of each make: equal ones are measured once."""
    found: dict[Accelerator, Accelerator] = {}
    for accelerator in machine.accelerators:
        found.setdefault(make_of(accelerator), accelerator)
    return list(found.values())


def make_of(accelerator: Accelerator) -> Accelerator:
    """The accelerator without what tells two of one make apart."""
    return replace(accelerator, name="", device=accelerator.device.partition(":")[0])


def _core_rate(machine: Machine, shape: Shape) -> float:
    socket = machine.sockets[0]
    return socket.core_flops_float32 if shape.precision == "float32" else socket.core_flops_float64
