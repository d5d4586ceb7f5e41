"""Ctrl-C, SIGTERM and SIGHUP during a run: noted, answered by an orderly end, and harmless when repeated."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While in this context, an interrupt joins `received` and calls `wake`; the old handlers come back after it.

    Only the main thread may set handlers: elsewhere this does nothing, and whoever runs the main thread decides.
    """

    def __init__(self) -> None:
        self.received: list[str] = []
        self.wake: Callable[[], None] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                before = signal.getsignal(number)
                # None: set by something that is not Python, and could not be put back. `nohup` ignores a hang-up.
                if before is not None and not (number == signal.SIGHUP and before is signal.SIG_IGN):
                    self._before[number] = before
                    signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received.append(signal.Signals(number).name)
        if self.wake is not None:
            self.wake()
