"""Service noise: mean 1, the stated spread, and a stream that belongs to its place."""

from __future__ import annotations

import numpy as np
import pytest

from hetsgd.sim.noise import ServiceNoise


def test_noise_has_mean_one_and_the_spread_of_its_logarithm() -> None:
    noise = ServiceNoise(3, "cpu[0]", 0.3)
    factors = np.array([noise.draw() for _ in range(20_000)])
    assert factors.mean() == pytest.approx(1.0, abs=0.01)
    assert np.log(factors).std() == pytest.approx(0.3, rel=0.03)


def test_a_place_meets_the_same_noise_whatever_others_draw() -> None:
    alone, beside, other = (ServiceNoise(3, name, 0.3) for name in ("gpu0", "gpu0", "cpu[0]"))
    drawn = [(beside.draw(), other.draw()) for _ in range(600)]
    assert [alone.draw() for _ in range(600)] == [mine for mine, _ in drawn]
    assert [mine for mine, _ in drawn] != [theirs for _, theirs in drawn]


def test_no_noise_changes_nothing() -> None:
    noise = ServiceNoise(3, "gpu0", 0.0)
    assert {noise.draw() for _ in range(1000)} == {1.0}
