"""The rows that each replica of an ensemble takes: the same positions of its own row order.

Shapes: R replicas, N training rows, B rows of a batch of each, F features, O outputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hetsgd.models.run import Order
from hetsgd.real.ensemble_network import EnsembleNetwork, EnsembleWorkspace
from hetsgd.real.features import Batch, Rows
from hetsgd.real.gradient_pieces import Factors, GradientPieces, Piece
from hetsgd.real.parts import Part
from hetsgd.real.rows import EpochRows, Span

_KEPT_ORDERS = 2


class EnsembleRows(EpochRows):
    """The rows of one span for every replica: row numbers (R, B), or one range for all where rows lie in file order."""

    def __init__(self, rows: int, *, seeds: Sequence[int], order: Order) -> None:
        super().__init__(rows, seed=seeds[0], order=order)
        self._replicas = [EpochRows(rows, seed=seed, order=order) for seed in seeds]
        self._stacked: dict[int, Tensor] = {}

    def order(self, epoch: int) -> Tensor | None:
        """Row numbers of the epoch (R, N); None for file order. The last two are kept."""
        known = self._stacked.get(epoch)
        if known is None:
            orders = [order for rows in self._replicas if (order := rows.order(epoch)) is not None]
            if not orders:
                return None
            if len(self._stacked) >= _KEPT_ORDERS:
                del self._stacked[min(self._stacked)]
            known = self._stacked[epoch] = torch.stack(orders)
        return known

    def at(self, span: Span) -> Rows:
        """The rows of one span."""
        epoch, start, stop = span
        order_RN = self.order(epoch)
        return slice(start, stop) if order_RN is None else order_RN[:, start:stop]

    def _numbers(self, span: Span) -> Tensor:
        epoch, start, stop = span
        order_RN = self.order(epoch)
        return torch.arange(start, stop) if order_RN is None else order_RN[:, start:stop]

    def at_all(self, spans: Sequence[Span]) -> Rows:
        """The rows of several spans, one after the other."""
        epoch, start, _ = spans[0]
        if all(span[0] == epoch and span[1] == low for span, low in zip(spans, _ends(start, spans), strict=True)):
            return self.at((epoch, start, spans[-1][2]))
        return torch.cat([self._numbers(span) for span in spans], dim=-1)


def _ends(start: int, spans: Sequence[Span]) -> list[int]:
    """Where each span begins if they lie one after the other."""
    return [start, *(span[2] for span in spans[:-1])]


class EnsemblePart(Part):
    """Training rows of all replicas: features (R, B, F) and targets (R, B) or (R, B, O)."""

    def __init__(self, part: Part, replicas: int) -> None:
        super().__init__(part.features, part.y)
        self._replicas = replicas

    def take(self, rows: Rows) -> tuple[Batch, Tensor]:
        """Features and targets of some rows of each replica, valid until the next call."""
        if isinstance(rows, slice) or rows.dim() == 1:
            x = self.features.take(rows)
            return self._for_all(x), self.targets(rows)
        flat = rows.reshape(-1)
        x = self.features.take(flat)
        if not isinstance(x, Tensor):
            raise TypeError("ensemble: rows must be dense")
        return x.view(*rows.shape, -1), self.targets(rows)

    def put_all(self, rows: Rows, x_RBF: Tensor) -> None:
        """Write the features of some rows of each replica."""
        if isinstance(rows, slice) or rows.dim() == 1:
            x_RBF.copy_(self._for_all(self.features.take(rows)))
        else:
            self.features.put(rows.reshape(-1), x_RBF.view(-1, x_RBF.shape[2]))

    def targets(self, rows: Rows) -> Tensor:
        """The targets of some rows of each replica."""
        if isinstance(rows, slice) or rows.dim() == 1:
            y = self.y[rows]
            return y.unsqueeze(0).expand(self._replicas, *y.shape)
        flat = self.y.index_select(0, rows.reshape(-1))
        return flat.view(*rows.shape, *self.y.shape[1:])

    def _for_all(self, x: Batch) -> Tensor:
        if not isinstance(x, Tensor):
            raise TypeError("ensemble: rows must be dense")
        return x.unsqueeze(0).expand(self._replicas, *x.shape)


class EnsemblePieces(GradientPieces):
    """Gradients of lane steps of all replicas at once."""

    def __init__(self, network: EnsembleNetwork, part: EnsemblePart, rows: EnsembleRows, *, most_bytes: int) -> None:
        super().__init__(network, part, rows, most_bytes=most_bytes)
        self._all_part = part

    def _factor(self, model_P: Tensor, pieces: list[Piece], rows: int) -> None:
        workspace = self._workspace(rows)
        if not isinstance(workspace, EnsembleWorkspace):
            raise TypeError(f"ensemble: a workspace of replicas is needed, got {type(workspace).__name__}")
        where = self._rows.at_all([piece.span for piece in pieces])
        self._all_part.put_all(where, workspace.buffers(rows).x_RBF)
        self._network.factors(model_P, self._all_part.targets(where), workspace, rows)
        factors, low = Factors(workspace, len(pieces)), 0
        for piece in pieces:
            piece.factors, piece.low = factors, low
            low += piece.rows
