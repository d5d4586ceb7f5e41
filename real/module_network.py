"""Any module on one flat parameter vector: gradients by autograd, behind the same calls as the built-in networks.

Each gradient is of a copy of the parameters made when it begins, so that others may write them meanwhile. Shapes: B
rows of a batch, F features of a row as it is stored, P parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor
from torch.func import functional_call

from hetsgd.models.module_workload import ModuleWorkload
from hetsgd.models.workload import Workload
from hetsgd.real.features import Batch
from hetsgd.real.loss_sum import LossSum
from hetsgd.real.module_parts import moved, unpack
from hetsgd.real.network import Network, subtract

_LOSS_ELEMENTS: Final = 1 << 22


class ModuleNetwork(Network):
    """Gradients, steps and losses of a workload's module; see `Network`.

    `max_batch` bounds nothing here, since autograd makes its own buffers. A gradient is never kept as factors.
    """

    def __init__(
        self, workload: ModuleWorkload, *, device: str | torch.device = "cpu", max_batch: int = 1, grow: bool = False
    ) -> None:
        # The buffers of the fused network are not needed, and `grow` is about them.
        self.workload = workload
        self.device = torch.device(device)
        self.dtype = getattr(torch, workload.precision)
        self.max_batch = max_batch
        self.parameters = workload.parameters
        self.factor_rows = 0
        self._gradient = None
        self.loss_rows = max(64, _LOSS_ELEMENTS // sum(workload.widths))
        self._parts = unpack(workload)
        self._loss_of_outputs = moved(self._parts.loss, self.device, self.dtype)
        # The children work in inference mode, whose tensors autograd refuses: these are made outside of it.
        with torch.inference_mode(False):
            self._copy_P = torch.zeros(self.parameters, dtype=self.dtype, device=self.device)
            views = self._parts.views(self._copy_P)
            self._leaves = {name: view.detach().requires_grad_() for name, view in views.items()}

    def gradient(self, w_P: Tensor, x_BF: Batch, y: Tensor, out_P: Tensor) -> None:
        """Write the mean gradient of the batch into `out_P`."""
        gradients = self._gradients(w_P, x_BF, y)
        torch.cat(list(gradients), out=out_P)

    def step(self, w_P: Tensor, x_BF: Batch, y: Tensor, rate: float, decay: float = 0.0) -> None:
        """One step in place: w = (1 - rate decay) w - rate gradient(w as it was)."""
        if self._gradient is None:
            self._gradient = self.vector()
        self.gradient(w_P, x_BF, y, self._gradient)
        subtract(w_P, self._gradient, rate, 1.0 - rate * decay)

    def _gradients(self, w_P: Tensor, x_BF: Batch, y: Tensor) -> Sequence[Tensor]:
        """The gradient of each parameter, flat, in the order of the vector."""
        if w_P.shape != (self.parameters,):
            raise ValueError(f"network: parameters must have shape ({self.parameters},), got {tuple(w_P.shape)}")
        with torch.inference_mode(False):
            with torch.no_grad():
                self._copy_P.copy_(w_P)
                x, y = _dense(x_BF).clone(), y.clone()
            with torch.enable_grad():
                loss = self._loss_of_outputs(self._outputs(self._leaves, x, training=True), y)
                found = torch.autograd.grad(loss, list(self._leaves.values()), allow_unused=True)
            return [
                torch.zeros_like(leaf).view(-1) if gradient is None else gradient.reshape(-1)
                for gradient, leaf in zip(found, self._leaves.values(), strict=True)
            ]

    def _outputs(self, parameters: dict[str, Tensor], x_BF: Tensor, *, training: bool) -> Tensor:
        module = self._parts.module
        if module.training != training:
            module.train(training)
        outputs: Tensor = functional_call(module, parameters, (x_BF.view(x_BF.shape[0], *self._parts.row_shape),))
        return outputs

    def loss(self, w_P: Tensor, x_BF: Batch, y: Tensor) -> LossSum:
        """Loss and score counts of any number of rows, computed in pieces; inf or nan where the model is not finite."""
        parameters, total, x = self._parts.views(w_P), LossSum(), _dense(x_BF)
        with torch.no_grad():
            for low in range(0, x.shape[0], self.loss_rows):
                part = slice(low, min(low + self.loss_rows, x.shape[0]))
                outputs_BO = self._outputs(parameters, x[part], training=False)
                total += self._sum(outputs_BO, y[part])
        return total

    def _sum(self, outputs_BO: Tensor, y: Tensor) -> LossSum:
        rows = y.shape[0]
        loss = float(self._loss_of_outputs(outputs_BO, y).double()) * rows
        if self.workload.loss == "softmax":
            hits = int((outputs_BO.argmax(1) == y).sum())
            return LossSum(loss=loss, rows=rows, hits=hits, false_alarms=rows - hits, misses=rows - hits)
        predicted_BO, true_BO = outputs_BO > 0.0, y > 0.5
        hits, named = int((predicted_BO & true_BO).sum()), int(predicted_BO.sum())
        return LossSum(loss=loss, rows=rows, hits=hits, false_alarms=named - hits, misses=int(true_BO.sum()) - hits)


def network_of(
    workload: Workload, *, device: str | torch.device = "cpu", max_batch: int = 1, grow: bool = False
) -> Network:
    """What computes the network of a workload: the fused one, or the module by autograd."""
    kind = ModuleNetwork if isinstance(workload, ModuleWorkload) else Network
    return kind(workload, device=device, max_batch=max_batch, grow=grow)  # type: ignore[arg-type]  # the kind fits it


def _dense(x_BF: Batch) -> Tensor:
    if not isinstance(x_BF, Tensor):
        raise TypeError("network: a module takes dense features")
    return x_BF
