"""Who is asked, when and in which order: the part of driving a coordinator that both engines share.

The order of asking is part of a run's result. After an event the seat that finished joins those that wait, and
one pass in seat order asks the seats that the event wakes; passes repeat while any seat with room got work.
"""

from __future__ import annotations

from hetsgd.models.coordinator import Coordinator
from hetsgd.models.policy import Assign, Evaluate, Event, Seat, Wait

Order = tuple[Seat, Assign | Evaluate]


class Dispatcher:
    """Keeps the seats with room and what they wait for; an engine calls `sweep` after every event."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._timed = coordinator.run.evaluate_every_s is not None
        self._rank = {seat: rank for rank, seat in enumerate(coordinator.fleet.seats)}
        self.waiting: dict[Seat, Wait | None] = dict.fromkeys(coordinator.fleet.seats)
        """The seats with room, and what they wait for (None: to be asked)."""

    def free(self, seat: Seat) -> None:
        """The seat has room again: it finished an assignment or an evaluation."""
        if seat not in self._coordinator.dead:
            self.waiting[seat] = None

    def lost(self, seat: Seat) -> None:
        """The seat is gone and is not asked again."""
        self.waiting.pop(seat, None)

    def wake_s(self) -> float | None:
        """The earliest time at which a waiting seat wants to be asked again, or None."""
        if not self.waiting:
            return None
        times = [wait.until_s for wait in self.waiting.values() if wait is not None and wait.until_s is not None]
        return min(times) if times else None

    def waits(self) -> dict[str, str]:
        """Who waits for what, in words."""
        return {str(seat): wait.reason for seat, wait in self.waiting.items() if wait is not None}

    def sweep(self, event: Event | None, now_s: float) -> list[Order]:
        """Ask the seats that this event wakes; None asks every waiting seat. Ends a run that is deadlocked."""
        orders: list[Order] = []
        if self._timed:
            self._coordinator.tick(now_s)
        self._pass(event, now_s, orders)
        if not orders and self._stuck():
            self._pass(None, now_s, orders)
            if not orders and self._stuck():
                reasons = "; ".join(f"{seat} waits: {reason}" for seat, reason in self.waits().items())
                self._coordinator.stop(f"deadlock: {reasons}", now_s, "failed")
        return orders

    def _stuck(self) -> bool:
        coordinator = self._coordinator
        if coordinator.done or not coordinator.quiet or self.wake_s() is not None:
            return False
        # A policy may wait for the next timed loss, if it says so: other waits only end by what will not happen.
        timed = coordinator.run.evaluation != "deferred" and coordinator.next_evaluation_s() is not None
        return not (timed and any(wait is not None and "evaluated" in wait.on for wait in self.waiting.values()))

    def _pass(self, event: Event | None, now_s: float, orders: list[Order]) -> None:
        coordinator, waiting = self._coordinator, self.waiting
        loads, capacity = coordinator.loads, coordinator.capacity
        asked = self._woken(event, now_s)
        while asked:
            again: list[Seat] = []
            for seat in asked:
                answer = coordinator.request(seat, now_s)
                if isinstance(answer, Assign):
                    orders.append((seat, answer))
                    waiting.pop(seat, None)
                    if loads[seat] < capacity:
                        waiting[seat] = None
                        again.append(seat)
                elif isinstance(answer, Wait):
                    waiting[seat] = answer
                else:
                    waiting.pop(seat, None)
                    if isinstance(answer, Evaluate):
                        orders.append((seat, answer))
            if coordinator.wake_all:
                again = self._woken(event, now_s)
            asked = again

    def _woken(self, event: Event | None, now_s: float) -> list[Seat]:
        """The waiting seats to ask now, in seat order."""
        coordinator, waiting = self._coordinator, self.waiting
        everybody = coordinator.wake_all or event is None or event in ("failed", "evaluated")
        coordinator.wake_all = False
        if everybody or not any(waiting.values()):
            woken = list(waiting)
        else:
            woken = [
                seat
                for seat, wait in waiting.items()
                if wait is None
                or (event != "timer" and (not wait.on or event in wait.on))
                or (wait.until_s is not None and wait.until_s <= now_s)
            ]
        if len(woken) > 1:
            woken.sort(key=self._rank.__getitem__)
        return woken
