"""A loss summed over rows, with what the score needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSum:
    """Loss summed over `rows`, and what the score needs. Two of them add up to that of the rows of both.

    `hits`: labels predicted and true, `false_alarms`: predicted only, `misses`: true only. With one label per
    row a wrong row is one of each, so that micro-averaged F1 is the accuracy.
    """

    loss: float = 0.0
    rows: int = 0
    hits: int = 0
    false_alarms: int = 0
    misses: int = 0

    @classmethod
    def of(cls, numbers: Sequence[float]) -> LossSum:
        """The sum whose `numbers` these are."""
        loss, *counts = numbers
        rows, hits, false_alarms, misses = (int(count) for count in counts)
        return cls(loss=loss, rows=rows, hits=hits, false_alarms=false_alarms, misses=misses)

    @property
    def numbers(self) -> tuple[float, ...]:
        """The five numbers, as a message carries them.

        >>> LossSum.of(LossSum(loss=0.5, rows=2, hits=1).numbers)
        LossSum(loss=0.5, rows=2, hits=1, false_alarms=0, misses=0)
        """
        return astuple(self)

    def __add__(self, other: LossSum) -> LossSum:
        return LossSum(
            loss=self.loss + other.loss,
            rows=self.rows + other.rows,
            hits=self.hits + other.hits,
            false_alarms=self.false_alarms + other.false_alarms,
            misses=self.misses + other.misses,
        )

    @property
    def mean(self) -> float:
        """Mean loss per row; nan without rows."""
        return self.loss / self.rows if self.rows else float("nan")

    @property
    def score(self) -> float:
        """Accuracy (one label per row) or micro-averaged F1, 2 hits / (2 hits + false alarms + misses).

        >>> (LossSum(loss=1.0, rows=4, hits=3, false_alarms=1, misses=1) + LossSum()).score
        0.75
        """
        total = 2 * self.hits + self.false_alarms + self.misses
        return 2 * self.hits / total if total else float("nan")
