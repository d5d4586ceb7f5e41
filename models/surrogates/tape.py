"""The calls that an engine made on a learner, kept so that other learners can be led through the same run.

Fitting a surrogate needs the events of each pilot many times; simulating the machine again each time would take
longer than the fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hetsgd.models.learner import Learner
from hetsgd.models.policy import Assign, Loss, Merge

Call = tuple[str, tuple[Any, ...]]


class Tape:
    """A learner that passes everything on to `inner` and remembers it; `losses` are those of the evaluations."""

    def __init__(self, inner: Learner) -> None:
        self._inner = inner
        self.calls: list[Call] = []
        self.losses: list[Loss] = []

    @property
    def name(self) -> str:
        """That of the learner behind it."""
        return self._inner.name

    def begin(self) -> Loss | None:
        """The loss of the initial model; no evaluation of the tape."""
        return self._inner.begin()

    def pull(self, assign: Assign) -> None:
        self.calls.append(("pull", (assign,)))
        self._inner.pull(assign)

    def start(self, assign: Assign, lane: int, step: int) -> None:
        self.calls.append(("start", (assign, lane, step)))
        self._inner.start(assign, lane, step)

    def finish(self, assign: Assign, lane: int, step: int) -> None:
        self.calls.append(("finish", (assign, lane, step)))
        self._inner.finish(assign, lane, step)

    def push(self, assign: Assign) -> None:
        self.calls.append(("push", (assign,)))
        self._inner.push(assign)

    def result(self, assign: Assign) -> Mapping[str, float]:
        self.calls.append(("result", (assign,)))
        return self._inner.result(assign)

    def merge(self, merge: Merge) -> None:
        self.calls.append(("merge", (merge,)))
        self._inner.merge(merge)

    def drop(self, ids: Iterable[int]) -> None:
        kept = tuple(ids)
        self.calls.append(("drop", (kept,)))
        self._inner.drop(kept)

    def evaluate(self, *, at_s: float, epoch: int, update: int) -> Loss:
        """An evaluation; its loss is kept beside the call."""
        loss = self._inner.evaluate(at_s=at_s, epoch=epoch, update=update)
        self.calls.append(("evaluate", (at_s, epoch, update)))
        self.losses.append(loss)
        return loss


def lead(learner: Learner, calls: Iterable[Call]) -> list[Loss]:
    """Lead a fresh learner through a recorded run; returns the losses of its evaluations."""
    losses = []
    methods = {name: getattr(learner, name) for name in ("pull", "start", "finish", "push", "result", "merge", "drop")}
    for name, values in calls:
        if name == "evaluate":
            at_s, epoch, update = values
            losses.append(learner.evaluate(at_s=at_s, epoch=epoch, update=update))
        else:
            methods[name](*values)
    return losses
