"""The built-in fully connected networks on one flat parameter vector, without autograd.

A step on a small network costs about as much in calls as in arithmetic: buffers are allocated once, views are
cached, and the update of a layer is written straight into the parameters.

Shapes: B rows of a batch, F features, I inputs and O outputs of a layer (F and the classes at the ends), P parameters.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from hetsgd.models.workload import Activation, Workload
from hetsgd.real.features import Batch
from hetsgd.real.loss_sum import LossSum
from hetsgd.real.sparse_batch import SparseBatch
from hetsgd.real.workspace import Layer, Layers, RowViews, Workspace, layer_views

_CACHED_VECTORS = 64
_SMALL_ROWS = 256
"""Factors of so few rows are kept whatever the network's size."""
_LOSS_ELEMENTS_CPU = 1 << 18
_LOSS_ELEMENTS_ACCELERATOR = 1 << 24

_ACTIVATE: dict[Activation, Callable[[Tensor], Tensor]] = {
    "sigmoid": Tensor.sigmoid_,
    "tanh": Tensor.tanh_,
    "relu": Tensor.relu_,
}


_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input
_threshold_backward = torch.ops.aten.threshold_backward.grad_input


def _through_sigmoid(delta_BI: Tensor, hidden_BI: Tensor) -> None:
    _sigmoid_backward(delta_BI, hidden_BI, grad_input=delta_BI)


def _through_tanh(delta_BI: Tensor, hidden_BI: Tensor) -> None:
    _tanh_backward(delta_BI, hidden_BI, grad_input=delta_BI)


def _through_relu(delta_BI: Tensor, hidden_BI: Tensor) -> None:
    _threshold_backward(delta_BI, hidden_BI, 0.0, grad_input=delta_BI)


_THROUGH: dict[Activation, Callable[[Tensor, Tensor], None]] = {
    "sigmoid": _through_sigmoid,
    "tanh": _through_tanh,
    "relu": _through_relu,
}


class _Write:
    """What `accumulate` does, layer by layer."""

    __slots__ = ("_alpha", "_beta", "_inputs_t", "_sparse", "_views")

    def __init__(self, workspace: Workspace, first: int, stop: int, alpha: float, beta: float) -> None:
        self._views = views = workspace.views(first, stop)
        self._sparse = None if workspace.sparse is None else workspace.sparse[first:stop]
        self._inputs_t = (views.x_FB, *views.outputs_t)
        self._alpha, self._beta = alpha, beta

    def change(self, k: int, layer: Layer) -> None:
        """Layer k = beta layer k + alpha (sum of the gradients of the rows)."""
        weights_IO, _, bias_O = layer
        views, alpha, beta = self._views, self._alpha, self._beta
        if k or self._sparse is None:
            weights_IO.addmm_(self._inputs_t[k], views.deltas[k], beta=beta, alpha=alpha)
        else:
            self._sparse.add_gradient(weights_IO, views.deltas[k], alpha, beta)
        if bias_O is not None:
            bias_O.addmv_(views.deltas_t[k], views.ones_B, beta=beta, alpha=alpha)


class Network:
    """Gradients, steps and losses of a workload's network; parameters are a flat vector w_P that the caller owns.

    `x` is (B, F) at the workload's precision, on the CPU a SparseBatch too; `y` is (B,) int64 class indices (softmax
    loss) or (B, O) labels 0/1 at the workload's precision (sigmoid loss); everything lies on `device`. B is at most
    `max_batch`, except for `loss`. Gradients are means over the rows. One object serves one thread. Buffers for
    `max_batch` rows are made at the first step and stay where they are; with `grow` they follow the largest batch
    seen so far instead.

    Raises ValueError when a batch is larger than `max_batch` or a vector has not P parameters.
    """

    fuses = True
    """Whether there is `accumulate_and_factors`."""

    def __init__(
        self, workload: Workload, *, device: str | torch.device = "cpu", max_batch: int = 1, grow: bool = False
    ) -> None:
        if max_batch < 1:
            raise ValueError(f"network: max_batch must be >= 1, got {max_batch}")
        self.workload = workload
        self.device = torch.device(device)
        self.dtype: torch.dtype = getattr(torch, workload.precision)
        self.max_batch = max_batch
        self.parameters = workload.parameters
        widths = sum(layer.inputs + layer.outputs for layer in workload.layers)
        self.factor_rows = max(_SMALL_ROWS, 2 * workload.parameters // widths)
        """Up to this many rows a step goes straight into the parameters as a low-rank update."""
        self._grow = grow
        self._activate = _ACTIVATE[workload.activation]
        self._through = _THROUGH[workload.activation]
        self._softmax = workload.loss == "softmax"
        self._layers: dict[int, tuple[Tensor, Layers]] = {}
        self._workspace: Workspace | None = None
        self._gradient: Tensor | None = None
        self._loss_buffers: tuple[Tensor, Tensor] | None = None
        budget = _LOSS_ELEMENTS_CPU if self.device.type == "cpu" else _LOSS_ELEMENTS_ACCELERATOR
        widest = max(workload.widths[1:] if workload.multiplies_sparse else workload.widths)
        self.loss_rows = max(64, budget // widest)
        """Rows of one piece of a loss computation."""

    # -- training -------------------------------------------------------------------------------------------------

    def gradient(self, w_P: Tensor, x_BF: Batch, y: Tensor, out_P: Tensor) -> None:
        """Write the mean gradient of the batch into `out_P`."""
        self._passes(self.layers(w_P), x_BF, y, self.layers(out_P), 1.0 / self._rows(x_BF), 0.0)

    def step(self, w_P: Tensor, x_BF: Batch, y: Tensor, rate: float, decay: float = 0.0) -> None:
        """One step in place: w = (1 - rate decay) w - rate gradient(w).

        The gradient is that of w as it was, unless others write w meanwhile: each layer is written right after
        the delta below it has been read from it. Up to `factor_rows` rows no gradient is ever stored.
        """
        rows = self._rows(x_BF)
        beta = 1.0 - rate * decay
        if rows > self.factor_rows:
            if self._gradient is None:
                self._gradient = self.vector()
            self.gradient(w_P, x_BF, y, self._gradient)
            subtract(w_P, self._gradient, rate, beta)
            return
        layers = self.layers(w_P)
        self._passes(layers, x_BF, y, layers, -rate / rows, beta)

    def factors(self, w_P: Tensor, y: Tensor, workspace: Workspace, rows: int) -> None:
        """Forward and backward pass of the first `rows` rows of `workspace.x`, without forming a gradient.

        Afterwards `accumulate` adds the gradient of any of these rows to a vector.
        """
        self._factors(w_P, y, workspace, rows, None)

    def accumulate(
        self, target_P: Tensor, workspace: Workspace, first: int, stop: int, alpha: float, beta: float
    ) -> None:
        """target = beta target + alpha (sum of the gradients of rows [first, stop) of a filled workspace)."""
        write = _Write(workspace, first, stop, alpha, beta)
        for k, layer in enumerate(self.layers(target_P)):
            write.change(k, layer)

    def accumulate_and_factors(
        self, w_P: Tensor, source: Workspace, first: int, stop: int, alpha: float, beta: float, y: Tensor,
        workspace: Workspace, rows: int,
    ) -> None:  # fmt: skip
        """`accumulate` on w from rows of `source`, then `factors` of w: the same bits, one pass over w less.

        Each layer is changed right before the forward pass reads it.
        """
        self._factors(w_P, y, workspace, rows, _Write(source, first, stop, alpha, beta))

    def _factors(self, w_P: Tensor, y: Tensor, workspace: Workspace, rows: int, before: _Write | None) -> None:
        views = workspace.views(0, rows)
        layers = self.layers(w_P)
        x_BF = views.x_BF if workspace.sparse is None else workspace.sparse
        self._forward(layers, x_BF, views, before)
        self._last_delta(y, views)
        self._backward(layers, x_BF, views, None, 0.0, 1.0)

    # -- vectors and buffers --------------------------------------------------------------------------------------

    def vector(self) -> Tensor:
        """A new vector (P,) of zeros on the device."""
        return torch.zeros(self.parameters, dtype=self.dtype, device=self.device)

    def workspace(self, rows: int) -> Workspace:
        """A new workspace for up to `rows` rows, with a buffer for the rows themselves unless they stay sparse."""
        own_rows = not self.workload.multiplies_sparse
        return Workspace(self.workload, rows, self.dtype, self.device, own_rows=own_rows)

    def layers(self, w_P: Tensor) -> Layers:
        """Views of a flat vector: per layer its weights (I, O), their transpose and its bias (O,) or None."""
        known = self._layers.get(id(w_P))
        if known is not None and known[0] is w_P:
            return known[1]
        if w_P.shape != (self.parameters,):
            raise ValueError(f"network: parameters must have shape ({self.parameters},), got {tuple(w_P.shape)}")
        if len(self._layers) >= _CACHED_VECTORS:
            del self._layers[next(iter(self._layers))]
        layers = self._cut(w_P)
        self._layers[id(w_P)] = (w_P, layers)
        return layers

    def _cut(self, w_P: Tensor) -> Layers:
        return layer_views(self.workload, w_P)

    def _views(self, rows: int) -> RowViews:
        if self._workspace is None or self._workspace.rows < rows <= self.max_batch:
            size = min(self.max_batch, 1 << (rows - 1).bit_length()) if self._grow else self.max_batch
            self._workspace = Workspace(self.workload, size, self.dtype, self.device, own_rows=False)
        return self._workspace.views(0, rows)

    # -- passes ---------------------------------------------------------------------------------------------------

    def _rows(self, x_BF: Batch) -> int:
        return x_BF.shape[0]

    def _passes(self, layers: Layers, x_BF: Batch, y: Tensor, target: Layers, alpha: float, beta: float) -> None:
        """Forward and backward; target = beta target + alpha (sum of the gradients of the rows)."""
        views = self._views(x_BF.shape[0])
        self._forward(layers, x_BF, views)
        self._last_delta(y, views)
        self._backward(layers, x_BF, views, target, alpha, beta)

    def _forward(self, layers: Layers, x_BF: Batch, views: RowViews, before: _Write | None = None) -> None:
        activate, last = self._activate, len(layers) - 1
        input_BI = x_BF
        for k, (weights_IO, weights_OI, bias_O) in enumerate(layers):
            if before is not None:
                before.change(k, (weights_IO, weights_OI, bias_O))
            output_BO = views.outputs[k]
            if isinstance(input_BI, SparseBatch):
                input_BI.times(weights_IO, bias_O, output_BO)
            elif bias_O is None:
                torch.mm(input_BI, weights_IO, out=output_BO)
            else:
                torch.addmm(bias_O, input_BI, weights_IO, out=output_BO)
            if k < last:
                activate(output_BO)
            input_BI = output_BO

    def _last_delta(self, y: Tensor, views: RowViews) -> None:
        self._by_logits(views.outputs[-1], y, views.minus_ones_B1, views.deltas[-1])

    def _by_logits(self, logits_BO: Tensor, y: Tensor, minus_ones_B1: Tensor, out_BO: Tensor) -> None:
        """Derivative of each row's loss by its logits: p - target, for both losses; any dimensions before the last."""
        if self._softmax:
            torch.softmax(logits_BO, -1, out=out_BO)
            out_BO.scatter_add_(-1, y.unsqueeze(-1), minus_ones_B1)
        else:
            torch.sigmoid(logits_BO, out=out_BO)
            out_BO.sub_(y)

    def _backward(
        self, layers: Layers, x_BF: Batch, views: RowViews, target: Layers | None, alpha: float, beta: float
    ) -> None:
        """Deltas of all layers; target = beta target + alpha (sum of the gradients of the rows), layer by layer."""
        deltas, through = views.deltas, self._through
        for k in range(len(layers) - 1, -1, -1):
            delta_BO = deltas[k]
            if k:
                torch.mm(delta_BO, layers[k][1], out=deltas[k - 1])
                through(deltas[k - 1], views.outputs[k - 1])
            if target is None:
                continue
            weights_IO, _, bias_O = target[k]
            if k:
                weights_IO.addmm_(views.outputs_t[k - 1], delta_BO, beta=beta, alpha=alpha)
            elif isinstance(x_BF, SparseBatch):
                x_BF.add_gradient(weights_IO, delta_BO, alpha, beta)
            else:
                weights_IO.addmm_(x_BF.t(), delta_BO, beta=beta, alpha=alpha)
            if bias_O is not None:
                bias_O.addmv_(views.deltas_t[k], views.ones_B, beta=beta, alpha=alpha)

    # -- losses ---------------------------------------------------------------------------------------------------

    def loss(self, w_P: Tensor, x_BF: Batch, y: Tensor) -> LossSum:
        """Loss and score counts of any number of rows, computed in pieces without copying them.

        Never raises or warns for a model that is not finite: its loss is inf or nan.
        """
        layers, rows = self.layers(w_P), x_BF.shape[0]
        losses, counts = [], []
        for low in range(0, rows, self.loss_rows):
            high = min(low + self.loss_rows, rows)
            loss, *count = self._loss_of(layers, x_BF[low:high], y[low:high])
            losses.append(loss)
            counts.append(torch.stack(count))
        if not rows:
            return LossSum()
        total = torch.stack(losses).cpu().double().sum().item()
        hits, predicted, true = torch.stack(counts).sum(0).tolist()
        return LossSum(loss=total, rows=rows, hits=hits, false_alarms=predicted - hits, misses=true - hits)

    def _loss_of(self, layers: Layers, x_BF: Batch, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Loss of some rows, labels predicted and true, labels predicted, true labels."""
        logits_BO = self._logits(layers, x_BF)
        if self._softmax:
            loss_B = functional.cross_entropy(logits_BO, y, reduction="none")
            rows = torch.tensor(y.shape[0], device=self.device)
            return loss_B.sum(), (logits_BO.argmax(1) == y).sum(), rows, rows
        loss_BO = functional.binary_cross_entropy_with_logits(logits_BO, y, reduction="none")
        predicted_BO, true_BO = logits_BO > 0.0, y > 0.5
        return loss_BO.sum(), (predicted_BO & true_BO).sum(), predicted_BO.sum(), true_BO.sum()

    def _logits(self, layers: Layers, x_BF: Batch) -> Tensor:
        """The forward pass alone, through two buffers in turn."""
        if self._loss_buffers is None:
            size = self.loss_rows * max(self.workload.widths[1:])
            self._loss_buffers = (
                torch.empty(size, dtype=self.dtype, device=self.device),
                torch.empty(size, dtype=self.dtype, device=self.device),
            )
        rows, last, value_BI = x_BF.shape[0], len(layers) - 1, x_BF
        for k, (weights_IO, _, bias_O) in enumerate(layers):
            width = weights_IO.shape[1]
            output_BO = self._loss_buffers[k % 2][: rows * width].view(rows, width)
            if isinstance(value_BI, SparseBatch):
                value_BI.times(weights_IO, bias_O, output_BO)
            elif bias_O is None:
                torch.mm(value_BI, weights_IO, out=output_BO)
            else:
                torch.addmm(bias_O, value_BI, weights_IO, out=output_BO)
            if k < last:
                self._activate(output_BO)
            value_BI = output_BO
        return output_BO


def subtract(w_P: Tensor, gradient_P: Tensor, rate: float, beta: float = 1.0) -> None:
    """w = beta w - rate gradient, in place."""
    if beta != 1.0:
        w_P.mul_(beta)
    w_P.add_(gradient_P, alpha=-rate)
