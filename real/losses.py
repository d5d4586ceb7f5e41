"""Losses as sums over rows, so that several children can share the rows of one evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from torch import Tensor

from hetsgd.models.policy import Loss
from hetsgd.real.messages import Report
from hetsgd.real.network import Network

Sums = tuple[float, ...]
"""Loss, rows, labels hit, false alarms and misses, each summed over rows."""

NOTHING: Final[Sums] = (0.0,) * 5
_PIECES: Final = 8  # pieces of a network's loss between two looks at whether to stop


def sum_rows(network: Network, w_P: Tensor, x_BF: Tensor, y: Tensor, halted: Callable[[], bool]) -> Sums | None:
    """The sums over these rows; None when `halted` said so on the way."""
    total = NOTHING
    piece = network.loss_rows * _PIECES
    for low in range(0, x_BF.shape[0], piece):
        if halted():
            return None
        part = network.loss(w_P, x_BF[low : low + piece], y[low : low + piece])
        total = add(total, (part.loss, part.rows, part.hits, part.false_alarms, part.misses))
    return total


def add(one: Sums, other: Sums) -> Sums:
    """The sums over the rows of both.

    >>> add((1.0, 2.0, 1.0, 1.0, 1.0), (0.5, 1.0, 1.0, 0.0, 0.0))
    (1.5, 3.0, 2.0, 1.0, 1.0)
    """
    return tuple(a + b for a, b in zip(one, other, strict=True))


def mean_and_score(sums: Sums) -> tuple[float, float]:
    """Mean loss, and accuracy or micro-averaged F1; nan without rows.

    >>> mean_and_score((2.0, 4.0, 3.0, 1.0, 1.0))
    (0.5, 0.75)
    """
    loss, rows, hits, false_alarms, misses = sums
    labels = 2 * hits + false_alarms + misses
    return (loss / rows if rows else math.nan), (2 * hits / labels if labels else math.nan)


def loss_of(reports: Sequence[Report], *, at_s: float, end_s: float, epoch: int, update: int) -> Loss:
    """The loss that the reports of all parts make together."""
    train, test = NOTHING, NOTHING
    for report in reports:
        train, test = add(train, report.train), add(test, report.test)
    train_loss, train_score = mean_and_score(train)
    test_loss, test_score = mean_and_score(test)
    return Loss(
        at_s=at_s, epoch=epoch, update=update, end_s=end_s, train=train_loss, test=test_loss,
        train_score=train_score, test_score=test_score,
    )  # fmt: skip
