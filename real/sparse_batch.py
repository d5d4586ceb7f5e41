"""A batch of which few features are not zero, multiplied without its zeros.

Shapes: B rows of a batch, F features, N values that are not zero, U features that are not zero in some row, O outputs
of the first layer.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor

_BLOCK: Final = 1024
"""Features whose gradient is formed at a time: few enough to stay in a cache."""


class SparseBatch:
    """The values that are not zero, row by row: `columns` (N,) int32, `values` (N,), `starts` (B + 1,) int32 from 0.

    Columns rise within a row, none twice. It has the `shape` of the dense batch (B, F), and a range of its rows is
    taken as of a dense one; it lies in host memory.
    """

    __slots__ = ("columns", "shape", "starts", "values")

    def __init__(self, columns: Tensor, values: Tensor, starts: Tensor, features: int) -> None:
        self.columns = columns
        self.values = values
        self.starts = starts
        self.shape = (starts.shape[0] - 1, features)

    def __getitem__(self, rows: slice) -> SparseBatch:
        low, high, _ = rows.indices(self.shape[0])
        first, last = int(self.starts[low]), int(self.starts[high])
        starts = self.starts[low : high + 1] - first
        return SparseBatch(self.columns[first:last], self.values[first:last], starts, self.shape[1])

    def times(self, weights_FO: Tensor, bias_O: Tensor | None, out_BO: Tensor) -> None:
        """out = batch x weights + bias: each row of the product is a weighted sum of rows of the weights."""
        sums_BO = torch.embedding_bag(
            weights_FO, self.columns, self.starts, mode=0, per_sample_weights=self.values, include_last_offset=True
        )[0]
        if bias_O is None:
            out_BO.copy_(sums_BO)
        else:
            torch.add(sums_BO, bias_O, out=out_BO)

    def add_gradient(self, weights_FO: Tensor, delta_BO: Tensor, alpha: float, beta: float) -> None:
        """weights = beta weights + alpha (batch^T x delta); beta 0 forgets what was there, whatever it was.

        With beta 1 only those rows of the weights are touched whose feature is not zero.
        """
        if beta == 0.0:
            weights_FO.zero_()
        elif beta != 1.0:
            weights_FO.mul_(beta)
        if self.shape[0] == 1:
            weights_FO.index_add_(0, self.columns, torch.outer(self.values, delta_BO[0]), alpha=alpha)
            return
        columns_U, starts_U, rows, values = self._by_column()
        for low in range(0, columns_U.shape[0], _BLOCK):
            high = min(low + _BLOCK, columns_U.shape[0])
            first, last = int(starts_U[low]), int(starts_U[high])
            gradient_UO = torch.embedding_bag(
                delta_BO, rows[first:last], starts_U[low : high + 1] - first, mode=0,
                per_sample_weights=values[first:last], include_last_offset=True,
            )[0]  # fmt: skip
            weights_FO.index_add_(0, columns_U[low:high], gradient_UO, alpha=alpha)

    def _by_column(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features with values, where each begins (U + 1,), and rows (N,) and values (N,) feature by feature."""
        columns = self.columns.numpy()
        order = np.argsort(columns, kind="stable")
        ordered = columns[order]
        begins = np.flatnonzero(np.diff(ordered, prepend=-1)).astype(np.int32)
        rows = np.repeat(np.arange(self.shape[0], dtype=np.int32), np.diff(self.starts.numpy()))[order]
        starts = np.append(begins, np.int32(len(ordered)))
        return (
            torch.from_numpy(ordered[begins]),
            torch.from_numpy(starts),
            torch.from_numpy(rows),
            self.values[torch.from_numpy(order)],
        )
