"""A saved model is usable without hetsgd, and gives the same outputs as the flat parameters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hetsgd.models.initial import initial_parameters
from hetsgd.models.workload import Workload
from hetsgd.real.state_dict import save_state_dict, state_dict


def workload(*, bias: bool) -> Workload:
    return Workload(name="w", dataset="d", rows=8, test_rows=0, features=3, outputs=2, hidden=(4,), bias=bias)


def test_the_saved_model_loads_into_plain_linear_layers_and_computes_the_same(tmp_path: Path) -> None:
    spec = workload(bias=True)
    flat = initial_parameters(spec, seed=1) + 0.5
    save_state_dict(tmp_path / "model.pt", spec, flat)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)])

    net = Net()
    net.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    first, second = spec.layers
    w1 = flat[first.weight_offset : first.weight_offset + 12].reshape(3, 4)
    w2 = flat[second.weight_offset : second.weight_offset + 8].reshape(4, 2)
    expected = (x @ w1 + flat[12:16]) @ w2 + flat[second.bias_offset : second.bias_offset + 2]
    with torch.no_grad():
        found = net.layers[1](net.layers[0](torch.from_numpy(x))).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_without_bias_there_are_weights_only() -> None:
    spec = workload(bias=False)
    assert list(state_dict(spec, initial_parameters(spec, seed=0))) == ["layers.0.weight", "layers.1.weight"]


def test_a_vector_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(26,\), got \(3,\)"):
        state_dict(workload(bias=True), np.zeros(3, dtype=np.float32))
