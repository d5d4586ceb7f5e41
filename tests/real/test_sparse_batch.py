"""Products without zeros against dense ones, and steps of a network with them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import Tensor

from hetsgd.models.initial import initial_parameters
from hetsgd.models.workload import LossName, Precision, Workload
from hetsgd.real.features import Csr, CsrFeatures
from hetsgd.real.network import Network
from hetsgd.real.sparse_batch import SparseBatch

FEATURES = 1500  # more than one block of features in one batch
TOLERANCE: dict[Precision, float] = {"float32": 2e-5, "float64": 1e-12}


def workload(loss: LossName = "softmax", bias: bool = True, precision: Precision = "float64") -> Workload:
    return Workload(
        name="w", dataset="d", rows=64, test_rows=0, features=FEATURES, outputs=4, hidden=(7, 5), bias=bias, loss=loss,
        precision=precision, density=0.02, sparse=True,
    )  # fmt: skip


def batch(precision: Precision, rows: int) -> tuple[Tensor, SparseBatch]:
    """The same rows dense and sparse; the first has no value at all."""
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, FEATURES)) * (rng.random((rows, FEATURES)) < 0.02)
    if rows > 1:
        x[0] = 0.0
    x = x.astype(precision)
    stored = csr_array(x)
    matrix = Csr(
        data=stored.data, indices=stored.indices.astype(np.int32), indptr=stored.indptr.astype(np.int64), shape=x.shape
    )
    taken = CsrFeatures(matrix, multiply=True).take(slice(0, rows))
    assert isinstance(taken, SparseBatch)
    return torch.from_numpy(x), taken


def targets(load: Workload, rows: int) -> Tensor:
    rng = np.random.default_rng(rows)
    if load.loss == "softmax":
        return torch.from_numpy(rng.integers(load.outputs, size=rows))
    return torch.from_numpy((rng.random((rows, load.outputs)) < 0.4).astype(load.precision))


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("rows", [1, 2, 40])
def test_both_products_are_those_of_the_dense_batch(precision: Precision, rows: int) -> None:
    dense, sparse = batch(precision, rows)
    assert sparse.shape == tuple(dense.shape)
    weights = torch.rand((FEATURES, 7), dtype=dense.dtype)
    delta = torch.rand((rows, 7), dtype=dense.dtype)
    out = torch.empty((rows, 7), dtype=dense.dtype)
    for bias in (None, torch.rand(7, dtype=dense.dtype)):
        sparse.times(weights, bias, out)
        expected = dense @ weights + (0.0 if bias is None else bias)
        torch.testing.assert_close(out, expected, rtol=TOLERANCE[precision], atol=TOLERANCE[precision])
    for beta in (1.0, 0.5, 0.0):
        changed = weights.clone() if beta else torch.full_like(weights, torch.nan)
        sparse.add_gradient(changed, delta, -0.3, beta)
        expected = beta * weights - 0.3 * dense.t() @ delta
        torch.testing.assert_close(changed, expected, rtol=TOLERANCE[precision], atol=TOLERANCE[precision])


def test_weights_of_features_that_are_zero_are_not_touched() -> None:
    dense, sparse = batch("float64", 40)
    weights = torch.full((FEATURES, 7), torch.nan, dtype=torch.float64)
    weights[dense.any(0)] = 1.0
    out = torch.empty((40, 7), dtype=torch.float64)
    sparse.times(weights, None, out)
    sparse.add_gradient(weights, torch.ones_like(out), -0.1, 1.0)
    assert torch.isfinite(out).all()
    assert torch.equal(torch.isnan(weights).all(1), ~dense.any(0))


def test_a_range_of_rows_is_taken_as_of_a_dense_batch() -> None:
    dense, sparse = batch("float64", 9)
    weights = torch.eye(FEATURES, dtype=torch.float64)
    for rows in (slice(0, 9), slice(2, 5), slice(8, 9), slice(4, 4), slice(None, 3), slice(5, None)):
        part = sparse[rows]
        assert part.shape == tuple(dense[rows].shape)
        if part.shape[0]:
            out = torch.empty(part.shape, dtype=torch.float64)
            part.times(weights, None, out)
            assert torch.equal(out, dense[rows])


CASES = list(itertools.product(("softmax", "sigmoid"), (True, False), ("float32", "float64")))


@pytest.mark.parametrize(("loss", "bias", "precision"), CASES)
@pytest.mark.parametrize("decay", [0.0, 0.2])
def test_steps_gradients_and_losses_equal_the_dense_ones(
    loss: LossName, bias: bool, precision: Precision, decay: float
) -> None:
    load = workload(loss, bias, precision)
    network, tolerance = Network(load, max_batch=300), TOLERANCE[precision]
    assert network.factor_rows < 300  # the last batch is stepped by way of a gradient
    for rows in (1, 3, 300):
        (dense, sparse), y = batch(precision, rows), targets(load, rows)
        w = torch.from_numpy(initial_parameters(load, 1))
        ours, out, expected = w.clone(), torch.full_like(w, torch.nan), torch.empty_like(w)
        network.gradient(w, sparse, y, out)
        network.gradient(w, dense, y, expected)
        torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance)
        for _ in range(2):
            network.step(ours, sparse, y, 0.5, decay)
            network.step(w, dense, y, 0.5, decay)
        torch.testing.assert_close(ours, w, rtol=tolerance, atol=tolerance)
        found, wanted = network.loss(w, sparse, y), network.loss(w, dense, y)
        assert found.mean == pytest.approx(wanted.mean, rel=10 * tolerance)
        assert (found.rows, found.hits, found.misses) == (wanted.rows, wanted.hits, wanted.misses)


def test_factors_applied_piece_by_piece_equal_a_step() -> None:
    load = workload()
    network = Network(load, max_batch=6)
    (_, sparse), y = batch("float64", 6), targets(load, 6)
    w = torch.from_numpy(initial_parameters(load, 1))
    stepped, pieces = w.clone(), w.clone()
    workspace = network.workspace(8)
    assert workspace.x_BF.numel() == 0  # no dense rows anywhere
    workspace.sparse = sparse
    network.factors(w, y, workspace, 6)
    network.step(stepped, sparse, y, 0.5)
    for first, stop in ((2, 6), (0, 1), (1, 2)):
        network.accumulate(pieces, workspace, first, stop, -0.5 / 6, 1.0)
    torch.testing.assert_close(pieces, stepped, rtol=1e-10, atol=1e-12)
