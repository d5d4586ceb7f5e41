"""Means and ratios with intervals over seeds, and how numbers are written in reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CONFIDENCE: Final = 0.95
LEAST: Final = 3
"""So many values make an interval that says something: with two it is twelve times as wide as their standard error."""
_WIDEST: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean of `n` values with its 95 % interval; without an interval (nan) where n < 2."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def silent(self) -> str:
        """Why the interval of a positive quantity tells a reader nothing, in words; empty where it does.

        It is of fewer than three values, or reaches to zero or over more than a factor of ten.

        >>> mean_interval([1.0, 2.0]).silent, mean_interval([1.0, 1.1, 1.2]).silent
        ('2 seeds are too few for an interval', '')
        """
        if self.n < LEAST:
            return "one seed, no interval" if self.n == 1 else f"{self.n} seeds are too few for an interval"
        return "" if self.low > 0.0 and self.high <= _WIDEST * self.low else "the seeds differ too much for an interval"


def mean_interval(values: Sequence[float]) -> Interval:
    """The arithmetic mean with Student's t interval (the values taken as independent and normal).

    >>> interval = mean_interval([1.0, 2.0, 3.0])
    >>> round(interval.low, 3), interval.mean, round(interval.high, 3)
    (-0.484, 2.0, 4.484)
    """
    n = len(values)
    if n == 0:
        raise ValueError("mean_interval: there must be at least one value, got none")
    mean = math.fsum(values) / n
    half = _half_width(values, mean)
    return Interval(mean=mean, low=mean - half, high=mean + half, n=n)


def ratio_interval(slower: Sequence[float], faster: Sequence[float]) -> Interval:
    """The geometric mean of slower_i / faster_i with its interval, paired by seed (common random numbers).

    >>> ratio_interval([2.0, 4.0], [1.0, 2.0]).mean
    2.0
    """
    logs = [math.log(a / b) for a, b in zip(slower, faster, strict=True)]
    inner = mean_interval(logs)
    return Interval(mean=math.exp(inner.mean), low=math.exp(inner.low), high=math.exp(inner.high), n=inner.n)


def _half_width(values: Sequence[float], mean: float) -> float:
    n = len(values)
    if n < 2:
        return math.nan
    from scipy.stats import t

    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    return float(t.ppf(0.5 + CONFIDENCE / 2, n - 1)) * math.sqrt(variance / n)


def seconds(value: float | None) -> str:
    """A duration with three significant digits and the unit that suits it.

    >>> seconds(0.01234), seconds(1.5), seconds(234.6), seconds(None)
    ('12.3 ms', '1.5 s', '235 s', '-')
    """
    if value is None or not math.isfinite(value):
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if abs(value) * scale >= 0.1 or unit == "µs":
            return f"{_digits(value * scale)} {unit}"
    return "-"


def _digits(value: float) -> str:
    """Three significant digits without an exponent where a person would not write one."""
    return f"{value:z.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def number(value: float | None) -> str:
    """A plain number with three significant digits; `-` where there is none.

    >>> number(0.12345), number(12345.6), number(None)
    ('0.123', '12,346', '-')
    """
    return "-" if value is None or not math.isfinite(value) else _digits(value)


def percent(value: float | None) -> str:
    """A level or a share as a whole percentage; `-` where there is none.

    >>> percent(0.9), percent(-0.001), percent(None)
    ('90 %', '0 %', '-')
    """
    return "-" if value is None else f"{100 * value:z.0f} %"


def cache_size(size_bytes: float) -> str:
    """The size of a cache, which has a power of two of bytes or nearly.

    >>> cache_size(1 << 20), cache_size(1 << 15)
    ('1 MiB', '32 KiB')
    """
    return f"{size_bytes / (1 << 20):.3g} MiB" if size_bytes >= 1 << 20 else f"{size_bytes / (1 << 10):.3g} KiB"


def share(value: float | None) -> str:
    """A share as a percentage.

    >>> share(0.1234), share(0.9999)
    ('12.3 %', '100.0 %')
    """
    return "-" if value is None or not math.isfinite(value) else f"{100 * value:z.1f} %"
