"""The virtual clock: a SimPy environment that can also move on to a time at which nothing is scheduled."""

from __future__ import annotations

import simpy


class Clock(simpy.Environment):
    """A SimPy environment. `over`: the run has ended, so that nothing may happen any more."""

    def __init__(self) -> None:
        super().__init__()
        self.over = False

    def skip_to(self, at_s: float) -> bool:
        """Move on to `at_s`, if the run goes on and nothing is scheduled until then; else False.

        Saves what would have been scheduled next anyway from going through the event queue, with the same outcome.
        """
        if self.over or not at_s < self.peek():
            return False
        self._now = at_s
        return True
