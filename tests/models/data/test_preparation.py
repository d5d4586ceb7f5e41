"""Laws of splitting and scaling."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from hetsgd.models.data.dataset import DataError
from hetsgd.models.data.preparation import class_quotas, fit_scaler, split_rows, stratified_rows

labels = hnp.arrays(np.int64, st.integers(1, 60), elements=st.integers(0, 4))
shares = st.floats(0, 0.99)
seeds = st.integers(0, 2**32)


@given(labels, shares, seeds)
def test_the_parts_are_disjoint_complete_and_in_file_order(y: NDArray[Any], share: float, seed: int) -> None:
    train, test = split_rows(y, share, np.random.default_rng(seed))
    assert sorted([*train, *test]) == list(range(len(y)))
    assert (np.diff(train) > 0).all()
    assert (np.diff(test) > 0).all()


@given(labels, shares, seeds)
def test_every_class_keeps_its_share_within_one_row_and_a_training_row(
    y: NDArray[Any], share: float, seed: int
) -> None:
    train, test = split_rows(y, share, np.random.default_rng(seed))
    for label in set(y.tolist()):
        size, taken = int((y == label).sum()), int((y[test] == label).sum())
        assert abs(taken - size * share) <= 1
        assert label in y[train]


@given(st.lists(st.integers(2, 10**6), min_size=1, max_size=8), st.floats(0, 0.4))
def test_quotas_add_up_to_the_share_of_all_rows(counts: list[int], share: float) -> None:
    total = class_quotas(np.array(counts), share).sum()
    assert total == int(np.floor(sum(counts) * share + 0.5))


def test_the_seed_decides_the_split() -> None:
    y = np.arange(200) % 3
    draws = [split_rows(y, 0.3, np.random.default_rng(seed))[1].tolist() for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def test_sorted_rows_are_drawn_from_everywhere() -> None:
    y = np.repeat([0, 1], 500)
    test = stratified_rows(y, 0.2, np.random.default_rng(0))
    assert len(test) == 200
    assert 200 < test[:100].mean() < 300


def test_multi_label_rows_are_drawn_at_random() -> None:
    train, test = split_rows(np.zeros((10, 3)), 0.25, np.random.default_rng(0))
    assert (len(train), len(test)) == (7, 3)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_outside_its_range_is_refused(share: float) -> None:
    with pytest.raises(DataError, match=r"test_fraction must lie in \[0, 1\)"):
        split_rows(np.array([0, 1]), share, np.random.default_rng(0))


matrices = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12), elements=st.integers(-1000, 1000)
)


@given(matrices)
def test_unit_scaling_maps_the_training_range_onto_zero_to_one(x: NDArray[np.float32]) -> None:
    varying = x.min(axis=0) < x.max(axis=0)
    scaler = fit_scaler(x, "unit")
    assert scaler is not None
    scaler.apply(x)
    assert x.dtype == np.float32
    assert (x.min(axis=0) == 0).all()
    np.testing.assert_array_equal(x.max(axis=0), varying.astype(np.float32))


@given(matrices)
def test_standard_scaling_gives_mean_zero_and_deviation_one(x: NDArray[np.float32]) -> None:
    varying = x.min(axis=0) < x.max(axis=0)
    scaler = fit_scaler(x, "standard")
    assert scaler is not None
    scaler.apply(x)
    np.testing.assert_allclose(x.mean(axis=0, dtype=np.float64), 0, atol=1e-5)
    np.testing.assert_allclose(x.std(axis=0, dtype=np.float64), varying, atol=1e-5)


def test_test_rows_are_scaled_by_the_training_range_and_not_clipped() -> None:
    train, test = np.array([[0.0, 5.0], [10.0, 5.0]]), np.array([[20.0, 6.0], [-5.0, 5.0]])
    scaler = fit_scaler(train, "unit")
    assert scaler is not None
    scaler.apply(test)
    assert test.tolist() == [[2.0, 1.0], [-0.5, 0.0]]


def test_no_scaling_is_no_scaler_and_an_unknown_one_is_refused() -> None:
    assert fit_scaler(np.ones((2, 2)), "none") is None
    with pytest.raises(DataError, match="scaling must be one of none, unit, standard, got 'log'"):
        fit_scaler(np.ones((2, 2)), "log")  # type: ignore[arg-type]  # the wrong value is the point


def test_a_range_beyond_float64_is_refused() -> None:
    with pytest.raises(DataError, match="feature 0 runs from -1e\\+308 to 1e\\+308"):
        fit_scaler(np.array([[-1e308], [1e308]]), "unit")
