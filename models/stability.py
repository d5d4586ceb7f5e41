"""When training diverges: closed forms of the quadratic model, and what they say about a configuration.

A curvature direction h with learning rate a moves by x <- x - a h x(read); staleness tau counts updates by others
between the read and the write. Sources: `docs/convergence.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
_MOST_DELAY: Final = 4096


def delay_bound(staleness: float) -> float:
    """The largest a h for which x <- x - a h x(t - staleness) is stable: 2 sin(pi / (2 (2 staleness + 1))).

    Levin and May 1976 (the delayed logistic equation, linearised).

    >>> [round(delay_bound(tau), 4) for tau in (0, 1, 2, 4)]
    [2.0, 1.0, 0.618, 0.3473]
    """
    if not staleness >= 0.0:
        raise ValueError(f"delay bound: staleness must be >= 0, got {staleness}")
    return 2.0 * math.sin(math.pi / (2.0 * (2.0 * staleness + 1.0)))


def steady_loss(rate: float, curvature: float, noise: float) -> float:
    """Mean loss h x^2 / 2 that noise of variance `noise` per gradient keeps up: a c / (2 (2 - a h)); inf beyond 2.

    Zhang et al. 2019, arXiv:1907.04164, with c / B = `noise`.

    >>> round(steady_loss(0.1, 1.0, 1.0), 3)
    0.026
    """
    return steady_loss_with_momentum(rate, curvature, noise, 0.0)


def steady_loss_with_momentum(rate: float, curvature: float, noise: float, momentum: float) -> float:
    """The same under heavy-ball momentum b: (1 + b) a c / (2 (2 b + 2 - a h) (1 - b)) (arXiv:1907.04164)."""
    if not 0.0 <= momentum < 1.0:
        raise ValueError(f"steady loss: momentum must be in [0, 1), got {momentum}")
    room = 2.0 * momentum + 2.0 - rate * curvature
    if room <= 0.0:
        return math.inf
    return (1.0 + momentum) * rate * noise / (2.0 * room * (1.0 - momentum))


def delayed_second_moment(rate: float, curvature: float, noise: float, staleness: int, steps: int) -> Vector:
    """E h x^2 / 2 after each of `steps` updates (steps,) from x = 0, all reads `staleness` updates old.

    S <- M S M' + Q on s = (x_t .. x_{t - staleness}), M the companion matrix with M00 = 1, M0tau -= a h, Q00 = a^2 c.
    Overflow ends in inf.
    """
    if not 0 <= staleness <= _MOST_DELAY:
        raise ValueError(f"second moment: staleness must be in 0..{_MOST_DELAY}, got {staleness}")
    size = staleness + 1
    move = np.eye(size, k=-1)
    move[0, 0] = 1.0
    move[0, staleness] -= rate * curvature
    moment = np.zeros((size, size))
    found = np.empty(steps)
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(steps):
            moment = move @ moment @ move.T
            moment[0, 0] += rate * rate * noise
            found[step] = curvature * moment[0, 0] / 2.0
    return np.where(np.isnan(found), np.inf, found)


def delayed_steady_loss(rate: float, curvature: float, noise: float, staleness: int) -> float:
    """What `delayed_second_moment` comes to in the end; inf beyond `delay_bound`.

    >>> [round(delayed_steady_loss(0.1, 1.0, 1.0, tau), 3) for tau in (0, 4, 8, 12)]
    [0.026, 0.04, 0.066, 0.155]
    """
    from scipy.linalg import solve_discrete_lyapunov

    if rate * curvature >= delay_bound(staleness):
        return math.inf
    size = staleness + 1
    move = np.eye(size, k=-1)
    move[0, 0] = 1.0
    move[0, staleness] -= rate * curvature
    source = np.zeros((size, size))
    source[0, 0] = rate * rate * noise
    return float(curvature * solve_discrete_lyapunov(move, source)[0, 0] / 2.0)


def mean_staleness(lanes: int, ratio: float) -> tuple[float, float]:
    """Mean staleness of CPU and accelerator updates: N - 1 + 1/r and N r for N free-running lanes.

    `ratio` r: round trip of the accelerator over the step of a lane.

    >>> mean_staleness(16, 10.0)
    (15.1, 160.0)
    """
    if lanes < 1 or not ratio > 0.0:
        raise ValueError(f"mean staleness: lanes must be >= 1 and the ratio > 0, got {lanes} and {ratio}")
    return lanes - 1.0 + 1.0 / ratio, lanes * ratio


def asynchrony_momentum(workers: int) -> float:
    """Momentum that M equal workers of exponential step times act like: 1 - 1/M (Mitliagkas et al. 2016).

    Valid for geometric staleness with mean M - 1 only; a CPU beside an accelerator is another case.
    """
    if workers < 1:
        raise ValueError(f"asynchrony momentum: workers must be >= 1, got {workers}")
    return 1.0 - 1.0 / workers


def longest_round_trip_s(cpu_drift: float, accelerator_drift: float) -> float:
    """Largest round trip of the accelerator for which x' = -A x - G x(t - T) is stable; inf where G <= A.

    A = lanes x rate x h / step_s and G = rate x h / T are drifts per second; T = arccos(-A/G) / sqrt(G^2 - A^2).
    """
    if cpu_drift < 0.0 or accelerator_drift < 0.0:
        raise ValueError(f"drift must be >= 0, got {cpu_drift} and {accelerator_drift}")
    if accelerator_drift <= cpu_drift:
        return math.inf
    return math.acos(-cpu_drift / accelerator_drift) / math.sqrt(accelerator_drift**2 - cpu_drift**2)


def largest_rate(curvature: float, row_curvature: float, batch: int) -> float:
    """Largest learning rate at which a batch does not diverge in the mean square: 2 B / (k + (B - 1) h).

    h: largest curvature of the mean loss; k: that of single rows, which batch 1 meets one after the other. Half of
    it converges fastest where all rows can be fitted: Ma, Bassily and Belkin 2018, arXiv:1712.06559.

    >>> largest_rate(1.0, 4.0, 1), round(largest_rate(1.0, 4.0, 10**6), 3)
    (0.5, 2.0)
    """
    if batch < 1 or not (curvature > 0.0 and row_curvature > 0.0):
        raise ValueError(f"largest rate: batch >= 1 and curvatures > 0, got {batch}, {curvature}, {row_curvature}")
    return 2.0 * batch / (max(row_curvature, curvature) + (batch - 1) * curvature)


Side = Literal["safe", "between", "diverges"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StabilityLimit:
    """What a workload bears: the largest curvature of its loss and of single rows, measured at its initial model.

    Networks move to where they are flatter before they diverge: they bear `margin` times the quadratic limit, and
    `stale_margin` times it where staleness sets the limit, since an instability by delay grows slowly and leaves them
    time. Up to `safe` of the quadratic limit nothing diverges; between lies what depends on the run. The margins are
    those of replays of a small tanh net, see `docs/convergence.md`.
    """

    curvature: float
    row_curvature: float
    margin: float = 1.75
    stale_margin: float = 3.6
    safe: float = 0.5

    def ratio(self, *, rate: float, batch: int, staleness: float = 0.0) -> float:
        """The learning rate over the quadratic limit; a mean staleness tau lowers that as `delay_bound`."""
        most = largest_rate(self.curvature, self.row_curvature, batch) * delay_bound(staleness) / 2.0
        return rate / most

    def borne(self, staleness: float) -> float:
        """The ratio beyond which training is predicted to diverge: `margin` at no staleness, to `stale_margin`."""
        return self.margin + (self.stale_margin - self.margin) * staleness / (1.0 + staleness)

    def diverges(self, *, rate: float, batch: int, staleness: float = 0.0) -> bool:
        """Whether training is predicted to diverge."""
        return self.ratio(rate=rate, batch=batch, staleness=staleness) > self.borne(staleness)

    def side(self, *, rate: float, batch: int, staleness: float = 0.0) -> Side:
        """Which side of the limit a configuration is on."""
        ratio = self.ratio(rate=rate, batch=batch, staleness=staleness)
        return "safe" if ratio <= self.safe else "diverges" if ratio > self.borne(staleness) else "between"
