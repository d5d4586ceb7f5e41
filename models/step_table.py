"""Measured step times of one network on one device, and what lies between them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from hetsgd.models.policy import Write
from hetsgd.models.workload import Activation, LossName, Precision, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a network's step time depends on; two workloads of one shape cost the same."""

    features: int
    hidden: tuple[int, ...]
    outputs: int
    activation: Activation
    bias: bool
    loss: LossName
    precision: Precision

    @classmethod
    def of(cls, workload: Workload) -> Shape:
        """The shape of a workload."""
        return cls(
            features=workload.features, hidden=workload.hidden, outputs=workload.outputs,
            activation=workload.activation, bias=workload.bias, loss=workload.loss, precision=workload.precision,
        )  # fmt: skip

    def workload(self, name: str = "calibration", *, rows: int = 4096) -> Workload:
        """A workload of this shape."""
        return Workload(
            name=name, dataset="random", rows=rows, test_rows=1, features=self.features, outputs=self.outputs,
            hidden=self.hidden, activation=self.activation, bias=self.bias, loss=self.loss, precision=self.precision,
        )  # fmt: skip

    def __str__(self) -> str:
        """The shape in words.

        >>> w = Workload(name="w", dataset="d", rows=1, test_rows=0, features=54, outputs=2, hidden=(64, 64))
        >>> print(Shape.of(w))
        54-64-64-2 sigmoid softmax float32
        """
        widths = "-".join(str(width) for width in (self.features, *self.hidden, self.outputs))
        return f"{widths} {self.activation} {self.loss} {self.precision}{'' if self.bias else ' no bias'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCurve:
    """Seconds of one step at each measured batch, with `lanes` lanes at work on one model.

    `spreads`: relative spread of the repeats of each. `held_out`: measured to test the others, not used.
    """

    shape: Shape
    lanes: int
    write: Write
    batches: tuple[int, ...]
    seconds: tuple[float, ...]
    spreads: tuple[float, ...]
    held_out: bool = False

    def __post_init__(self) -> None:
        if not self.batches or not len(self.batches) == len(self.seconds) == len(self.spreads):
            raise ValueError(
                f"curve {self.shape}: batches, seconds and spreads must be equally many and at least one, got "
                f"{len(self.batches)}, {len(self.seconds)} and {len(self.spreads)}"
            )
        if list(self.batches) != sorted(set(self.batches)) or self.batches[0] < 1:
            raise ValueError(f"curve {self.shape}: batches must rise from at least 1, got {list(self.batches)}")
        if not all(0.0 < value < math.inf for value in self.seconds):
            raise ValueError(f"curve {self.shape}: seconds must be > 0 and finite, got {list(self.seconds)}")
        if self.lanes < 1:
            raise ValueError(f"curve {self.shape}: lanes must be >= 1, got {self.lanes}")


def between(at: float, places: Sequence[float], values: Sequence[float]) -> float:
    """The value at a place, linear in the logarithm of the place; beyond the ends the value of the end.

    >>> between(2.0, (1.0, 4.0), (10.0, 20.0)), between(9.0, (1.0, 4.0), (10.0, 20.0))
    (15.0, 20.0)
    """
    if at <= places[0]:
        return values[0]
    if at >= places[-1]:
        return values[-1]
    right = bisect_right(places, at)
    low, high = places[right - 1], places[right]
    share = math.log(at / low) / math.log(high / low)
    return values[right - 1] + share * (values[right] - values[right - 1])
