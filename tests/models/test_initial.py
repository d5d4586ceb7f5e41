"""The initial model: each law's scale, the same under one seed, and what centring is for."""

import numpy as np
import pytest

from hetsgd.models.initial import initial_parameters
from hetsgd.models.workload import Initial, Workload


def workload(initial: Initial, scale: float, *, bias: bool = False) -> Workload:
    return Workload(
        name="w", dataset="d", rows=1, test_rows=0, features=54, outputs=2, hidden=(256,) * 4, bias=bias,
        precision="float64", initial=initial, initial_scale=scale,
    )  # fmt: skip


@pytest.mark.parametrize(("initial", "factor"), [("normal", 1.0), ("scaled", np.sqrt(2 / 512))])
def test_weights_have_the_deviation_that_is_asked_for(initial: Initial, factor: float) -> None:
    net = workload(initial, 3.0)
    layer = net.layers[2]
    weights = initial_parameters(net, 0)[layer.weight_offset : layer.weight_offset + 256 * 256]
    assert weights.std() == pytest.approx(3.0 * factor, rel=0.02)
    assert abs(weights.mean()) < 0.02 * 3.0 * factor


def test_the_seed_and_nothing_else_decides() -> None:
    net = workload("scaled", 1.0, bias=True)
    assert np.array_equal(initial_parameters(net, 1), initial_parameters(net, 1))
    assert not np.array_equal(initial_parameters(net, 1), initial_parameters(net, 2))
    for layer in net.layers:
        biases = initial_parameters(net, 1)[layer.bias_offset : layer.bias_offset + layer.outputs]
        assert not biases.any()


def test_centred_weights_into_each_later_unit_sum_to_zero_and_the_first_layer_is_that_of_scaled() -> None:
    centred, scaled = (initial_parameters(workload(initial, 4.0), 0) for initial in ("centred", "scaled"))
    net = workload("centred", 4.0)
    first = net.layers[1].weight_offset
    assert np.array_equal(centred[:first], scaled[:first])
    for layer in net.layers[1:]:
        matrix = centred[layer.weight_offset :][: layer.inputs * layer.outputs].reshape(layer.inputs, layer.outputs)
        assert matrix.sum(axis=0) == pytest.approx(0.0, abs=1e-10)


def test_a_centred_sigmoid_net_starts_near_the_loss_of_a_coin_and_a_scaled_one_far_above() -> None:
    x = np.random.default_rng(0).normal(size=(500, 54))

    def loss(initial: Initial) -> float:
        net = workload(initial, 4.0)
        flat, hidden = initial_parameters(net, 0), x
        for number, layer in enumerate(net.layers):
            matrix = flat[layer.weight_offset :][: layer.inputs * layer.outputs].reshape(layer.inputs, layer.outputs)
            hidden = hidden @ matrix
            if number < len(net.layers) - 1:
                hidden = 1.0 / (1.0 + np.exp(-hidden))
        margin = hidden[:, 0] - hidden[:, 1]
        return float((np.logaddexp(0.0, margin) + np.logaddexp(0.0, -margin)).mean() / 2.0)  # classes evenly mixed

    assert np.log(2) < loss("centred") < 1.2
    assert loss("scaled") > 1.2
