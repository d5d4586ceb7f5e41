"""Rounds of gradients: every seat hands in one gradient of the same model, their weighted mean is one update.

What `synchronous` and `backup-workers` share. A round closes when enough gradients of it have come in, when
nobody is left who could hand in another, or when the run drains. The next one starts once the update has landed,
so that all gradients of a round are of the same model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from hetsgd.models.policies.shared_keys import kind_of
from hetsgd.models.policy import Fault, Fleet, Kind, Merge, Result, Seat, View, Wait, Work

_LANDING: Final = Wait(reason="round: waits for the update to land", on=("merged",))
_OTHERS: Final = Wait(reason="round: waits for the gradients of others", on=("merged",))


class Rounds:
    """Collects a gradient per seat and round; `backups` seats less than all are enough to close a round.

    `works`: what a worker of each class computes. `scale`: factor on the gradients of each class.
    """

    def __init__(self, fleet: Fleet, works: Mapping[Kind, Work], scale: Mapping[Kind, float], backups: int = 0) -> None:
        kinds = kind_of(fleet)
        self._works = {name: works[kind] for name, kind in kinds.items()}
        self._scale = {name: scale[kind] for name, kind in kinds.items()}
        self._free = {member.name for member in fleet.members if member.free}
        self._rate = fleet.learning_rate
        self._momentum = fleet.momentum
        self._wanted = len(fleet.seats) - backups
        self._received: list[Result] = []
        self._delivered: dict[str, set[Seat]] = {name: set() for name in kinds}
        self._stale: set[int] = set()

    def next(self, view: View, worker: str) -> Work | Wait:
        """One gradient per seat and round, of the model that the last round left.

        Lanes of a free team are alike, so it is enough that as many as are idle have not delivered.
        """
        if view.merging:
            return _LANDING
        busy = view.workers[worker].in_flight + len(self._delivered[worker])
        return _OTHERS if busy >= self._seats(view, worker) else self._works[worker]

    def on_result(self, view: View, result: Result) -> Sequence[Merge]:
        """Hold a gradient, and close the round with the last one that it needs; drop one of a past round."""
        if result.id in self._stale:
            self._stale.discard(result.id)
            return (Merge(inputs=(result.id,), rule="discard", reason="stale: its round is over"),)
        self._received.append(result)
        self._delivered[result.seat.worker].add(result.seat)
        return self._close_if_complete(view)

    def on_fault(self, view: View, fault: Fault) -> Sequence[Merge]:
        """A round goes on without the lost seat; gradients that it handed in stay."""
        self._stale.difference_update(fault.lost)
        if not fault.lanes_left:
            self._delivered[fault.seat.worker].discard(fault.seat)
        return self._close_if_complete(view)

    def on_drained(self, view: View, why: str) -> Sequence[Merge]:
        """Close the round with what it has."""
        return self._close(view, f"drain ({why})") if self._received else ()

    def _seats(self, view: View, worker: str) -> int:
        tally = view.workers[worker]
        if not tally.alive:
            return 0
        return tally.lanes if worker in self._free else 1

    def _close_if_complete(self, view: View) -> Sequence[Merge]:
        count = len(self._received)
        if not count:
            return ()
        if count >= self._wanted:
            return self._close(view, "complete")
        missing = sum(self._seats(view, name) - len(seats) for name, seats in self._delivered.items())
        return () if missing > 0 else self._close(view, "everybody who is left")

    def _close(self, view: View, why: str) -> Sequence[Merge]:
        received, self._received = self._received, []
        for seats in self._delivered.values():
            seats.clear()
        self._stale = set(view.in_flight)
        rows = sum(result.rows for result in received)
        merge = Merge(
            inputs=tuple(result.id for result in received),
            rule="gradient",
            weights=tuple(self._scale[r.seat.worker] * r.rows / rows for r in received),
            rate=self._rate,
            momentum=self._momentum,
            reason=f"round of {len(received)}: {why}",
        )
        return (merge,)
