"""The virtual clock: a SimPy environment that can also move on to a time at which nothing is scheduled."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final, cast

import simpy
import simpy.core
import simpy.events

# After so many skips in a row the queue has its turn, so that whoever drives the clock does.
_SKIPS: Final = 64
NORMAL: Final = simpy.events.NORMAL


class Call:
    """Something that happens at a time, with what it is about (`value`).

    An event of SimPy's queue that nobody waits for, which saves most of the cost of a Timeout. Once it has happened
    it may be put into the queue again.
    """

    __slots__ = ("action", "value")
    _ok = True  # SimPy asks every event whether it has failed

    def __init__(self, action: Callable[[Call], None], value: Any) -> None:
        self.action = action
        self.value = value

    @property
    def callbacks(self) -> tuple[Callable[[Call], None]]:
        """The action, as SimPy's own loop knows it; that would mark an event as done with None here."""
        return (self.action,)

    @callbacks.setter
    def callbacks(self, _: None) -> None: ...


class Clock(simpy.Environment):
    """A SimPy environment. `over`: the run has ended, so that nothing may happen any more.

    The time is `now_s`, an attribute, since it is read several times an event; SimPy's `now` is the same.
    """

    def __init__(self) -> None:
        super().__init__()
        # SimPy's queue, known to hold calls, and the numbers that keep those of the same time in order.
        self.numbers = self._eid
        self.calls = cast(list[tuple[float, int, int, Call]], self._queue)
        self.over = False
        self.events = 0
        """Calls that have happened so far, and what happened without one because it was skipped to."""
        self._skips = 0

    @property
    def _now(self) -> float:
        """The time as SimPy knows it."""
        return self.now_s

    @_now.setter
    def _now(self, at_s: float) -> None:
        self.now_s = at_s

    def call_at(self, at_s: float, action: Callable[[Call], None], value: Any = None) -> Call:
        """Let `action` happen at `at_s`; it is handed the call, whose `value` this is."""
        call = Call(action, value)
        heappush(self.calls, (at_s, NORMAL, next(self.numbers), call))
        return call

    def call(self, delay_s: float, action: Callable[[Call], None], value: Any = None) -> Call:
        """Let `action` happen in `delay_s` seconds."""
        call = Call(action, value)
        heappush(self.calls, (self.now_s + delay_s, NORMAL, next(self.numbers), call))
        return call

    def put(self, at_s: float, call: Call) -> None:
        """Let a call happen at `at_s` that is not in the queue: it may be used again and again."""
        heappush(self.calls, (at_s, NORMAL, next(self.numbers), call))

    def drive(self, events: int) -> bool:
        """Let so many events happen, or fewer if the run is over with one of them; is it?"""
        queue = self.calls
        happened = 0
        try:
            while happened < events:
                if not queue:
                    raise simpy.core.EmptySchedule
                self.now_s, _, _, call = heappop(queue)
                happened += 1
                call.action(call)
                if self.over:
                    return True
            return False
        finally:
            self.events += happened

    def skip_to(self, at_s: float) -> bool:
        """Move on to `at_s`, if the run goes on and nothing is scheduled until then; else False.

        Saves what would have been scheduled next anyway from going through the event queue, with the same outcome.
        """
        self._skips += 1
        queue = self.calls
        if self.over or (queue and not at_s < queue[0][0]) or self._skips >= _SKIPS:
            self._skips = 0
            return False
        self.now_s = at_s
        self.events += 1
        return True
