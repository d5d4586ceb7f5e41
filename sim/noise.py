"""Noise of service times: lognormal with mean 1, one stream for each place, so that policies meet the same draws."""

from __future__ import annotations

from hetsgd.models.streams import stream

_BLOCK = 512


class ServiceNoise:
    """Factors of the services of one place, in the order of its services, whatever happens elsewhere.

    `factors` holds the next ones, last first; who takes one pops it, and calls `refill` when there is none.
    """

    __slots__ = ("_mean", "_rng", "_sigma", "factors")

    def __init__(self, seed: int, place: str, sigma: float) -> None:
        self._sigma = sigma
        # exp(N(m, s^2)) has mean exp(m + s^2 / 2).
        self._mean = -0.5 * sigma * sigma
        self._rng = stream(seed, "noise", place)
        self.factors: list[float] = []

    def refill(self) -> list[float]:
        """`factors` with the next block: each > 0, 1 on average, all 1 without noise."""
        if self._sigma:
            self.factors += self._rng.lognormal(self._mean, self._sigma, _BLOCK)[::-1].tolist()
        else:
            self.factors += [1.0] * _BLOCK
        return self.factors

    def draw(self) -> float:
        """The next factor."""
        return (self.factors or self.refill()).pop()
