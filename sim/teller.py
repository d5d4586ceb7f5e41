"""Progress of a simulated run, told a few times per second of wall time. Nothing of it enters virtual time."""

from __future__ import annotations

import time
from typing import Final

from hetsgd.models.coordinator import Coordinator
from hetsgd.models.plan import ProgressSink
from hetsgd.models.run import Progress, StopRule

_EVERY_S: Final = 0.25


class Teller:
    """Tells a sink how far a run is; without a sink it does nothing."""

    def __init__(self, sink: ProgressSink | None, coordinator: Coordinator) -> None:
        self._sink = sink
        self._coordinator = coordinator
        self._next_s = time.monotonic() + _EVERY_S

    def tell(self, now_s: float, updates: int, *, always: bool = False) -> None:
        """Tell, if it is time to (or `always`); what the sink raises goes through."""
        if self._sink is None:
            return
        wall_s = time.monotonic()
        if always or wall_s >= self._next_s:
            self._next_s = wall_s + _EVERY_S
            self._sink(self._progress(now_s, updates))

    def _progress(self, now_s: float, updates: int) -> Progress:
        coordinator, cursor = self._coordinator, self._coordinator.cursor
        losses = [loss.train for loss in coordinator.losses if loss.computed]
        examples = cursor.epoch * cursor.rows + cursor.position
        return Progress(
            now_s=now_s,
            epoch=cursor.epoch,
            examples=examples,
            updates=updates,
            loss=losses[-1] if losses else None,
            fraction=fraction(coordinator.run.stop, now_s, examples / cursor.rows, updates),
        )


def fraction(stop: StopRule, now_s: float, epochs: float, updates: int) -> float:
    """How far the nearest stop rule is, in [0, 1].

    >>> fraction(StopRule(seconds=10.0, updates=100), 2.0, 0.5, 40)
    0.4
    """
    parts = [
        done / whole
        for done, whole in ((now_s, stop.seconds), (epochs, stop.epochs), (updates, stop.updates))
        if whole is not None
    ]
    return min(1.0, max(parts))
