"""Tables of step times with less noise than each of their measurements."""

from __future__ import annotations

import numpy as np
import pytest

from hetsgd.models.curve_smoothing import smoothed

BATCHES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]


def test_a_power_law_is_left_as_it_is() -> None:
    """Only bends count as noise: a ratio that rises evenly with the logarithm of the batch has none."""
    ratios = [1.2 * batch**0.1 for batch in BATCHES]
    assert smoothed(BATCHES, ratios, 0.2) == pytest.approx(ratios, rel=1e-9)


def test_noise_is_cut_and_the_curve_kept() -> None:
    truth = np.array([1.0 + 0.3 / (1.0 + (batch / 32) ** 2) for batch in BATCHES])
    rng = np.random.default_rng(0)
    before, after = [], []
    for _ in range(200):
        measured = truth * np.exp(rng.normal(0.0, 0.1, len(truth)))
        before.append(np.mean(np.abs(measured / truth - 1.0)))
        after.append(np.mean(np.abs(np.array(smoothed(BATCHES, list(measured), 0.1)) / truth - 1.0)))
    assert np.mean(after) < 0.75 * np.mean(before)


def test_what_repeats_exactly_is_believed() -> None:
    ratios = [1.0, 2.0, 1.0]
    assert smoothed([1, 2, 4], ratios, 0.001) == ratios
    assert smoothed([1, 2], [1.0, 2.0], 0.3) == [1.0, 2.0]
