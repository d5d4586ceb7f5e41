"""Ctrl-C, SIGTERM and SIGHUP: one handler for the whole program, and what a run or a save does with a signal instead.

The first signal ends what is under way in an orderly way, the second ends the program at once. Handlers are only
set in the main thread: elsewhere Python has none.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from hetsgd.models.foreign import Signalled
from hetsgd.studies.failure import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from hetsgd.models.plan import ProgressSink
    from hetsgd.models.run import Progress

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _wanted(number: signal.Signals) -> bool:
    """Whether the signal is to be answered: `nohup` has a hang-up ignored, and so it stays."""
    return number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN


class _Handlers:
    """A context in which signals go to `_note`; the handlers of before come back after it."""

    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS if _wanted(number)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received += 1
        if self.received > 1:
            raise Signalled


class Ending(_Handlers):
    """The program's own handlers: the first signal raises KeyboardInterrupt, a second one ends the process.

    The second comes where the first is still being answered (something hangs, or takes too long): child processes
    are killed and the process ends with the code of an interrupt, without another word.
    """

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received += 1
        if self.received > 1:
            end_now()
        raise Signalled

    def close(self) -> None:
        """The program has done all it has to: a signal while Python ends must not change the exit code any more."""
        self._before.clear()
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def end_now() -> None:
    """Kill the child processes and end this one with the code of an interrupt."""
    try:
        import psutil

        for child in psutil.Process().children(recursive=True):
            child.kill()
    except Exception:  # noqa: BLE001 - whatever is wrong with the children, the process must end now
        os._exit(EXIT_INTERRUPTED)
    os._exit(EXIT_INTERRUPTED)


class Held(_Handlers):
    """Signals wait while results are stored and shown; a second one raises KeyboardInterrupt at once.

    `after`: signals that were answered before, so that the next one is the second.
    """

    def __init__(self, after: int = 0) -> None:
        super().__init__()
        self.received = after


class QuietInterrupts(_Handlers):
    """A progress sink that raises KeyboardInterrupt once a signal has come in; a second signal raises at once.

    An engine reports progress between two events, where its books are in order.
    """

    def __init__(self, progress: ProgressSink | None) -> None:
        super().__init__()
        self._progress = progress
        self._answered = False

    def __call__(self, progress: Progress) -> None:
        """Report progress; KeyboardInterrupt where a signal has come in."""
        if self.received and not self._answered:
            self._answered = True
            raise Signalled
        if self._progress is not None:
            self._progress(progress)
