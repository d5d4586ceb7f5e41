"""The closed forms of stability against plain recursions, and the side of the limit that a configuration is on."""

import heapq
import math

import numpy as np
import pytest

from hetsgd.models.stability import (
    StabilityLimit,
    asynchrony_momentum,
    delay_bound,
    delayed_second_moment,
    delayed_steady_loss,
    largest_rate,
    longest_round_trip_s,
    mean_staleness,
    steady_loss,
    steady_loss_with_momentum,
)


def grows(product: float, staleness: int) -> bool:
    """Whether x <- x - product x(t - staleness) grows, by running it."""
    history = [1.0] * (staleness + 1)
    for _ in range(20_000):
        history.append(history[-1] - product * history[-1 - staleness])
    late, earlier = (max(abs(x) for x in history[low:high]) for low, high in ((-1000, None), (-11_000, -10_000)))
    return late > earlier


@pytest.mark.parametrize(
    ("staleness", "bound"), [(0, 2.0), (1, 1.0), (2, 0.618), (4, 0.3473), (8, 0.1845), (16, 0.0952), (32, 0.0483)]
)
def test_the_delay_bound_is_where_a_delayed_recursion_begins_to_grow(staleness: int, bound: float) -> None:
    assert delay_bound(staleness) == pytest.approx(bound, abs=5e-5)
    assert not grows(0.99 * delay_bound(staleness), staleness)
    assert grows(1.01 * delay_bound(staleness), staleness)


@pytest.mark.parametrize(("staleness", "floor"), [(0, 0.026), (4, 0.040), (8, 0.0665), (12, 0.155)])
def test_noise_keeps_up_the_published_steady_loss_under_delay(staleness: int, floor: float) -> None:
    found = delayed_steady_loss(0.1, 1.0, 1.0, staleness)
    assert found == pytest.approx(floor, abs=5e-4)
    assert delayed_second_moment(0.1, 1.0, 1.0, staleness, 4000)[-1] == pytest.approx(found, rel=1e-6)


def test_without_delay_the_second_moment_rises_as_the_noisy_quadratic_model_says() -> None:
    rate, curvature, noise = 0.2, 1.5, 0.7
    steps = np.arange(1, 50)
    expected = (1.0 - (1.0 - rate * curvature) ** (2 * steps)) * steady_loss(rate, curvature, noise)
    assert delayed_second_moment(rate, curvature, noise, 0, 49) == pytest.approx(expected)


def test_beyond_the_bound_the_steady_loss_is_infinite_and_the_moments_grow() -> None:
    assert delayed_steady_loss(0.4, 1.0, 1.0, 4) == math.inf
    moments = delayed_second_moment(0.4, 1.0, 1.0, 4, 2000)
    assert moments[-1] > 1e6 * moments[100]
    assert steady_loss(2.0, 1.0, 1.0) == math.inf


def test_heavy_ball_momentum_keeps_up_the_loss_of_its_moments() -> None:
    rate, curvature, noise, momentum = 0.3, 1.0, 1.0, 0.8
    move = np.array([[1.0 + momentum - rate * curvature, -momentum], [1.0, 0.0]])
    moment = np.zeros((2, 2))
    for _ in range(2000):
        moment = move @ moment @ move.T + np.diag([rate**2 * noise, 0.0])
    found = steady_loss_with_momentum(rate, curvature, noise, momentum)
    assert found == pytest.approx(curvature * moment[0, 0] / 2.0, rel=1e-9)


def test_staleness_of_free_lanes_beside_an_accelerator() -> None:
    assert mean_staleness(16, 10.0) == pytest.approx((15.1, 160.0))
    generator = np.random.default_rng(1)
    version, found = 0, {"lane": [0.0], "accelerator": [0.0]}
    events = [(generator.uniform(0.0, 1.0), f"lane {k}", 0) for k in range(16)] + [(10.0, "accelerator", 0)]
    heapq.heapify(events)
    while version < 20_000:
        now, who, read = heapq.heappop(events)
        found[who.split()[0]].append(version - read)
        version += 1
        step = 10.0 if who == "accelerator" else generator.uniform(0.9, 1.1)
        heapq.heappush(events, (now + step, who, version))
    lane, accelerator = mean_staleness(16, 10.0)
    assert np.mean(found["lane"]) == pytest.approx(lane, rel=0.02)
    assert np.mean(found["accelerator"]) == pytest.approx(accelerator, rel=0.02)


def test_geometric_staleness_acts_as_momentum() -> None:
    """In the mean, reads of geometric age obey x+ - x = b (x - x-) - (1 - b) a h x."""
    workers, product, depth = 4, 0.2, 400
    momentum = asynchrony_momentum(workers)
    assert momentum == 0.75
    weights = (1.0 - momentum) * momentum ** np.arange(depth)
    stale = [1.0] * depth
    for _ in range(50):
        stale.append(stale[-1] - product * float(weights @ np.array(stale[: -depth - 1 : -1])))
    for before, now, after in zip(stale[depth:], stale[depth + 1 :], stale[depth + 2 :], strict=False):
        heavy = momentum * (now - before) - (1.0 - momentum) * product * now
        assert after - now == pytest.approx(heavy, abs=1e-12)


@pytest.mark.parametrize(("cpu", "accelerator"), [(1.0, 2.0), (0.2, 5.0)])
def test_the_drift_condition_says_where_a_delayed_accelerator_begins_to_swing(cpu: float, accelerator: float) -> None:
    longest = longest_round_trip_s(cpu, accelerator)
    for factor, stable in ((0.95, True), (1.05, False)):
        delay = factor * longest
        step = delay / 500
        history = [1.0] * 501
        for _ in range(60_000):
            history.append(history[-1] - step * (cpu * history[-1] + accelerator * history[-501]))
        assert (max(map(abs, history[-3000:])) < max(map(abs, history[3000:6000]))) is stable


def test_an_accelerator_that_drifts_less_than_the_lanes_is_stable_at_any_round_trip() -> None:
    assert longest_round_trip_s(1.0, 1.0) == math.inf


def test_the_largest_rate_of_one_row_and_of_all() -> None:
    assert largest_rate(2.0, 20.0, 1) == pytest.approx(2.0 / 20.0)
    assert largest_rate(2.0, 20.0, 10**9) == pytest.approx(2.0 / 2.0)
    rates = [largest_rate(2.0, 20.0, batch) for batch in (1, 2, 4, 8, 16)]
    assert rates == sorted(rates)


def test_a_configuration_is_on_one_side_of_the_limit() -> None:
    limit = StabilityLimit(curvature=2.0, row_curvature=20.0)
    assert limit.side(rate=0.01, batch=1) == "safe"
    assert limit.side(rate=0.08, batch=1) == "between"
    assert limit.side(rate=0.2, batch=1) == "diverges"
    assert limit.diverges(rate=0.08, batch=1, staleness=8)
    assert limit.borne(0.0) == limit.margin < limit.borne(2.0) < limit.stale_margin
    assert limit.ratio(rate=0.1, batch=1, staleness=1) == pytest.approx(2.0)


@pytest.mark.parametrize("staleness", [-1.0, math.nan])
def test_staleness_must_be_a_number_from_zero(staleness: float) -> None:
    with pytest.raises(ValueError, match="staleness must be >= 0"):
        delay_bound(staleness)
