"""Gradient statistics: how large the noise of a gradient is beside the gradient, from two batches of one piece.

With |G|^2 the squared norm of the true gradient and tr S the trace of the covariance of one row's gradient, the mean
over B rows has E|G_B|^2 = |G|^2 + tr S / B. Norms of the gradient of all rows of a piece and of its first half, at the
same weights, give both. Source: McCandlish et al. 2018, arXiv:1812.06162, appendix A.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hetsgd.models.policy import Assign

BIG_SQ: Final = "gradient_sq"
"""Key of the statistics of a result: squared norm of the mean gradient over all rows of the measured piece."""
SMALL_SQ: Final = "half_gradient_sq"
"""The same over its first half."""
BIG_ROWS: Final = "gradient_rows"
SMALL_ROWS: Final = "half_gradient_rows"
_SCATTER: Final = 0x9E3779B1
"""2^32 over the golden ratio: multiples of it are spread evenly (Knuth, The Art of Computer Programming 3, 6.4)."""


def measures(id_: int, every: int) -> bool:
    """Whether an assignment measures: about every `every`-th of each worker does (0: none), the very first always.

    Numbers are scattered first: where two workers take turns, even numbers would all be of one of them.

    >>> sum(measures(id_, 4) for id_ in range(0, 2000, 2))
    249
    """
    return bool(every) and not (((id_ * _SCATTER) & 0xFFFFFFFF) >> 8) % every


def measured_rows(assign: Assign, every: int) -> tuple[int, int] | None:
    """Rows of the two batches that an assignment measures: of the first piece of its first lane.

    None where it does not measure, or the piece has fewer than 2 rows.

    >>> from hetsgd.models.policy import Seat, Work
    >>> work = Work(batch=5, rate=0.1)
    >>> measured_rows(Assign(id=0, seat=Seat("cpu"), epoch=0, start=0, stop=20, lanes=4, work=work), 2)
    (5, 2)
    """
    if not measures(assign.id, every):
        return None
    rows = min(assign.work.batch, assign.rows)
    return (rows, rows // 2) if rows > 1 else None


def statistics(big_sq: float, small_sq: float, rows: tuple[int, int]) -> dict[str, float]:
    """What a result reports; empty where a norm is not finite."""
    if not (math.isfinite(big_sq) and math.isfinite(small_sq)):
        return {}
    return {BIG_SQ: big_sq, SMALL_SQ: small_sq, BIG_ROWS: float(rows[0]), SMALL_ROWS: float(rows[1])}


def two_batch(stats: Mapping[str, float]) -> tuple[float, float]:
    """Unbiased estimates of |G|^2 and tr S from the statistics of one result; either may be negative by chance.

    |G|^2 = (B |G_B|^2 - b |G_b|^2) / (B - b), tr S = (|G_b|^2 - |G_B|^2) / (1/b - 1/B).

    >>> two_batch(statistics(1.0 + 8.0 / 4, 1.0 + 8.0 / 2, (4, 2)))
    (1.0, 8.0)
    """
    big, small = stats[BIG_ROWS], stats[SMALL_ROWS]
    big_sq, small_sq = stats[BIG_SQ], stats[SMALL_SQ]
    signal = (big * big_sq - small * small_sq) / (big - small)
    noise = (small_sq - big_sq) / (1.0 / small - 1.0 / big)
    return signal, noise


@dataclass(slots=True)
class NoiseScale:
    """The simple noise scale tr S / |G|^2 in rows: both are smoothed by themselves, then divided.

    `keep` is the weight of what was there before at each new measurement; the first one counts fully.
    """

    keep: float = 0.9
    signal: float = 0.0
    noise: float = 0.0
    weight: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.keep < 1.0:
            raise ValueError(f"noise scale: keep must be in [0, 1), got {self.keep}")

    def add(self, stats: Mapping[str, float]) -> None:
        """Take in the statistics of one result, if it has measured."""
        if BIG_SQ not in stats:
            return
        signal, noise = two_batch(stats)
        self.signal = self.keep * self.signal + (1.0 - self.keep) * signal
        self.noise = self.keep * self.noise + (1.0 - self.keep) * noise
        self.weight = self.keep * self.weight + 1.0 - self.keep

    @property
    def rows(self) -> float | None:
        """The noise scale; None before a measurement, inf where no gradient stands out of the noise."""
        if not self.weight:
            return None
        if self.signal <= 0.0:
            return math.inf
        return max(self.noise, 0.0) / self.signal
