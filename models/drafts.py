"""Assignments and results made fast: a run makes one of each for every assignment.

A frozen dataclass sets every field through `object.__setattr__`, at several times the cost of a plain assignment. A
draft with the same slots is filled in instead and then becomes the value: frozen from there on, and equal to one that
its class has made from the same fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

from hetsgd.models.policy import Assign, Result, Seat, Work


class _AssignDraft:
    __slots__ = Assign.__slots__

    def __init__(self, id_: int, seat: Seat, epoch: int, start: int, stop: int, lanes: int, work: Work) -> None:
        self.id = id_
        self.seat = seat
        self.epoch = epoch
        self.start = start
        self.stop = stop
        self.lanes = lanes
        self.work = work
        # The two have the same slots, so that Python lets the one become the other.
        self.__class__ = Assign  # type: ignore[assignment]


class _ResultDraft:
    __slots__ = Result.__slots__

    def __init__(
        self, assign: Assign, *, rows: int, updates: int, steps: int, read: int, wrote: int, start_s: float,
        end_s: float, stats: Mapping[str, float],
    ) -> None:  # fmt: skip
        self.id = assign.id
        self.seat = assign.seat
        self.rows = rows
        self.updates = updates
        self.steps = steps
        self.read = read
        self.wrote = wrote
        self.start_s = start_s
        self.end_s = end_s
        self.work = assign.work
        self.stats = stats
        self.__class__ = Result  # type: ignore[assignment]  # as above


class _NewAssign(Protocol):
    def __call__(self, id_: int, seat: Seat, epoch: int, start: int, stop: int, lanes: int, work: Work) -> Assign: ...


class _NewResult(Protocol):
    def __call__(
        self, assign: Assign, *, rows: int, updates: int, steps: int, read: int, wrote: int, start_s: float,
        end_s: float, stats: Mapping[str, float],
    ) -> Result: ...  # fmt: skip


# What a draft's class returns is the value that the draft has become.
new_assign = cast(_NewAssign, _AssignDraft)
"""`Assign(id=id_, ...)`, made fast."""
new_result = cast(_NewResult, _ResultDraft)
"""The `Result` of an assignment, made fast."""
