"""Ctrl-C and SIGTERM in a simulated run: it ends at the next quiet moment, with everything so far in its trace."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from hetsgd.models.plan import ProgressSink
    from hetsgd.models.run import Progress

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class QuietInterrupts:
    """A progress sink that raises KeyboardInterrupt once a signal has come in; a second signal raises at once.

    An engine reports progress between two events, where its books are in order. Signals are caught inside the
    `with` block, in the main thread only (elsewhere Python has none).
    """

    def __init__(self, progress: ProgressSink | None) -> None:
        self._progress = progress
        self._received = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._received:
            raise KeyboardInterrupt
        self._received = True

    def __call__(self, progress: Progress) -> None:
        """Report progress; KeyboardInterrupt where a signal has come in."""
        if self._received:
            self._received = False
            raise KeyboardInterrupt
        if self._progress is not None:
            self._progress(progress)
