"""From what a spectrum says to a loss, with an interval: the part of a surrogate that is read off pilot runs.

    loss = slow + sum_k heat_k X_k^q

`slow` is a falling function of the progress S, whatever its shape (kind `path`), or the quadratic model's
sum_k a_k m_k^2 + floor (kind `quadratic`). X_k is the heat of mode k under unit noise. q < 1 since networks are no
bowls: the hotter they are, the less one more degree costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from hetsgd.models.surrogates.dynamics import Vector
from hetsgd.models.surrogates.spectrum import Observed

Kind = Literal["path", "quadratic"]
KINDS: Final[tuple[Kind, ...]] = ("path", "quadratic")
_MOST: Final = 1e12
_TAIL: Final = 3
NINETY: Final = 1.6449
"""Standard deviations of a normal distribution that 90 % lie within."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossMap:
    """A fitted map. `heat` (K,), `exponent` q. `slow`: of kind `quadratic` (K + 1,): a_k and the floor; of kind
    `path` (J,): the falls between the `knots` (J,), which are progress, and the floor last.

    `relief`: the heat that halves a mode's curvature, see `spectrum`. `spread_progress` and `spread_loss`: standard
    deviations of log progress and of log loss that seeds and the fit leave unexplained. `initial`: the loss at no
    progress.
    """

    kind: Kind
    initial: float
    slow: tuple[float, ...]
    heat: tuple[float, ...]
    exponent: float
    relief: float = 1e9
    knots: tuple[float, ...] = ()
    spread_progress: float = 0.0
    spread_loss: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"loss map: kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if self.kind == "path" and (len(self.knots) != len(self.slow) or len(self.knots) < 2):
            raise ValueError(f"loss map: a fall for each knot, got {len(self.slow)} for {len(self.knots)}")
        if self.kind == "quadratic" and len(self.slow) != len(self.heat) + 1:
            raise ValueError(f"loss map: one amplitude a mode and the floor, got {len(self.slow)}")
        numbers = (self.initial, *self.slow, *self.heat, self.exponent, self.spread_progress, self.spread_loss)
        if not all(math.isfinite(x) and x >= 0.0 for x in numbers) or min(self.exponent, self.relief) <= 0.0:
            raise ValueError(f"loss map: all values must be finite and >= 0, exponent and relief > 0, got {self}")

    @property
    def farthest(self) -> float:
        """Progress up to which the pilots went; beyond it, `path` goes on by a power law. inf for `quadratic`."""
        return self.knots[-1] if self.kind == "path" else math.inf

    def loss(self, seen: Observed) -> float:
        """The loss of a state; inf where it has diverged."""
        if not (math.isfinite(seen.progress) and np.all(seen.heat < _MOST) and np.all(seen.slow < _MOST)):
            return math.inf
        hot = float(np.dot(self.heat, seen.heat**self.exponent))
        return self._slow(seen.progress, seen.slow) + hot

    def interval(self, seen: Observed) -> tuple[float, float]:
        """The 90 % interval of one seed's loss around `loss`."""
        middle = self.loss(seen)
        if not math.isfinite(middle):
            return middle, middle
        step = 0.1
        hot = middle - self._slow(seen.progress, seen.slow)
        ahead, behind = (
            self._slow(seen.progress * factor, seen.slow ** (factor if self.kind == "quadratic" else 1.0)) + hot
            for factor in (math.exp(step), math.exp(-step))
        )
        slope = math.log(max(behind, 1e-30) / max(ahead, 1e-30)) / (2.0 * step)
        width = NINETY * math.hypot(self.spread_loss, slope * self.spread_progress)
        return middle * math.exp(-width), middle * math.exp(width)

    def _slow(self, progress: float, slow: Vector) -> float:
        if self.kind == "quadratic":
            return float(np.dot(self.slow[:-1], slow)) + self.slow[-1]
        first = self.knots[0]
        if progress < first:
            start = sum(self.slow)
            return start + (self.initial - start) * (1.0 - max(progress, 0.0) / first)
        found = float(np.dot(self.slow, ramps(np.array([progress]), self.knots)[0]))
        if progress <= self.knots[-1] or not found > 0.0:
            return found
        # A power law goes on as the last stretch of the pilots fell.
        last = min(_TAIL, len(self.knots) - 1)
        slope = sum(self.slow[-1 - last : -1]) / math.log(self.knots[-1] / self.knots[-1 - last])
        return float(found * (progress / self.knots[-1]) ** (-slope / found))


def ramps(progress: Vector, knots: tuple[float, ...]) -> Vector:
    """Falling functions of progress (N,) -> (N, J): one from 1 to 0 between any two knots, linear in log S, then 1."""
    at = np.log(np.maximum(progress, knots[0]))[:, np.newaxis]
    u = np.log(np.asarray(knots))
    falls = np.clip((u[1:] - at) / (u[1:] - u[:-1]), 0.0, 1.0)
    found: Vector = np.hstack([falls, np.ones_like(at)])
    return found
