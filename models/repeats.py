"""What repeated measurements of one thing come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hetsgd.models.sample_store import SampleStore

_QUANTILE: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Central:
    """What repeats of one measurement come to: a typical value, their relative spread, and how many there were."""

    value: float
    spread: float
    count: int


def central(values: Sequence[float]) -> Central:
    """The 10th percentile of repeats: what disturbs a measurement makes it longer, for seconds at a time.

    The spread is half the distance of the 16th and the 84th percentile, over the value: one standard deviation.

    >>> round(central([1.0, 1.2, 1.4, 1.6, 9.0]).value, 2)
    1.08
    """
    found = np.asarray(values, dtype=float)
    value = float(np.quantile(found, _QUANTILE))
    low, high = np.quantile(found, [0.16, 0.84])
    return Central(value=value, spread=float(high - low) / 2.0 / value, count=len(found))


def median_of(store: SampleStore, key: str) -> float | None:
    """The median of all measurements under a key; None when there is none."""
    values = [found[0] for found in store.all(key)]
    return float(np.median(values)) if values else None


def log_sigma(seconds: Sequence[float], window: int = 31) -> float:
    """Spread of repeated steps: deviation of log seconds from their running median, so that drift does not count.

    Half the distance of the 16th and the 84th percentile: the sigma of a lognormal, however long a few steps were
    held up.

    >>> log_sigma([1.0, 1.0, 1.0])
    0.0
    """
    logs = np.log(np.asarray(seconds, dtype=float))
    half = window // 2
    padded = np.pad(logs, half, mode="edge")
    middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1)
    low, high = np.quantile(logs - middle, [0.16, 0.84])
    return float(high - low) / 2.0
