"""The hand-written passes against torch's autograd, and the fused step against gradient and subtraction."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from hetsgd.models.initial import initial_parameters
from hetsgd.models.workload import Activation, LossName, Precision, Workload
from hetsgd.real.loss_sum import LossSum
from hetsgd.real.network import Network

CASES = list(
    itertools.product(("sigmoid", "relu", "tanh"), ("softmax", "sigmoid"), (True, False), ("float32", "float64"))
)


def workload(
    activation: Activation = "sigmoid",
    loss: LossName = "softmax",
    bias: bool = True,
    precision: Precision = "float64",
    hidden: tuple[int, ...] = (7, 5),
) -> Workload:
    return Workload(
        name="w", dataset="d", rows=64, test_rows=0, features=6, outputs=4, hidden=hidden, activation=activation,
        bias=bias, loss=loss, precision=precision,
    )  # fmt: skip


def batch(load: Workload, rows: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(rows, load.features)).astype(load.precision))
    if load.loss == "softmax":
        return x, torch.from_numpy(rng.integers(load.outputs, size=rows))
    return x, torch.from_numpy((rng.random((rows, load.outputs)) < 0.4).astype(load.precision))


def parameters(load: Workload, seed: int = 1) -> Tensor:
    w = torch.from_numpy(initial_parameters(load, seed))
    return w + 0.1 * torch.from_numpy(np.random.default_rng(seed).normal(size=w.shape).astype(load.precision))


def autograd(load: Workload, w: Tensor, x: Tensor, y: Tensor) -> tuple[float, Tensor, Tensor]:
    """Mean loss, gradient and logits by torch itself."""
    w = w.clone().requires_grad_()
    value = x
    for k, layer in enumerate(load.layers):
        size = layer.inputs * layer.outputs
        value = value @ w[layer.weight_offset : layer.weight_offset + size].view(layer.inputs, layer.outputs)
        if layer.bias_offset >= 0:
            value = value + w[layer.bias_offset : layer.bias_offset + layer.outputs]
        if k < len(load.layers) - 1:
            value = getattr(torch, load.activation)(value)
    if load.loss == "softmax":
        loss = functional.cross_entropy(value, y)
    else:
        loss = functional.binary_cross_entropy_with_logits(value, y, reduction="sum") / len(x)
    (gradient,) = torch.autograd.grad(loss, w)
    return loss.item(), gradient, value.detach()


@pytest.mark.parametrize(("activation", "loss", "bias", "precision"), CASES)
def test_gradient_and_loss_equal_autograd(
    activation: Activation, loss: LossName, bias: bool, precision: Precision
) -> None:
    load = workload(activation, loss, bias, precision)
    network = Network(load, max_batch=9)
    w = parameters(load)
    tolerance = 1e-5 if precision == "float32" else 1e-12
    for rows in (1, 3, 9):
        x, y = batch(load, rows, seed=rows)
        expected_loss, expected, _ = autograd(load, w, x, y)
        out = torch.full_like(w, math.nan)  # what was there before must not matter
        network.gradient(w, x, y, out)
        torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance)
        assert network.loss(w, x, y).mean == pytest.approx(expected_loss, rel=10 * tolerance)


@pytest.mark.parametrize(("activation", "loss", "bias", "precision"), CASES)
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_fused_step_is_a_gradient_step(
    activation: Activation, loss: LossName, bias: bool, precision: Precision, decay: float
) -> None:
    load = workload(activation, loss, bias, precision)
    network = Network(load, max_batch=300)
    assert 5 <= network.factor_rows < 300  # both ways of stepping are used below
    tolerance = 1e-5 if precision == "float32" else 1e-12
    for rows in (1, 5, 300):
        x, y = batch(load, rows, seed=rows)
        w = parameters(load)
        gradient = torch.empty_like(w)
        network.gradient(w, x, y, gradient)
        expected = (1 - 0.5 * decay) * w - 0.5 * gradient
        network.step(w, x, y, 0.5, decay)
        torch.testing.assert_close(w, expected, rtol=tolerance, atol=tolerance)


def test_no_hidden_layer_is_logistic_regression() -> None:
    load = workload(hidden=())
    x, y = batch(load, 5)
    w = parameters(load)
    out = torch.empty_like(w)
    Network(load, max_batch=5).gradient(w, x, y, out)
    torch.testing.assert_close(out, autograd(load, w, x, y)[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("decay", [0.0, 0.2])
def test_factors_applied_row_by_row_equal_a_step(decay: float) -> None:
    load = workload("tanh")
    network = Network(load, max_batch=6)
    x, y = batch(load, 6)
    w = parameters(load)
    stepped = w.clone()
    workspace = network.workspace(8)
    workspace.x_BF[:6] = x
    network.factors(w, y, workspace, 6)
    network.step(stepped, x, y, 0.5, decay)
    whole, pieces = w.clone(), w.clone()
    network.accumulate(whole, workspace, 0, 6, -0.5 / 6, 1 - 0.5 * decay)
    assert torch.equal(whole, stepped)
    for first, stop in ((2, 6), (0, 2)):
        network.accumulate(pieces, workspace, first, stop, -0.5 / 6, 1.0)
    torch.testing.assert_close(pieces - w, whole - (1 - 0.5 * decay) * w, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_a_write_on_the_way_of_the_next_forward_pass_gives_the_same_bits(decay: float) -> None:
    load = workload(loss="sigmoid")
    network = Network(load, max_batch=6)
    x, y = batch(load, 10)
    apart, fused = parameters(load), parameters(load)
    written, after = network.workspace(6), [network.workspace(4) for _ in range(2)]
    written.views(0, 6).x_BF.copy_(x[:6])
    network.factors(apart, y[:6], written, 6)
    for workspace in after:
        workspace.views(0, 4).x_BF.copy_(x[6:])
    network.accumulate(apart, written, 1, 5, -0.5 / 6, 1 - 0.5 * decay)
    network.factors(apart, y[6:], after[0], 4)
    network.accumulate_and_factors(fused, written, 1, 5, -0.5 / 6, 1 - 0.5 * decay, y[6:], after[1], 4)
    assert torch.equal(fused, apart)
    for one, other in zip(after[0].views(0, 4).deltas, after[1].views(0, 4).deltas, strict=True):
        assert torch.equal(one, other)


def test_loss_in_pieces_equals_the_whole_and_counts_what_is_right() -> None:
    load = workload("relu", precision="float32")
    network = Network(load)
    x, y = batch(load, 2 * network.loss_rows + 17)
    w = parameters(load)
    loss, _, logits = autograd(load, w, x, y)
    total = network.loss(w, x, y)
    assert total.rows == len(x)
    assert total.mean == pytest.approx(loss, rel=1e-5)
    assert total.hits == int((logits.argmax(1) == y).sum())
    assert total.score == total.hits / len(x)


def test_multi_label_score_is_micro_f1() -> None:
    from sklearn.metrics import f1_score

    load = workload(loss="sigmoid")
    x, y = batch(load, 50)
    w = parameters(load)
    logits = autograd(load, w, x, y)[2]
    expected = f1_score(y.numpy(), (logits > 0).numpy(), average="micro")
    assert Network(load).loss(w, x, y).score == pytest.approx(expected, rel=1e-12)


def test_large_logits_do_not_overflow() -> None:
    for loss in ("softmax", "sigmoid"):
        load = workload("relu", loss, precision="float32", hidden=())
        x, y = batch(load, 4)
        w = 1e4 * parameters(load)
        network = Network(load, max_batch=4)
        out = torch.empty_like(w)
        network.gradient(w, x, y, out)
        assert torch.isfinite(out).all()
        assert math.isfinite(network.loss(w, x, y).mean)


def test_a_model_that_is_not_finite_has_a_loss_that_is_not_finite() -> None:
    load = workload(precision="float32")
    x, y = batch(load, 4)
    for value in (math.nan, math.inf):
        assert not math.isfinite(Network(load).loss(torch.full((load.parameters,), value), x, y).mean)


def test_steps_allocate_nothing_that_stays() -> None:
    load = workload(hidden=(16,))
    network = Network(load, max_batch=4)
    x, y = batch(load, 4)
    w = parameters(load)
    network.step(w, x, y, 0.1)
    before = network.layers(w)[0][0]
    network.step(w, x, y, 0.1)
    assert network.layers(w)[0][0] is before


def test_growing_buffers_give_the_same_steps() -> None:
    load = workload("tanh", precision="float32")
    fixed, growing = Network(load, max_batch=100), Network(load, max_batch=100, grow=True)
    w, v = parameters(load), parameters(load)
    for rows in (3, 1, 70, 2):
        x, y = batch(load, rows)
        fixed.step(w, x, y, 0.1)
        growing.step(v, x, y, 0.1)
    assert torch.equal(w, v)
    with pytest.raises(ValueError, match="max_batch"):
        growing.step(v, *batch(load, 101), 0.1)


def test_bad_sizes_are_refused() -> None:
    load = workload()
    network = Network(load, max_batch=2)
    x, y = batch(load, 3)
    with pytest.raises(ValueError, match="1 to 2 rows"):
        network.step(parameters(load), x, y, 0.1)
    with pytest.raises(ValueError, match="shape"):
        network.step(torch.zeros(3, dtype=torch.float64), x[:1], y[:1], 0.1)
    with pytest.raises(ValueError, match="max_batch"):
        Network(load, max_batch=0)


def test_no_rows_have_no_loss() -> None:
    load = workload()
    x, y = batch(load, 1)
    nothing = Network(load).loss(parameters(load), x[:0], y[:0])
    assert nothing == LossSum(loss=0.0, rows=0, hits=0, false_alarms=0, misses=0)
    assert math.isnan(nothing.mean)


@pytest.mark.gpu
@pytest.mark.parametrize("activation", ["sigmoid", "relu", "tanh"])
@pytest.mark.parametrize("loss", ["softmax", "sigmoid"])
def test_an_accelerator_computes_what_the_cpu_computes(activation: Activation, loss: LossName) -> None:
    if not torch.accelerator.is_available():
        pytest.skip("no torch accelerator on this machine")
    device = str(torch.accelerator.current_accelerator())
    load = workload(activation, loss, precision="float32")
    here, there = Network(load, max_batch=300), Network(load, device=device, max_batch=300)
    for rows in (1, 30, 300):
        x, y = batch(load, rows)
        w = parameters(load)
        moved = w.to(device)
        here.step(w, x, y, 0.5, 0.1)
        there.step(moved, x.to(device), y.to(device), 0.5, 0.1)
        torch.testing.assert_close(moved.cpu(), w, rtol=1e-3, atol=1e-3)
        one, other = here.loss(w, x, y), there.loss(moved, x.to(device), y.to(device))
        assert other.mean == pytest.approx(one.mean, rel=1e-3)
        assert other.rows == rows
