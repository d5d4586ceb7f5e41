"""Every merge rule against its formula written out, entry by entry."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hetsgd.models.merging import Input, MergeState
from hetsgd.models.policy import Merge

Vector = NDArray[Any]
SIZE = 40_000  # more than two blocks


def vectors(count: int, seed: int = 0) -> list[Vector]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=SIZE) for _ in range(count)]


def merge(rule: str, **rest: Any) -> Merge:
    count = len(rest.get("weights", (1.0,)))
    return Merge(inputs=tuple(range(count)), rule=rule, **rest)  # type: ignore[arg-type]  # a literal of the test


def close(got: Vector, expected: Vector) -> None:
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def test_one_gradient_is_an_sgd_step_bit_for_bit() -> None:
    w, g = vectors(2)
    expected = w - 0.1 * g
    MergeState().apply(merge("gradient", weights=(1.0,), rate=0.1), w, [Input(gradient=g)])
    assert np.array_equal(w, expected)


def test_gradients_with_momentum_and_decay_equal_the_loop() -> None:
    (w,) = vectors(1)
    state, expected, velocity = MergeState(weight_decay=0.2), w.copy(), np.zeros(SIZE)
    for step in range(4):
        g, h = vectors(2, seed=step + 1)
        order = merge("gradient", weights=(0.25, 0.75), rate=0.1, momentum=0.9)
        state.apply(order, w, [Input(gradient=g), Input(gradient=h)])
        velocity = 0.9 * velocity + 0.25 * g + 0.75 * h
        expected = (1 - 0.1 * 0.2) * expected - 0.1 * velocity
        close(w, expected)


def test_a_gradient_without_momentum_forgets_the_velocity() -> None:
    w, g = vectors(2)
    state = MergeState()
    fast, slow = merge("gradient", weights=(1.0,), momentum=0.5), merge("gradient", weights=(1.0,))
    state.apply(fast, w, [Input(gradient=g)])
    assert state.has_velocity
    state.apply(slow, w, [Input(gradient=g)])
    assert not state.has_velocity
    before = w.copy()
    state.apply(fast, w, [Input(gradient=g)])
    close(w, before - g)


def test_delay_compensation_adds_the_squared_gradient_times_the_drift() -> None:
    w, g, read = vectors(3)
    expected = w - 0.1 * (g + 0.04 * g * g * (w - read))
    MergeState().apply(merge("gradient", weights=(1.0,), rate=0.1, compensate=0.04), w, [Input(gradient=g, read=read)])
    close(w, expected)


def test_overwrite_takes_the_last_replica() -> None:
    w, a, b = vectors(3)
    MergeState().apply(merge("overwrite", weights=(1.0, 1.0)), w, [Input(replica=a), Input(replica=b)])
    assert np.array_equal(w, b)


def test_delta_adds_what_the_replicas_learned() -> None:
    w, a, b, s, t = vectors(5)
    expected = w + 0.5 * (0.3 * (a - s) + 0.7 * (b - t))
    MergeState().apply(
        merge("delta", weights=(0.3, 0.7), rate=0.5), w, [Input(replica=a, start=s), Input(replica=b, start=t)]
    )
    close(w, expected)


@pytest.mark.parametrize("weights", [(0.5, 0.5), (0.2, 0.3)])
def test_average(weights: tuple[float, float]) -> None:
    w, a, b = vectors(3)
    expected = (1 - sum(weights)) * w + weights[0] * a + weights[1] * b
    MergeState().apply(merge("average", weights=weights), w, [Input(replica=a), Input(replica=b)])
    close(w, expected)


def test_averaging_in_full_does_not_look_at_the_model() -> None:
    w, a = vectors(2)
    w[:] = np.nan
    MergeState().apply(merge("average", weights=(1.0,)), w, [Input(replica=a)])
    assert np.array_equal(w, a)


def test_elastic_moves_replicas_and_centre_towards_each_other() -> None:
    w, a, b = vectors(3)
    state, centre = MergeState(), w.copy()
    ea, eb = 0.2 * (a - w), 0.2 * (b - w)
    new_a, new_b = a - ea, b - eb
    state.apply(merge("elastic", weights=(1.0, 0.5), rate=0.2), w, [Input(replica=a), Input(replica=b)])
    close(w, centre + ea + 0.5 * eb)
    close(a, new_a)
    close(b, new_b)


def test_synchronous_model_averaging_with_momentum_equals_the_loop() -> None:
    """c_j = a (w_j - z) at the read; w_j -= eta g_j + c_j; z += sum c_j + mu (z - z_prev)."""
    z, a, b = vectors(3)
    state, mu, force = MergeState(), 0.8, 0.1
    replicas, expected = [a, b], [a.copy(), b.copy()]
    centre, previous = z.copy(), z.copy()
    for step in range(3):
        read = z.copy()
        starts = [replica.copy() for replica in replicas]
        pulls = [force * (replica - centre) for replica in expected]
        for j, g in enumerate(vectors(2, seed=10 + step)):
            replicas[j] -= 0.1 * g
            expected[j] = expected[j] - (0.1 * g + pulls[j])
        inputs = [Input(replica=r, start=s, read=read) for r, s in zip(replicas, starts, strict=True)]
        state.apply(merge("elastic", weights=(1.0, 1.0), rate=force, momentum=mu, at_read=True), z, inputs)
        centre, previous = centre + sum(pulls) + mu * (centre - previous), centre
        close(z, centre)
        close(replicas[0], expected[0])
        close(replicas[1], expected[1])


def test_a_replica_behind_two_inputs_moves_once() -> None:
    w, a = vectors(2)
    centre, e = w.copy(), 0.3 * (a - w)
    expected = a - e
    MergeState().apply(merge("elastic", weights=(0.5, 0.5), rate=0.3), w, [Input(replica=a), Input(replica=a)])
    close(a, expected)
    close(w, centre + e)


def test_write_back_gives_the_new_model_to_the_named_workers() -> None:
    w, a, own, other = vectors(4)
    untouched = other.copy()
    order = merge("average", weights=(0.5,), write_back=("cpu",))
    MergeState().apply(order, w, [Input(replica=a)], {"cpu": own, "gpu": other})
    assert np.array_equal(own, w)
    assert np.array_equal(other, untouched)


def test_precision_stays() -> None:
    w = np.ones(5, np.float32)
    MergeState(weight_decay=0.1).apply(
        merge("gradient", weights=(0.5,), rate=0.3, momentum=0.1), w, [Input(gradient=np.ones(5, np.float32))]
    )
    assert w.dtype == np.float32


def test_overflow_is_a_result_not_a_warning() -> None:
    w = np.full(5, 3e38, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MergeState().apply(
            merge("gradient", weights=(1.0,), rate=10.0), w, [Input(gradient=np.full(5, -3e38, np.float32))]
        )
    assert np.isinf(w).all()


def test_an_input_without_what_the_rule_needs_is_refused() -> None:
    w, a = vectors(2)
    with pytest.raises(ValueError, match="needs the start"):
        MergeState().apply(merge("delta", weights=(1.0,)), w, [Input(replica=a)])
    with pytest.raises(ValueError, match="needs the gradient"):
        MergeState().apply(merge("gradient", weights=(1.0,)), w, [Input(replica=a)])
    with pytest.raises(ValueError, match="1 inputs are named, got 0"):
        MergeState().apply(merge("overwrite"), w, [])
