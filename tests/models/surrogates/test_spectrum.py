"""The noisy quadratic state: second moments of serial and delayed runs, averages, and relief."""

import math

import numpy as np
import pytest

from hetsgd.models.stability import delayed_steady_loss, steady_loss
from hetsgd.models.surrogates.spectrum import Spectrum

SAMPLES = 400


def spectrum(*curvatures: float, relief: float = math.inf) -> Spectrum:
    return Spectrum(curvatures, SAMPLES, np.random.default_rng(3), relief=relief)


def heat_of(moving: Spectrum, rate: float, rows: int, staleness: int, steps: int = 1500) -> float:
    """Heat of the first mode, averaged over the second half of a run whose reads are `staleness` updates old."""
    states = [moving.initial] * (staleness + 1)
    heats = []
    for step in range(steps):
        states.append(moving.step(states[-1], states[-1 - staleness], rate, rows))
        if step > steps // 2 and not step % 10:
            heats.append(float(moving.observe(states[-1]).heat[0]))
    return float(np.mean(heats))


@pytest.mark.parametrize("staleness", [0, 4, 8])
def test_noise_of_a_mode_is_the_closed_form_for_any_delay(staleness: int) -> None:
    rate, curvature, rows = 0.1, 1.0, 4
    expected = delayed_steady_loss(rate, curvature, curvature / rows, staleness)
    assert heat_of(spectrum(curvature), rate, rows, staleness) == pytest.approx(expected, rel=0.06)


def test_means_decay_and_progress_adds_up() -> None:
    moving = spectrum(2.0, 0.5)
    state = moving.initial
    for _ in range(10):
        state = moving.step(state, state, 0.1, 8)
    seen = moving.observe(state)
    assert seen.progress == pytest.approx(1.0)
    assert seen.slow == pytest.approx([0.8**20, 0.95**20])


def test_an_average_of_independent_replicas_is_colder() -> None:
    moving = spectrum(1.0)
    replicas = [moving.initial] * 4
    for _ in range(100):
        replicas = [moving.step(state, state, 0.2, 1) for state in replicas]
    alone = np.mean([float(moving.observe(state).heat[0]) for state in replicas])
    together = float(moving.observe(np.mean(replicas, axis=0)).heat[0])
    assert alone == pytest.approx(steady_loss(0.2, 1.0, 1.0), rel=0.1)
    assert together == pytest.approx(alone / 4.0, rel=0.2)


def test_states_are_never_changed_in_place() -> None:
    moving = spectrum(1.0)
    before = moving.initial.copy()
    moving.step(moving.initial, moving.initial, 0.5, 1)
    moving.gradient(moving.initial, 1)
    assert np.array_equal(moving.initial, before)


def test_beyond_the_delay_bound_an_unyielding_mode_diverges_and_a_yielding_one_stays_hot() -> None:
    rate, staleness = 0.4, 8  # the bound is 0.1845
    stiff, yielding = spectrum(1.0), spectrum(1.0, relief=0.1)
    assert heat_of(stiff, rate, 1, staleness) > 1e6
    hot = heat_of(yielding, rate, 1, staleness)
    assert 0.1 < hot < 10.0


def test_what_has_diverged_stays_within_numbers() -> None:
    moving = spectrum(5.0)
    state = moving.initial
    for _ in range(2000):
        state = moving.step(state, state, 2.0, 1)
    assert np.all(np.isfinite(state))
    assert float(moving.observe(state).heat[0]) > 1e30


def test_a_gradient_is_minus_the_step_it_makes_in_the_mean() -> None:
    moving = spectrum(1.5)
    state = moving.step(moving.initial, moving.initial, 0.1, 10**12)
    by_step = moving.step(state, state, 0.1, 10**12)
    by_gradient = state - 0.1 * moving.gradient(state, 10**12)
    assert by_gradient == pytest.approx(by_step, abs=1e-5)


@pytest.mark.parametrize(("curvatures", "samples", "relief"), [((), 1, 1.0), ((0.0,), 1, 1.0), ((1.0,), 0, 1.0)])
def test_a_spectrum_needs_curvatures_and_samples(curvatures: tuple[float, ...], samples: int, relief: float) -> None:
    with pytest.raises(ValueError, match="curvatures must be > 0 and samples >= 1"):
        Spectrum(curvatures, samples, np.random.default_rng(0), relief=relief)
