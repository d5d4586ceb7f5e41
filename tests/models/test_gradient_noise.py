"""The two-batch estimator against distributions whose noise scale is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hetsgd.models.gradient_noise import NoiseScale, measured_rows, statistics, two_batch
from hetsgd.models.policy import Assign, Seat, Work


def test_the_estimates_are_unbiased() -> None:
    # Rows' gradients are N(g, diag(s)): |g|^2 = 4, tr S = 30.
    rng = np.random.default_rng(0)
    mean, sigma = np.array([2.0, 0.0, 0.0]), np.sqrt([10.0, 5.0, 15.0])
    found = []
    for _ in range(20_000):
        rows = rng.normal(mean, sigma, size=(8, 3))
        big, half = rows.mean(axis=0), rows[:4].mean(axis=0)
        found.append(two_batch(statistics(float(big @ big), float(half @ half), (8, 4))))
    signal, noise = np.mean(found, axis=0)
    assert signal == pytest.approx(4.0, rel=0.03)
    assert noise == pytest.approx(30.0, rel=0.03)


def test_both_are_smoothed_before_they_are_divided() -> None:
    scale = NoiseScale(keep=0.5)
    assert scale.rows is None
    scale.add({})
    assert scale.rows is None
    scale.add(statistics(1.0 + 6.0 / 4, 1.0 + 6.0 / 2, (4, 2)))
    assert scale.rows == pytest.approx(6.0)
    scale.add(statistics(3.0 + 6.0 / 4, 3.0 + 6.0 / 2, (4, 2)))
    assert scale.rows == pytest.approx((0.25 * 6.0 + 0.5 * 6.0) / (0.25 * 1.0 + 0.5 * 3.0))
    noisy = NoiseScale(keep=0.0)
    noisy.add(statistics(1.0, 3.0, (4, 2)))  # less signal than noise alone would make
    assert noisy.rows == math.inf
    with pytest.raises(ValueError, match=r"keep must be in \[0, 1\), got 1"):
        NoiseScale(keep=1.0)


def test_every_so_many_assignments_measure_if_they_have_two_rows() -> None:
    def assign(id_: int, batch: int, rows: int) -> Assign:
        work = Work(batch=batch, rate=0.1)
        return Assign(id=id_, seat=Seat("cpu"), epoch=0, start=0, stop=rows, lanes=2, work=work)

    for first in (0, 1):  # of the numbers of either of two workers who take turns
        found = [measured_rows(assign(id_, 8, 16), 5) for id_ in range(first, 2000, 2)]
        assert set(found) == {(8, 4), None}
        assert 180 < found.count((8, 4)) < 220
    assert measured_rows(assign(0, 8, 16), 5) == (8, 4)
    assert measured_rows(assign(0, 8, 5), 1) == (5, 2), "the tail of an epoch is cut short"
    assert measured_rows(assign(0, 1, 2), 1) is None
    assert measured_rows(assign(0, 8, 16), 0) is None
    assert statistics(math.inf, 1.0, (2, 1)) == {}
