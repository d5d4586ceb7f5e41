"""Buffers of a forward and backward pass, and the cached views that make small steps cheap.

Shapes: B rows, F features, I inputs and O outputs of a layer, P parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hetsgd.models.workload import Workload
from hetsgd.real.sparse_batch import SparseBatch

Layer = tuple[Tensor, Tensor, Tensor | None]
"""Weights (I, O), their transpose (O, I), bias (O,) or None; views of a flat vector."""

Layers = tuple[Layer, ...]
"""All layers, as views of one flat vector."""

_CACHED_RANGES = 1024


def layer_views(workload: Workload, w_P: Tensor) -> Layers:
    """Views of a flat vector (P,), layer by layer."""
    layers = []
    for layer in workload.layers:
        size = layer.inputs * layer.outputs
        weights_IO = w_P[layer.weight_offset : layer.weight_offset + size].view(layer.inputs, layer.outputs)
        bias_O = w_P[layer.bias_offset : layer.bias_offset + layer.outputs] if layer.bias_offset >= 0 else None
        layers.append((weights_IO, weights_IO.t(), bias_O))
    return tuple(layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowViews:
    """Views of some rows of a workspace.

    `outputs[k]` (B, O) are the outputs of layer k after its activation (the last: the logits), `deltas[k]` the
    derivatives of each row's loss by what goes into that activation; `_t`: transposed.
    """

    x_BF: Tensor
    x_FB: Tensor
    outputs: tuple[Tensor, ...]
    outputs_t: tuple[Tensor, ...]
    deltas: tuple[Tensor, ...]
    deltas_t: tuple[Tensor, ...]
    ones_B: Tensor
    minus_ones_B1: Tensor


class Workspace:
    """Activations and deltas of up to `rows` rows; with `own_rows` also a buffer for the rows themselves.

    `sparse`: those rows where they are kept without their zeros.
    """

    def __init__(
        self, workload: Workload, rows: int, dtype: torch.dtype, device: torch.device, *, own_rows: bool
    ) -> None:
        def empty(width: int) -> Tensor:
            return torch.empty((rows, width), dtype=dtype, device=device)

        self.rows = rows
        self.sparse: SparseBatch | None = None
        self.x_BF = empty(workload.features if own_rows else 0)
        self._outputs = [empty(width) for width in workload.widths[1:]]
        self._deltas = [empty(width) for width in workload.widths[1:]]
        self._ones_B = torch.ones(rows, dtype=dtype, device=device)
        self._minus_ones_B1 = -torch.ones((rows, 1), dtype=dtype, device=device)
        self._views: dict[tuple[int, int], RowViews] = {}

    def views(self, first: int, stop: int) -> RowViews:
        """Views of rows [first, stop); ValueError when they do not fit."""
        known = self._views.get((first, stop))
        if known is not None:
            return known
        if not 0 <= first < stop <= self.rows:
            raise ValueError(f"network: a batch must have 1 to {self.rows} rows (max_batch), got {stop - first}")
        outputs = tuple(buffer[first:stop] for buffer in self._outputs)
        deltas = tuple(buffer[first:stop] for buffer in self._deltas)
        x_BF = self.x_BF[first:stop]
        views = RowViews(
            x_BF=x_BF,
            x_FB=x_BF.t(),
            outputs=outputs,
            outputs_t=tuple(view.t() for view in outputs),
            deltas=deltas,
            deltas_t=tuple(view.t() for view in deltas),
            ones_B=self._ones_B[first:stop],
            minus_ones_B1=self._minus_ones_B1[first:stop],
        )
        if len(self._views) >= _CACHED_RANGES:
            self._views.clear()
        self._views[first, stop] = views
        return views
