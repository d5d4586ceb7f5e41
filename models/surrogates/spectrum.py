"""The noisy quadratic model, mode by mode, with its noise drawn: the state behind two of the surrogates.

K modes of curvature h_k, R samples of the noise of each. A state (D = 1 + K + K R,) holds the progress S (the sum of
the learning rates that reached this copy), the mean m_k of each mode (1 at the start) and samples x_kr of the noise:

    S <- S + eta        m_k <- m_k - eta h_k m_k(read)        x_kr <- x_kr - eta (h_k x_kr(read) + sqrt(h_k/B) z)

with z standard normal and the gradient's noise covariance proportional to the curvature (Zhang et al. 2019,
arXiv:1907.04164). The samples carry second moments exactly in the mean, for any delay, copy-back or average, which
closed recursions do for a single reader only.

A network that is driven beyond what a direction bears does not leave along it at once: it moves to where it is flatter
(Cohen et al. 2021, arXiv:2103.00065; Damian et al. 2022, arXiv:2209.15594). Here the curvature of a mode gives way to
its heat X_k = mean of h_k x^2 / 2 as h_k / (1 + X_k / relief), down to h_k / `STEEPEST`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hetsgd.models.surrogates.dynamics import Vector

_BANK: Final = 1 << 17
_OFFSETS: Final = 4096
_CHECK_EVERY: Final = 32
STEEPEST: Final = 32.0
"""How many times flatter than at first a mode can become; steps that ask for more diverge."""
_NOTICED: Final = 0.02
_SWING: Final = 4.0
_BEYOND: Final = 1e30
_KEPT: Final = 256
"""Pairs of rate and rows whose factors are kept: policies use few."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What a state says: progress, squared means (K,), and heat (K,), the mean loss h x^2 / 2 of unit noise."""

    progress: float
    slow: Vector
    heat: Vector


class Spectrum:
    """Dynamics of K modes with R noise samples each; `generator` draws the noise.

    A state that has grown beyond any use stays infinite: training has diverged.
    """

    def __init__(
        self, curvatures: Sequence[float], samples: int, generator: np.random.Generator, *, relief: float = math.inf
    ) -> None:
        if not curvatures or min(curvatures) <= 0.0 or samples < 1:
            raise ValueError(f"spectrum: curvatures must be > 0 and samples >= 1, got {curvatures} and {samples}")
        if not relief > 0.0:
            raise ValueError(f"spectrum: relief must be > 0 (inf: curvatures never give way), got {relief}")
        self._relief = relief
        modes = len(curvatures)
        self._modes, self._samples = modes, samples
        self._h = np.asarray(curvatures, dtype=np.float64)
        self._eased = np.ones(modes)
        self._decay = self._decays()
        self._noise = np.concatenate([np.zeros(1 + modes), np.sqrt(np.repeat(self._h, samples))])
        self._size = self._decay.size
        self._initial = np.concatenate([[0.0], np.ones(modes), np.zeros(modes * samples)])
        self._generator = generator
        # Slices of one long row of numbers: drawing anew for each step would take longer than the step.
        self._bank = generator.standard_normal(_BANK + self._size)
        self._offsets: list[int] = []
        self._factors: dict[tuple[float, int], Vector] = {}
        self._decays_of: dict[float, Vector] = {}
        self._count = 0
        self._part = np.empty(self._size)

    @property
    def initial(self) -> Vector:
        """No progress, all of the way before us, no noise."""
        return self._initial

    def step(self, state: Vector, read: Vector, rate: float, rows: int) -> Vector:
        """The state after one step; see the module."""
        decay, noise = self._decays_of.get(rate), self._factors.get((rate, rows))
        if decay is None:
            decay = self._decays_of[rate] = rate * self._decay
        if noise is None:
            noise = self._noise_of(rate, rows)
        offset = self._offset()
        new: Vector = np.multiply(decay, read)
        new += np.multiply(noise, self._bank[offset : offset + self._size], out=self._part)
        np.subtract(state, new, out=new)
        new[0] += rate
        self._count += 1
        if not self._count % _CHECK_EVERY:
            new = _within(new)
            self._ease(new)
        return new

    def gradient(self, read: Vector, rows: int) -> Vector:
        """The gradient (D,): the first entry is -1, since progress is the sum of the rates."""
        read = _within(read)
        offset = self._offset()
        found: Vector = self._decay * read
        found += self._noise / math.sqrt(rows) * self._bank[offset : offset + self._size]
        found[0] = -1.0
        self._count += 1
        if not self._count % _CHECK_EVERY:
            self._ease(read)
        return found

    def observe(self, state: Vector) -> Observed:
        """What the state says, for a loss map."""
        modes = self._modes
        state = _within(state)
        return Observed(float(state[0]), state[1 : 1 + modes] ** 2, self._heat(state))

    def _heat(self, state: Vector) -> Vector:
        x = state[1 + self._modes :].reshape(self._modes, self._samples)
        found: Vector = self._h * np.mean(x * x, axis=1) / 2.0
        return found

    def _offset(self) -> int:
        if not self._offsets:
            self._offsets = self._generator.integers(0, _BANK, _OFFSETS).tolist()
        return self._offsets.pop()

    def _decays(self) -> Vector:
        eased = self._h * self._eased
        return np.concatenate([[0.0], eased, np.repeat(eased, self._samples)])

    def _noise_of(self, rate: float, rows: int) -> Vector:
        if len(self._factors) >= _KEPT:
            self._factors.clear()
            self._decays_of.clear()
        found = self._factors[rate, rows] = rate / math.sqrt(rows) * self._noise
        return found

    def _ease(self, state: Vector) -> None:
        """Let curvatures give way to heat, and to a mean that swings out farther than it was at first."""
        if math.isinf(self._relief):
            return
        swing = np.maximum(state[1 : 1 + self._modes] ** 2 - 1.0, 0.0)
        eased = np.maximum(1.0 / (1.0 + self._heat(state) / self._relief + _SWING * swing), 1.0 / STEEPEST)
        if np.any(abs(eased - self._eased) > _NOTICED * self._eased):
            self._eased = eased
            self._decay = self._decays()
            self._decays_of.clear()


def _within(vector: Vector) -> Vector:
    """The vector itself, or a copy kept within numbers: what has diverged is beyond `_BEYOND` for good."""
    if abs(vector).max() < _BEYOND:
        return vector
    return np.clip(np.nan_to_num(vector, nan=_BEYOND, posinf=_BEYOND, neginf=-_BEYOND), -_BEYOND, _BEYOND)
