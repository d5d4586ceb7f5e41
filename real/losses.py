"""Losses as sums over rows, so that several children can share the rows of one evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from hetsgd.models.policy import Loss
from hetsgd.real.loss_sum import LossSum
from hetsgd.real.messages import Report
from hetsgd.real.network import Network
from hetsgd.real.parts import Part

_PIECES: Final = 8  # pieces of a network's loss between two looks at whether to stop
_MOVED_ROWS: Final = 4096  # rows that are copied onto a device at a time
_NO_ROWS: Final = LossSum()


class Halted(Exception):
    """A loss was broken off."""


def sum_rows(
    network: Network, w_P: Tensor, part: Part, start: int, stop: int, *, halted: Callable[[], bool] | None = None,
    onto: torch.device | None = None,
) -> LossSum:  # fmt: skip
    """The sum over rows [start, stop) in file order.

    The rows are copied `onto` a device piece by piece where one is given.
    Raises Halted when `halted` says so on the way.
    """
    total, piece = _NO_ROWS, network.loss_rows * _PIECES
    if onto is not None:
        piece = min(piece, _MOVED_ROWS)
    for low in range(start, stop, piece):
        if halted is not None and halted():
            raise Halted
        x, y = part.take(slice(low, min(low + piece, stop)))
        if onto is not None and isinstance(x, Tensor):
            x, y = x.to(onto, copy=True), y.to(onto, copy=True)
        total += network.loss(w_P, x, y)
    return total


def loss_of_sums(train: LossSum, test: LossSum, *, at_s: float, end_s: float, epoch: int, update: int) -> Loss:
    """The loss that sums over all training and all test rows make."""
    return Loss(
        at_s=at_s, epoch=epoch, update=update, end_s=end_s, train=train.mean, test=test.mean,
        train_score=train.score, test_score=test.score,
    )  # fmt: skip


def loss_of(reports: Sequence[Report], *, at_s: float, end_s: float, epoch: int, update: int) -> Loss:
    """The loss that the reports of all parts make together."""
    train = sum((LossSum.of(report.train) for report in reports), _NO_ROWS)
    test = sum((LossSum.of(report.test) for report in reports), _NO_ROWS)
    return loss_of_sums(train, test, at_s=at_s, end_s=end_s, epoch=epoch, update=update)
