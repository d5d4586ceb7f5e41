"""Less noise in a table of step times: neighbouring batch sizes tell of each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

_BEND: Final = 0.1
_LEAST_NOISE: Final = 0.005


def smoothed(places: Sequence[float], ratios: Sequence[float], noise: float) -> list[float]:
    """Ratios at rising `places`, smoothed along the logarithm of the place as far as their noise asks for it.

    The smoothest curve that the measurements allow: a discrete smoothing spline (Whittaker 1923) of log ratio over
    log2 place, whose slope is thought to bend by about 0.1 an octave. `noise`: relative standard deviation of one
    ratio; ratios without noise stay as they are.

    >>> [round(value, 3) for value in smoothed([1, 2, 4, 8], [1.0, 1.3, 1.0, 1.0], 0.0)]
    [1.0, 1.3, 1.0, 1.0]
    >>> [round(value, 2) for value in smoothed([1, 2, 4, 8], [1.0, 1.3, 1.0, 1.0], 0.2)]
    [1.1, 1.09, 1.06, 1.02]
    """
    if len(places) < 3 or noise < _LEAST_NOISE:
        return list(ratios)
    steps = np.diff(np.log2(np.asarray(places, dtype=float)))
    bends = np.zeros((len(places) - 2, len(places)))
    for row, (left, right) in enumerate(pairwise(steps)):
        bends[row, row : row + 3] = 1.0 / left, -1.0 / left - 1.0 / right, 1.0 / right
    logs = np.log(np.asarray(ratios, dtype=float))
    found = np.linalg.solve(np.eye(len(places)) + (noise / _BEND) ** 2 * bends.T @ bends, logs)
    return [float(value) for value in np.exp(found)]
