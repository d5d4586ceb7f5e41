"""The fitted step-time model and its search: known constants come back, and so do times of networks never seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hetsgd.models.policy import Write
from hetsgd.models.step_fit import StepCosts, StepFit, step_seconds
from hetsgd.models.step_fit_search import StepSample, error_of, fit_steps
from hetsgd.models.workload import Workload

TRUTH = StepCosts(
    overhead_s=2e-5, layer_s=1e-5, l2_bytes_per_s=8e10, l3_bytes_per_s=3e10, dram_bytes_per_s=1e10, flops_per_s=1.3e11,
    half_batch=0.5, element_s=8e-10, row_s=9e-8, gradient_passes=5.0,
)  # fmt: skip
START = StepFit(
    precision="float32", lanes=1, fused=True, overlaps=False, l2_bytes=1 << 20, l3_bytes=8 << 20, batches=(1, 1),
    parameters=(1, 1),
    costs=StepCosts(
        overhead_s=1e-5, layer_s=2e-5, l2_bytes_per_s=5e10, l3_bytes_per_s=2e10, dram_bytes_per_s=2e10,
        flops_per_s=8e10, half_batch=1.0, element_s=2e-9, row_s=5e-8,
    ),
)  # fmt: skip
HIDDEN = ((64, 64), (128,) * 10, (256, 256), (512, 512), (512,) * 6, (1024, 1024), (2048, 2048))
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def network(hidden: tuple[int, ...], features: int = 54) -> Workload:
    return Workload(name="w", dataset="d", rows=1, test_rows=0, features=features, outputs=4, hidden=hidden)


def samples(noise: float, kind: StepFit = START) -> list[StepSample]:
    """Times that follow from the constants, each off by lognormal noise."""
    rng = np.random.default_rng(5)
    writes: tuple[tuple[Write, tuple[int, ...]], ...] = (("in_place", BATCHES), ("gradient", (1, 16, 128)))
    return [
        StepSample(
            workload=network(hidden, features), batch=batch, write=write, spread=noise,
            seconds=step_seconds(kind, TRUTH, network(hidden, features), batch, write) * float(np.exp(noise * z)),
        )
        for features in (20, 300) for hidden in HIDDEN for write, batches in writes for batch in batches
        for z in (rng.normal(),)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def fit() -> StepFit:
    return fit_steps(START, samples(0.03))


@pytest.mark.parametrize(
    ("constant", "within"),
    [
        ("overhead_s", 0.15), ("layer_s", 0.1), ("l3_bytes_per_s", 0.1), ("dram_bytes_per_s", 0.1),
        ("flops_per_s", 0.05), ("element_s", 0.2), ("gradient_passes", 0.1),
    ],
)  # fmt: skip
def test_the_search_finds_the_constants_behind_noisy_times(fit: StepFit, constant: str, within: float) -> None:
    assert getattr(fit.costs, constant) == pytest.approx(getattr(TRUTH, constant), rel=within)


def test_the_fit_knows_its_error_its_spread_and_its_ranges(fit: StepFit) -> None:
    assert fit.fit_error == pytest.approx(0.024, abs=0.01)  # the mean of |z| is 0.8 sigma
    assert fit.spread == 0.03
    assert fit.batches == (1, 512)
    assert fit.parameters == (network(HIDDEN[0], 20).parameters, network(HIDDEN[-1], 300).parameters)


def test_it_foretells_networks_that_it_never_saw(fit: StepFit) -> None:
    for hidden in ((96,), (300, 200, 100), (768,) * 4):
        unseen = network(hidden, 100)
        truth = [
            StepSample(
                workload=unseen, batch=b, write="in_place", seconds=step_seconds(START, TRUTH, unseen, b, "in_place")
            )
            for b in (1, 6, 24, 400)
        ]
        error = error_of(fit, truth)
        assert error is not None
        assert error < 0.05


def test_one_wild_measurement_does_not_bend_the_fit(fit: StepFit) -> None:
    spoiled = samples(0.03)
    spoiled[7] = replace(spoiled[7], seconds=spoiled[7].seconds * 30.0)
    assert fit_steps(START, spoiled).costs.flops_per_s == pytest.approx(fit.costs.flops_per_s, rel=0.02)


def test_where_calls_overlap_with_arithmetic_the_longer_of_the_two_counts() -> None:
    device = replace(START, overlaps=True, fused=False, costs=TRUTH)
    small, large = network((64, 64)), network((2048, 2048))
    calls_s = TRUTH.overhead_s + 3 * TRUTH.layer_s
    assert device.step_s(small, 1) == pytest.approx(calls_s, rel=0.01)
    assert device.step_s(large, 512) == pytest.approx(replace(device, overlaps=False).step_s(large, 512), rel=0.01)


def test_a_larger_model_or_batch_never_takes_less_time() -> None:
    fit = replace(START, costs=TRUTH)
    sizes = [fit.step_s(network((width, width)), 1) for width in range(64, 2048, 64)]
    assert sizes == sorted(sizes)
    batches = [fit.step_s(network((256,)), batch) for batch in range(1, 300)]
    assert batches == sorted(batches)


def test_nothing_is_fitted_to_nothing_and_no_rate_is_zero() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        fit_steps(START, [])
    with pytest.raises(ValueError, match=r"fit: flops_per_s must be > 0 and finite, got 0"):
        replace(TRUTH, flops_per_s=0.0)
    with pytest.raises(ValueError, match=r"batches must be a range .* got \[4, 1\]"):
        replace(START, batches=(4, 1))
