"""Children that hang: who has work and gives no sign of it for many times as long as such work has taken so far.

Signs are records in a child's log (a lane leaves one for every step) and reports. How long work should take follows
from the measured seconds per row of the same worker. Silence is counted in looks, each for at most `MOST_LOOK_S`: a
machine that slept, or a parent that was stopped, makes nobody late.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

LEAST_S: Final = 15.0
"""Silence up to here is never held against a child, however short its steps: other programs may have the cores."""
TIMES: Final = 30.0
"""Times as long as expected."""
UNKNOWN_S: Final = 600.0
"""Patience where nothing of the kind has been measured: loading a driver, the first loss."""
MOST_LOOK_S: Final = 1.0
_STEP_OF_LOSS: Final = 4.0  # a step passes forward, backward and over the model

What = Literal["assignment", "loss", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """What a child owes: `rows` of an assignment or a loss, or another answer. `serial`: the order's number.

    `waits_for_others`: it has done what it could and waits for lanes that have not.
    """

    index: int
    worker: str
    what: What
    serial: int
    rows: int
    waits_for_others: bool = False


@dataclass(slots=True)
class _Silence:
    sign: tuple[int, int] = (-1, -1)
    seconds: float = 0.0


@dataclass(slots=True)
class _Pace:
    rows: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Watch:
    """Counts silences and knows how long is too long.

    >>> watch, owed = Watch(least_s=1.0), Owed(index=0, worker="cpu", what="assignment", serial=1, rows=10)
    >>> watch.measured("cpu", "assignment", rows=10, seconds=0.01)
    >>> [watch.late([(owed, 5)], now_s) is None for now_s in (0.0, 0.9, 1.8)]
    [True, True, False]
    """

    least_s: float = LEAST_S
    unknown_s: float = UNKNOWN_S
    _silences: dict[int, _Silence] = field(default_factory=dict)
    _paces: dict[tuple[str, What], _Pace] = field(default_factory=dict)
    _looked_s: float | None = None

    def measured(self, worker: str, what: What, *, rows: int, seconds: float) -> None:
        """So many rows took so long."""
        pace = self._paces.setdefault((worker, what), _Pace())
        pace.rows += rows
        pace.seconds += max(seconds, 0.0)

    def patience_s(self, owed: Owed) -> float:
        """Silence up to which nobody is late with this."""
        if owed.what == "other":
            # The piece at hand comes before the answer, and how long that is is not known here.
            if not self._paces:
                return self.unknown_s
            slowest = max(self._row_s(worker, "assignment") or 0.0 for worker, _ in self._paces)
            return self.least_s + TIMES * slowest * owed.rows
        row_s = self._row_s(owed.worker, owed.what)
        return self.unknown_s if row_s is None else self.least_s + TIMES * row_s * owed.rows

    def late(self, owed: Iterable[tuple[Owed, int]], now_s: float) -> tuple[Owed, float] | None:
        """The child that is silent for too long, if one is, and for how long; `owed` with the records of each child.

        One at a time: whoever only waited for it gets its chance when it is gone. Call at every look.
        """
        passed_s = 0.0 if self._looked_s is None else min(max(now_s - self._looked_s, 0.0), MOST_LOOK_S)
        self._looked_s = now_s
        before, self._silences = self._silences, {}
        worst: tuple[Owed, float] | None = None
        for item, records in owed:
            sign = (item.serial, records)
            silence = before.get(item.index)
            if silence is None or silence.sign != sign:
                silence = _Silence(sign)
            else:
                silence.seconds += passed_s
            self._silences[item.index] = silence
            late = not item.waits_for_others and silence.seconds > self.patience_s(item)
            if late and (worst is None or silence.seconds > worst[1]):
                worst = (item, silence.seconds)
        if worst is not None:
            self._silences.clear()
        return worst

    def _row_s(self, worker: str, what: What) -> float | None:
        pace = self._paces.get((worker, what))
        if pace is not None and pace.rows:
            return pace.seconds / pace.rows
        loss = self._paces.get((worker, "loss"))
        if loss is None or not loss.rows:
            return None
        return _STEP_OF_LOSS * loss.seconds / loss.rows
