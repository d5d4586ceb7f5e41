"""The loss-conditioned model: the state is the loss, and gradient statistics are functions of it.

One step of rate eta with B rows changes the loss by -eta |G|^2 + eta^2/2 (G'HG + tr(H Sigma)/B) in the mean
(McCandlish et al. 2018, arXiv:1812.06162), with the statistics at the loss of the model that was read. Merges act on
losses, which is right for steps and copies and an upper bound for averages.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass

import numpy as np

from hetsgd.models.surrogates.dynamics import Vector

_MOST: float = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientStatistics:
    """What was measured of the gradients at one model of a pilot run.

    `loss`: there; `squared_norm` |G|^2; `bend` G'HG; `noise` tr(Sigma) and `noise_bend` tr(H Sigma) of one row;
    `curvature`: the largest eigenvalue of the Hessian H; `row_curvature`: that of single rows' losses, in the mean.
    """

    loss: float
    squared_norm: float
    bend: float
    noise: float
    noise_bend: float
    curvature: float
    row_curvature: float

    def __post_init__(self) -> None:
        if not (self.loss > 0.0 and self.squared_norm > 0.0 and self.noise > 0.0):
            raise ValueError(f"gradient statistics: loss, squared_norm and noise must be > 0, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OneStepModel:
    """Tables over the loss (J,), rising: `pull` |G|^2, `bend` G'HG and `heat` tr(H Sigma), fitted factors in them."""

    initial: float
    losses: tuple[float, ...]
    pull: tuple[float, ...]
    bend: tuple[float, ...]
    heat: tuple[float, ...]
    spread_loss: float = 0.0

    def __post_init__(self) -> None:
        sizes = {len(self.losses), len(self.pull), len(self.bend), len(self.heat)}
        if len(sizes) != 1 or len(self.losses) < 2 or list(self.losses) != sorted(set(self.losses)):
            raise ValueError(f"one-step model: tables of one length over rising losses, got {self}")
        if not all(math.isfinite(x) and x >= 0.0 for x in (self.initial, *self.pull, *self.heat, self.spread_loss)):
            raise ValueError(f"one-step model: values must be finite and >= 0, got {self}")


class OneStep:
    """Dynamics of a `OneStepModel`: the state is (1,), the loss."""

    def __init__(self, model: OneStepModel) -> None:
        self._model = model
        self._initial = np.array([model.initial])

    @property
    def initial(self) -> Vector:
        """The initial loss."""
        return self._initial

    def step(self, state: Vector, read: Vector, rate: float, rows: int) -> Vector:
        """The loss after one step, never below 0."""
        pull, bend, heat = self._statistics(float(read[0]))
        changed = float(state[0]) - rate * pull + 0.5 * rate * rate * (bend + heat / rows)
        return np.array([min(max(changed, 0.0), _MOST)])

    def gradient(self, read: Vector, rows: int) -> Vector:
        """There is none: a loss cannot be carried by a velocity."""
        raise ValueError("surrogate one-step: merges with momentum are not modelled; use quadratic or --learner replay")

    def _statistics(self, loss: float) -> tuple[float, float, float]:
        """Linear between the table's losses; at its ends, what is there (below: falling to 0 with the loss)."""
        model = self._model
        at = bisect.bisect_right(model.losses, loss)
        if at == 0:
            share = max(loss, 0.0) / model.losses[0]
            return model.pull[0] * share, model.bend[0] * share, model.heat[0] * share
        if at == len(model.losses):
            return model.pull[-1], model.bend[-1], model.heat[-1]
        low, high = model.losses[at - 1], model.losses[at]
        share = (loss - low) / (high - low)
        a, b = at - 1, at
        return (
            model.pull[a] + share * (model.pull[b] - model.pull[a]),
            model.bend[a] + share * (model.bend[b] - model.bend[a]),
            model.heat[a] + share * (model.heat[b] - model.heat[a]),
        )
