"""Fits find again what made the curves, and say how far they are off where they were not fitted."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from hetsgd.models.policy import Assign, Seat, Work
from hetsgd.models.surrogates.fitting import PilotCurve, fit_maps, fit_one_step, rms, seed_spread
from hetsgd.models.surrogates.learner import SurrogateLearner
from hetsgd.models.surrogates.loss_map import LossMap
from hetsgd.models.surrogates.one_step import GradientStatistics, OneStep, OneStepModel
from hetsgd.models.surrogates.reading import OneStepReader, SpectrumReader
from hetsgd.models.surrogates.spectrum import Spectrum
from hetsgd.models.surrogates.tape import Call, lead

CURVATURES = (2.0, 0.5, 0.1)
TRUTH = LossMap(kind="quadratic", initial=1.0, slow=(0.2, 0.3, 0.1, 0.4), heat=(0.5, 1.0, 0.0), exponent=0.5)


def serial(rate: float, batch: int, updates: int) -> list[Call]:
    """The calls of one lane's in-place steps, with an evaluation after every twentieth of them."""
    calls: list[Call] = []
    work = Work(batch=batch, rate=rate)
    for k in range(updates):
        assign = Assign(id=k, seat=Seat("cpu"), epoch=0, start=0, stop=batch, lanes=1, work=work)
        calls += [("start", (assign, 0, 0)), ("finish", (assign, 0, 0)), ("result", (assign,))]
        if not (k + 1) % max(1, updates // 20):
            calls.append(("evaluate", (float(k), 0, k + 1)))
    return calls


def curve(rate: float, batch: int, updates: int, seed: int = 0) -> PilotCurve:
    """A pilot of a network that is exactly the quadratic model."""
    calls = serial(rate, batch, updates)
    spectrum = Spectrum(CURVATURES, 200, np.random.default_rng(seed + 10))
    losses = lead(SurrogateLearner("truth", spectrum, SpectrumReader(spectrum, TRUTH)), calls)
    label = f"{rate} {batch}"
    return PilotCurve(label=label, seed=seed, calls=calls, losses=tuple(x.train for x in losses), initial=1.0)


@pytest.fixture(scope="module")
def curves() -> list[PilotCurve]:
    """Serial pilots, hot and cold."""
    return [curve(0.2, 1, 300), curve(0.05, 1, 300), curve(0.3, 16, 200), curve(0.1, 64, 200), curve(0.1, 4, 400)]


def test_both_maps_predict_pilots_that_were_left_out(curves: list[PilotCurve]) -> None:
    fitted = fit_maps(curves, CURVATURES, 32)
    assert rms(fitted["quadratic"].residuals) < 0.04
    assert rms(fitted["path"].residuals) < 0.12
    assert fitted["quadratic"].found.spread_loss < 0.05


def test_a_fitted_map_falls_with_progress_and_rises_with_heat(curves: list[PilotCurve]) -> None:
    found = fit_maps(curves, CURVATURES, 32)["path"].found
    spectrum = Spectrum(CURVATURES, 32, np.random.default_rng(0))
    state, cold = spectrum.initial, []
    for _ in range(100):
        state = spectrum.step(state, state, 0.1, 10**9)
        cold.append(found.loss(spectrum.observe(state)))
    assert all(after <= before + 1e-12 for before, after in pairwise(cold))
    seen = spectrum.observe(state)
    assert found.loss(replace(seen, heat=seen.heat + 0.1)) > cold[-1]
    low, high = found.interval(seen)
    assert low <= cold[-1] <= high


def test_two_different_pilots_are_the_least(curves: list[PilotCurve]) -> None:
    with pytest.raises(ValueError, match="at least two different pilots"):
        fit_maps(curves[:1], CURVATURES, 8)


def test_the_loss_conditioned_fit_finds_its_factors_again() -> None:
    truth = OneStepModel(initial=1.0, losses=(0.1, 1.0), pull=(0.02, 0.5), bend=(0.0, 0.0), heat=(0.3, 0.6))

    def run(rate: float, batch: int) -> PilotCurve:
        calls = serial(rate, batch, 200)
        losses = lead(SurrogateLearner("truth", OneStep(truth), OneStepReader(truth)), calls)
        label = f"{rate} {batch}"
        return PilotCurve(label=label, seed=0, calls=calls, losses=tuple(x.train for x in losses), initial=1.0)

    statistics = [
        GradientStatistics(loss=loss, squared_norm=2.0 * pull, bend=0.0, noise=1.0, noise_bend=heat / 2.0,
                           curvature=1.0, row_curvature=2.0)
        for loss, pull, heat in ((0.1, 0.02, 0.3), (1.0, 0.5, 0.6))
    ]  # fmt: skip
    fitted = fit_one_step([run(0.1, 1), run(0.05, 4), run(0.2, 64)], statistics)
    assert fitted.found.pull == pytest.approx(truth.pull, rel=0.02)
    assert fitted.found.heat == pytest.approx(truth.heat, rel=0.05)
    assert rms(fitted.residuals) < 0.01


def test_the_floor_is_the_spread_of_one_seed_against_the_others() -> None:
    low, high = (
        PilotCurve(label="a", seed=seed, calls=(), losses=(loss,) * 3, initial=1.0)
        for seed, loss in ((0, 1.0), (1, 2.0))
    )
    assert seed_spread([low, high]) == pytest.approx(np.log(2.0))
    assert np.isnan(seed_spread([low]))
