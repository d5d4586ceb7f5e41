"""The networks of R replicas side by side, advanced together by batched products.

A small step costs about as much in calls as in arithmetic, and here one call serves all replicas.

Shapes: R replicas, B rows of a batch of each, F features, I inputs and O outputs of a layer, P parameters of one
replica, N = R P. A vector (N,) holds layer by layer the weights (R, I, O) of all replicas, then their biases (R, O):
each is one block of memory, as a batched product wants it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hetsgd.models.workload import Workload
from hetsgd.real.features import Batch
from hetsgd.real.network import Network
from hetsgd.real.sparse_batch import SparseBatch
from hetsgd.real.workspace import Layers, Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class _Buffers:
    """Activations and deltas of B rows of each replica; `ones_R1B` and `minus_ones_RB1` as in `RowViews`."""

    x_RBF: Tensor
    outputs: tuple[Tensor, ...]
    deltas: tuple[Tensor, ...]
    ones_R1B: Tensor
    minus_ones_RB1: Tensor


class EnsembleWorkspace(Workspace):
    """Buffers of up to `rows` rows of each replica; `filled` of them lie in it, and products find them in one block."""

    def __init__(self, workload: Workload, replicas: int, rows: int, dtype: torch.dtype, *, own_rows: bool) -> None:
        def empty(width: int) -> Tensor:
            return torch.empty(replicas * rows * width, dtype=dtype)

        self.rows = rows
        self.filled = 0
        self.sparse = None
        self._replicas = replicas
        self._widths = workload.widths
        self._x = empty(workload.features if own_rows else 0)
        self._kept_outputs = [empty(width) for width in workload.widths[1:]]
        self._kept_deltas = [empty(width) for width in workload.widths[1:]]
        self._ones = torch.ones(replicas * rows, dtype=dtype)
        self._buffers: dict[int, _Buffers] = {}

    def buffers(self, rows: int) -> _Buffers:
        """The buffers cut for `rows` rows of each replica; ValueError when they do not fit."""
        known = self._buffers.get(rows)
        if known is not None:
            return known
        if not 1 <= rows <= self.rows:
            raise ValueError(f"network: a batch must have 1 to {self.rows} rows (max_batch), got {rows}")
        replicas = self._replicas

        def cut(memory: Tensor, width: int) -> Tensor:
            return memory[: replicas * rows * width].view(replicas, rows, width)

        ones = self._ones[: replicas * rows]
        buffers = _Buffers(
            x_RBF=cut(self._x, self._widths[0] if self._x.shape[0] else 0),
            outputs=tuple(cut(m, width) for m, width in zip(self._kept_outputs, self._widths[1:], strict=True)),
            deltas=tuple(cut(m, width) for m, width in zip(self._kept_deltas, self._widths[1:], strict=True)),
            ones_R1B=ones.view(replicas, 1, rows),
            minus_ones_RB1=-ones.view(replicas, rows, 1),
        )
        self._buffers[rows] = buffers
        return buffers


class EnsembleNetwork(Network):
    """`Network` for R replicas: vectors are (N,), features (R, B, F), targets (R, B) or (R, B, O).

    `scales` (R,): each replica's gradients are handed out multiplied by this, so that one learning rate serves
    replicas that differ in it. Losses are not offered: those of a replica are computed on `replica(w_N, r)`.
    """

    fuses = False

    def __init__(self, workload: Workload, *, replicas: int, scales: Sequence[float], max_batch: int) -> None:
        super().__init__(workload, max_batch=max_batch, grow=True)
        self.replicas = replicas
        self.parameters = replicas * workload.parameters
        self._scales_R11: Tensor | None = None
        if any(scale != 1.0 for scale in scales):
            self._scales_R11 = torch.tensor(scales, dtype=self.dtype).view(-1, 1, 1)
        self._own: EnsembleWorkspace | None = None

    # -- training -------------------------------------------------------------------------------------------------

    def factors(self, w_P: Tensor, y: Tensor, workspace: Workspace, rows: int) -> None:
        """Forward and backward pass of the first `rows` rows of each replica in the workspace."""
        own = _ensemble(workspace)
        own.filled = rows
        buffers, layers = own.buffers(rows), self.layers(w_P)
        self._pass(layers, buffers.x_RBF, y, buffers)
        self._update(layers, buffers.x_RBF, buffers, None, 0.0, 1.0)

    def accumulate(
        self, target_P: Tensor, workspace: Workspace, first: int, stop: int, alpha: float, beta: float
    ) -> None:
        """target = beta target + alpha (sum of the gradients of rows [first, stop) of each replica)."""
        own = _ensemble(workspace)
        buffers = own.buffers(own.filled)
        inputs = (buffers.x_RBF, *buffers.outputs)
        ones_R1B = buffers.ones_R1B[:, :, first:stop]
        for k, (weights_RIO, _, bias_R1O) in enumerate(self.layers(target_P)):
            delta_RBO = buffers.deltas[k][:, first:stop]
            weights_RIO.baddbmm_(inputs[k][:, first:stop].transpose(1, 2), delta_RBO, beta=beta, alpha=alpha)
            if bias_R1O is not None:
                bias_R1O.baddbmm_(ones_R1B, delta_RBO, beta=beta, alpha=alpha)

    # -- vectors and buffers --------------------------------------------------------------------------------------

    def workspace(self, rows: int) -> EnsembleWorkspace:
        """A new workspace for up to `rows` rows of each replica, with a buffer for the rows themselves."""
        return EnsembleWorkspace(self.workload, self.replicas, rows, self.dtype, own_rows=True)

    def _cut(self, w_P: Tensor) -> Layers:
        """Per layer of a vector (N,) its weights (R, I, O), their transpose and its biases (R, 1, O) or None."""
        layers, replicas = [], self.replicas
        for layer in self.workload.layers:
            weights_N = w_P[replicas * layer.weight_offset :][: replicas * layer.inputs * layer.outputs]
            weights_RIO = weights_N.view(replicas, layer.inputs, layer.outputs)
            bias_R1O = None
            if layer.bias_offset >= 0:
                bias_N = w_P[replicas * layer.bias_offset :][: replicas * layer.outputs]
                bias_R1O = bias_N.view(replicas, 1, layer.outputs)
            layers.append((weights_RIO, weights_RIO.transpose(1, 2), bias_R1O))
        return tuple(layers)

    def replica(self, w_N: Tensor, index: int, out_P: Tensor) -> None:
        """Copy the parameters of one replica out, laid out as those of a single network."""
        for layer, (weights_RIO, _, bias_R1O) in zip(self.workload.layers, self.layers(w_N), strict=True):
            size = layer.inputs * layer.outputs
            out_P[layer.weight_offset : layer.weight_offset + size] = weights_RIO[index].reshape(-1)
            if bias_R1O is not None:
                out_P[layer.bias_offset : layer.bias_offset + layer.outputs] = bias_R1O[index, 0]

    def put_replica(self, w_N: Tensor, index: int, w_P: Tensor) -> None:
        """Set the parameters of one replica."""
        for layer, (weights_RIO, _, bias_R1O) in zip(self.workload.layers, self.layers(w_N), strict=True):
            size = layer.inputs * layer.outputs
            flat = w_P[layer.weight_offset : layer.weight_offset + size]
            weights_RIO[index] = flat.view(layer.inputs, layer.outputs)
            if bias_R1O is not None:
                bias_R1O[index, 0] = w_P[layer.bias_offset : layer.bias_offset + layer.outputs]

    def _room(self, rows: int) -> _Buffers:
        if self._own is None or self._own.rows < rows <= self.max_batch:
            size = min(self.max_batch, 1 << (rows - 1).bit_length())
            self._own = EnsembleWorkspace(self.workload, self.replicas, size, self.dtype, own_rows=False)
        return self._own.buffers(rows)

    # -- passes ---------------------------------------------------------------------------------------------------

    def _rows(self, x_BF: Batch) -> int:
        return x_BF.shape[1]

    def _passes(self, layers: Layers, x_BF: Batch, y: Tensor, target: Layers, alpha: float, beta: float) -> None:
        buffers, x_RBF = self._room(x_BF.shape[1]), _dense(x_BF)
        self._pass(layers, x_RBF, y, buffers)
        self._update(layers, x_RBF, buffers, target, alpha, beta)

    def _pass(self, layers: Layers, x_RBF: Tensor, y: Tensor, buffers: _Buffers) -> None:
        """Forward, and the scaled derivative of each row's loss by its logits."""
        activate, last = self._activate, len(layers) - 1
        input_RBI = x_RBF
        for k, (weights_RIO, _, bias_R1O) in enumerate(layers):
            output_RBO = buffers.outputs[k]
            if bias_R1O is None:
                torch.bmm(input_RBI, weights_RIO, out=output_RBO)
            else:
                torch.baddbmm(bias_R1O, input_RBI, weights_RIO, out=output_RBO)
            if k < last:
                activate(output_RBO)
            input_RBI = output_RBO
        delta_RBO = buffers.deltas[-1]
        self._by_logits(buffers.outputs[-1], y, buffers.minus_ones_RB1, delta_RBO)
        if self._scales_R11 is not None:
            delta_RBO.mul_(self._scales_R11)

    def _update(
        self, layers: Layers, x_RBF: Tensor, buffers: _Buffers, target: Layers | None, alpha: float, beta: float
    ) -> None:
        """Deltas of all layers; target = beta target + alpha (sums of the gradients of the rows), layer by layer."""
        deltas, through = buffers.deltas, self._through
        for k in range(len(layers) - 1, -1, -1):
            delta_RBO = deltas[k]
            if k:
                torch.bmm(delta_RBO, layers[k][1], out=deltas[k - 1])
                through(deltas[k - 1], buffers.outputs[k - 1])
            if target is None:
                continue
            weights_RIO, _, bias_R1O = target[k]
            input_RBI = buffers.outputs[k - 1] if k else x_RBF
            weights_RIO.baddbmm_(input_RBI.transpose(1, 2), delta_RBO, beta=beta, alpha=alpha)
            if bias_R1O is not None:
                bias_R1O.baddbmm_(buffers.ones_R1B, delta_RBO, beta=beta, alpha=alpha)


def _dense(x_RBF: Batch) -> Tensor:
    if isinstance(x_RBF, SparseBatch):
        raise TypeError("network: replicas are advanced on dense rows, got a sparse batch")
    return x_RBF


def _ensemble(workspace: Workspace) -> EnsembleWorkspace:
    if not isinstance(workspace, EnsembleWorkspace):
        raise TypeError(f"network: a workspace of replicas is needed, got {type(workspace).__name__}")
    return workspace
