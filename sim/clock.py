"""The virtual clock: a SimPy environment that can also move on to a time at which nothing is scheduled."""

from __future__ import annotations

from typing import Final

import simpy

# After so many skips in a row the queue has its turn, so that whoever drives the clock does.
_SKIPS: Final = 64


class Clock(simpy.Environment):
    """A SimPy environment. `over`: the run has ended, so that nothing may happen any more."""

    def __init__(self) -> None:
        super().__init__()
        self.over = False
        self._skips = 0

    def skip_to(self, at_s: float) -> bool:
        """Move on to `at_s`, if the run goes on and nothing is scheduled until then; else False.

        Saves what would have been scheduled next anyway from going through the event queue, with the same outcome.
        """
        self._skips += 1
        if self.over or not at_s < self.peek() or self._skips >= _SKIPS:
            self._skips = 0
            return False
        self._now = at_s
        return True
