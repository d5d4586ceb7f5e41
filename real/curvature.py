"""Gradient and curvature statistics of a network at one model, by plain gradients and their finite differences."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.surrogates.one_step import GradientStatistics
from hetsgd.models.workload import Workload
from hetsgd.real.module_network import network_of
from hetsgd.real.parts import parts_of

_POWER_STEPS: Final = 12
_ROW_STEPS: Final = 6
_NEAR: Final[dict[str, float]] = {"float32": 1e-2, "float64": 1e-4}
"""Length of a finite difference in parameters: well above rounding, well below what bends a network."""


class CurvatureProbe:
    """Measures on `rows` training rows, and on `single` of them one by one; `generator` draws them once."""

    def __init__(
        self,
        workload: Workload,
        dataset: Dataset,
        generator: np.random.Generator,
        *,
        rows: int = 2048,
        single: int = 16,
    ) -> None:
        self._part = parts_of(dataset, workload).train
        rows = min(rows, self._part.rows)
        self._network = network_of(workload, max_batch=rows)
        self._rows = torch.from_numpy(generator.integers(0, self._part.rows, rows))
        self._single = [self._rows[k : k + 1] for k in range(min(single, rows))]
        self._generator = generator
        self._near = _NEAR[workload.precision]

    def measure(self, parameters: NDArray[Any], loss: float) -> GradientStatistics:
        """The statistics at `parameters` (P,), whose training loss is `loss`."""
        w_P = torch.from_numpy(parameters.copy())
        mean_P = self._gradient(w_P, self._rows)
        squared = float(mean_P @ mean_P)
        rows, bends, curvatures = [], [], []
        for row in self._single:
            g_P = self._gradient(w_P, row)
            rows.append(float(g_P @ g_P))
            bends.append(float(g_P @ self._bent(w_P, g_P, self._rows)))
            curvatures.append(self._largest(w_P, row, _ROW_STEPS))
        bend = float(mean_P @ self._bent(w_P, mean_P, self._rows))
        return GradientStatistics(
            loss=loss,
            squared_norm=squared,
            bend=bend,
            noise=max(float(np.mean(rows)) - squared, 1e-12),
            noise_bend=max(float(np.mean(bends)) - bend, 0.0),
            curvature=self._largest(w_P, self._rows, _POWER_STEPS),
            row_curvature=float(np.mean(curvatures)),
        )

    def loss(self, parameters: NDArray[Any]) -> float:
        """The mean training loss over the probe's rows at `parameters` (P,)."""
        return self._network.loss(torch.from_numpy(parameters.copy()), *self._part.take(self._rows)).mean

    def _gradient(self, w_P: Tensor, rows: Tensor) -> Tensor:
        out_P = torch.empty_like(w_P)
        self._network.gradient(w_P, *self._part.take(rows), out_P)
        return out_P

    def _bent(self, w_P: Tensor, along_P: Tensor, rows: Tensor) -> Tensor:
        """The Hessian of the rows' mean loss times a vector, by central differences."""
        length = float(along_P.norm())
        if not length > 0.0:
            return torch.zeros_like(w_P)
        step_P = along_P * (self._near / length)
        ahead_P, behind_P = self._gradient(w_P + step_P, rows), self._gradient(w_P - step_P, rows)
        return (ahead_P - behind_P) * (length / (2.0 * self._near))

    def _largest(self, w_P: Tensor, rows: Tensor, steps: int) -> float:
        """The eigenvalue of largest size, by power iteration."""
        v_P = torch.from_numpy(self._generator.standard_normal(w_P.shape[0])).to(w_P.dtype)
        found = 0.0
        for _ in range(steps):
            v_P = v_P / v_P.norm()
            bent_P = self._bent(w_P, v_P, rows)
            found = float(v_P @ bent_P)
            if not float(bent_P.norm()) > 0.0:
                break
            v_P = bent_P
        return abs(found)
