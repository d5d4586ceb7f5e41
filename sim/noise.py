"""Noise of service times: lognormal with mean 1, one stream for each place, so that policies meet the same draws."""

from __future__ import annotations

from hetsgd.models.streams import stream

_BLOCK = 512


class ServiceNoise:
    """Factors of the services of one place, in the order of its services, whatever happens elsewhere."""

    __slots__ = ("_block", "_mean", "_rng", "_sigma")

    def __init__(self, seed: int, place: str, sigma: float) -> None:
        self._sigma = sigma
        # exp(N(m, s^2)) has mean exp(m + s^2 / 2).
        self._mean = -0.5 * sigma * sigma
        self._rng = stream(seed, "noise", place)
        self._block: list[float] = []

    def draw(self) -> float:
        """The next factor: > 0, 1 on average, 1 always without noise."""
        if not self._sigma:
            return 1.0
        if not self._block:
            self._block = self._rng.lognormal(self._mean, self._sigma, _BLOCK)[::-1].tolist()
        return self._block.pop()
