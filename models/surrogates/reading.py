"""From a state to a loss with its interval."""

from __future__ import annotations

import math

from hetsgd.models.surrogates.dynamics import Vector
from hetsgd.models.surrogates.loss_map import NINETY, LossMap
from hetsgd.models.surrogates.one_step import OneStepModel
from hetsgd.models.surrogates.spectrum import Spectrum


class SpectrumReader:
    """Reads states of `spectrum` by a fitted map; a diverged state has infinite losses."""

    def __init__(self, spectrum: Spectrum, found: LossMap) -> None:
        self._spectrum = spectrum
        self._map = found

    def __call__(self, state: Vector) -> tuple[float, float, float]:
        """Low, loss and high of the 90 % interval."""
        seen = self._spectrum.observe(state)
        low, high = self._map.interval(seen)
        return low, self._map.loss(seen), high


class OneStepReader:
    """The state is the loss; beyond a thousand times the initial one it has diverged."""

    def __init__(self, model: OneStepModel) -> None:
        self._width = math.exp(NINETY * model.spread_loss)
        self._most = 1e3 * model.initial

    def __call__(self, state: Vector) -> tuple[float, float, float]:
        """Low, loss and high of the 90 % interval."""
        loss = float(state[0])
        if not loss < self._most:
            return math.inf, math.inf, math.inf
        return loss / self._width, loss, loss * self._width
