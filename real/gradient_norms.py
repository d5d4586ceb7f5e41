"""Squared norms of the gradients of a piece and of its first half, at the same weights."""

from __future__ import annotations

import torch
from torch import Tensor

from hetsgd.real.features import Batch
from hetsgd.real.network import Network


def squared_norms(network: Network, w_P: Tensor, x_BF: Batch, y: Tensor, small: int, out_P: Tensor) -> Tensor:
    """The squared norms (2,) in double precision, on the network's device; `out_P` is overwritten."""
    norms = []
    for rows in (slice(0, x_BF.shape[0]), slice(0, small)):
        network.gradient(w_P, x_BF[rows], y[rows], out_P)
        norms.append(torch.linalg.vector_norm(out_P, dtype=torch.float64).square())
    return torch.stack(norms)
