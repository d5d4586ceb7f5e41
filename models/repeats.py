"""What repeated measurements of one thing come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hetsgd.models.sample_store import SampleStore

_UNDISTURBED_SHARE: Final = 1.0 / 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Central:
    """What repeats of one measurement come to: a typical value, their relative spread, and how many there were."""

    value: float
    spread: float
    count: int


def central(values: Sequence[float], disturbed: Sequence[bool] = ()) -> Central:
    """The median of the undisturbed repeats, or a lower quantile of them, the lower the more were disturbed.

    Others lengthen steps even where they leave the core alone, since they empty its caches: the quantile is half of
    the undisturbed share. Where nearly all repeats were disturbed, all count. The spread is half the distance of the
    16th and the 84th percentile, over the value: one standard deviation.

    >>> central([1.0, 1.1, 1.2]).value, central([1.0, 1.1, 9.0, 9.0], [False, False, True, True]).value
    (1.1, 1.025)
    """
    found = np.asarray(values, dtype=float)
    marks = np.asarray(disturbed, dtype=bool) if disturbed else np.zeros(len(found), dtype=bool)
    quiet = found[~marks]
    kept = quiet if len(quiet) >= max(_UNDISTURBED_SHARE * len(found), 1.0) else found
    value = float(np.quantile(kept, 0.5 * len(quiet) / len(found)))
    low, high = np.quantile(kept, [0.16, 0.84])
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
