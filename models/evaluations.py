"""Which losses are due, who computes them and what has been ordered; the coordinator decides when to drain."""

from __future__ import annotations

from collections.abc import Mapping

from hetsgd.models.ledger import WorkerTally
from hetsgd.models.policy import Evaluate, Fleet, Seat
from hetsgd.models.run import RunSettings


class Evaluations:
    """The evaluations of one run.

    `due`: one is wanted and waits for the seat that computes it. `ordered`: the orders under way, and who has each.
    `snapshots`: to be taken next. The period of timed
    evaluations runs from the end of one to the start of the next: with an evaluation that takes longer than the
    period, training would otherwise never get its turn.
    """

    def __init__(self, run: RunSettings, fleet: Fleet, tallies: Mapping[str, WorkerTally]) -> None:
        self.due = False
        self._period_s = run.evaluate_every_s
        self._fleet = fleet
        self._tallies = tallies
        self._last_s = 0.0
        self._ids = 0
        self.ordered: dict[int, tuple[Evaluate, Seat | None]] = {}
        self.snapshots: list[Evaluate] = []

    @property
    def under_way(self) -> bool:
        """Whether a live seat computes a loss."""
        return any(seat is not None for _, seat in self.ordered.values())

    @property
    def open(self) -> bool:
        """Whether a loss is due or ordered and not known yet."""
        return self.due or bool(self.ordered)

    def next_s(self) -> float | None:
        """When the next timed evaluation comes due; None without a period or while one is open."""
        return None if self._period_s is None or self.open else self._last_s + self._period_s

    def period_over(self, now_s: float) -> bool:
        """Whether a timed evaluation has come due."""
        return self._period_s is not None and not self.open and now_s >= self._last_s + self._period_s

    def new(self, epoch: int, version: int) -> Evaluate:
        """A fresh order that nobody has got."""
        order = Evaluate(id=self._ids, epoch=epoch, update=version)
        self._ids += 1
        return order

    def order_for(self, seat: Seat, epoch: int, version: int) -> Evaluate | None:
        """The evaluation that this seat should do now, if one waits and the seat is the one to do it."""
        if not self.open or not self._is_evaluator(seat):
            return None
        for key, (order, evaluator) in self.ordered.items():
            if evaluator is None:
                self.ordered[key] = (order, seat)
                return order
        if not self.due:
            return None
        self.due = False
        order = self.new(epoch, version)
        self.ordered[order.id] = (order, seat)
        return order

    def lost(self, seat: Seat) -> None:
        """The seat is gone; another repeats its evaluation."""
        for key, (order, evaluator) in self.ordered.items():
            if evaluator == seat:
                self.ordered[key] = (order, None)

    def answered(self, order: Evaluate, now_s: float) -> bool:
        """Count an answer; False when it was not waited for."""
        self._last_s = now_s
        return self.ordered.pop(order.id, None) is not None

    def snapshot(self, epoch: int, version: int) -> None:
        """Take a snapshot with the next `taken`."""
        self.snapshots.append(self.new(epoch, version))

    def taken(self, now_s: float) -> tuple[Evaluate, ...]:
        """The snapshots to take now."""
        if not self.snapshots:
            return ()
        taken = tuple(self.snapshots)
        self.snapshots.clear()
        self._last_s = now_s
        return taken

    def _is_evaluator(self, seat: Seat) -> bool:
        """Losses are computed by the first live accelerator, else by the first live worker: its first live seat."""
        live = [member for member in self._fleet.members if self._tallies[member.name].alive]
        chosen = next((member for member in live if member.kind == "accelerator"), live[0])
        dead = self._tallies[chosen.name].dead
        return seat == next(s for s in chosen.seats if s not in dead)
