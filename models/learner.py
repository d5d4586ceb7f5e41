"""The learner seam: what turns the events of a run into a loss curve.

An engine in virtual time tells a learner what happens, in order; the learner keeps the models. Calls for one
assignment come in this order (L lanes, S steps; a lane's pieces are `assign.chunks(lane)`):

    pull(assign)                      accelerators, and CPU teams that write `replica` or `keep`: the working
                                      replica of this assignment becomes a copy of what it reads (global or own)
    start(assign, lane, step)         the piece's gradient is that of the model as it is now: the working replica
                                      where there is one, else the global model
    finish(assign, lane, step)        the piece's local step takes effect: on the working replica, or in place on
                                      the global model; a `gradient` is kept and applied by a merge
    push(assign)                      an accelerator's `in_place`: its replica overwrites the global model
    result(assign)                    the assignment is handed in; returns statistics measured on the way
    merge(merge) / drop(ids)          a merge takes effect / results are discarded or lost

Between `start` and `finish` of a piece others may write: that is what staleness is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Protocol

from hetsgd.models.policy import Assign, Loss, Merge


class Learner(Protocol):
    """Keeps the models of one run in virtual time. See the module for the order of calls."""

    @property
    def name(self) -> str:
        """`replay`, `none` or the name of a surrogate."""
        ...

    def begin(self) -> Loss | None:
        """The loss of the initial model at time 0, or None if this learner computes none."""
        ...

    def pull(self, assign: Assign) -> None: ...
    def start(self, assign: Assign, lane: int, step: int) -> None: ...
    def finish(self, assign: Assign, lane: int, step: int) -> None: ...
    def push(self, assign: Assign) -> None: ...
    def result(self, assign: Assign) -> Mapping[str, float]: ...
    def merge(self, merge: Merge) -> None: ...
    def drop(self, ids: Iterable[int]) -> None: ...

    def evaluate(self, *, at_s: float, epoch: int, update: int) -> Loss:
        """The loss of the global model as it is now (`end_s` = `at_s`; the engine sets when it is known)."""
        ...


_NOTHING: Mapping[str, float] = {}


class NoLearner:
    """Timing only: no model, no losses."""

    name = "none"

    def begin(self) -> Loss | None:
        """No initial loss."""
        return None

    def pull(self, assign: Assign) -> None:
        """Nothing to copy."""

    def start(self, assign: Assign, lane: int, step: int) -> None:
        """Nothing to compute."""

    def finish(self, assign: Assign, lane: int, step: int) -> None:
        """Nothing to write."""

    def push(self, assign: Assign) -> None:
        """Nothing to copy back."""

    def result(self, assign: Assign) -> Mapping[str, float]:
        """No statistics."""
        return _NOTHING

    def merge(self, merge: Merge) -> None:
        """Nothing to merge."""

    def drop(self, ids: Iterable[int]) -> None:
        """Nothing to drop."""

    def evaluate(self, *, at_s: float, epoch: int, update: int) -> Loss:
        """No loss: the evaluation still takes its time."""
        return Loss(at_s=at_s, epoch=epoch, update=update, end_s=at_s, train=math.nan, computed=False)
