"""Code of somebody else's: a policy or a module may raise anything, even what is meant to end the program."""

from __future__ import annotations

import signal
from typing import Final

ESCAPES: Final = (KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration)
"""What would pass through our own code as something else: an interrupt, the end of the program, or of a loop."""

_LONGEST: Final = 1000


class Signalled(KeyboardInterrupt):
    """A signal has come in. A plain KeyboardInterrupt may also be raised by code that nobody interrupted."""


def by_signal(error: BaseException) -> bool:
    """Whether this is an interrupt from outside; under Python's own handler every KeyboardInterrupt counts as one.

    >>> by_signal(Signalled()), by_signal(SystemExit())
    (True, False)
    """
    if isinstance(error, Signalled):
        return True
    return isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def told(error: BaseException) -> str:
    r"""An error in one line: its kind and what it says.

    >>> told(ValueError("a\nb")), told(MemoryError())
    ('ValueError: a b', 'MemoryError')
    """
    return f"{type(error).__name__}: {words_of(error)}".removesuffix(": ")


def words_of(error: BaseException) -> str:
    """What an error says, in one line, cut where it is long."""
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
