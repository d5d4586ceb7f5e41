"""What can go wrong on the command line, and the exit code that says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

EXIT_DONE: Final = 0
EXIT_BAD_INPUT: Final = 2
EXIT_RUN_FAILED: Final = 3
EXIT_INTERRUPTED: Final = 130


class BadInput(ValueError):
    """Input breaks a rule; the message names the file or field, the rule and the value, and the fix."""


class RunFailed(RuntimeError):
    """The input was right and the run itself failed. A diverged run is a result, not a failure."""


class NotSaved(RuntimeError):
    """Results exist and could not be stored or shown; the message names the file and the reason. Ends with code 3."""


class Interrupted(Exception):
    """Ctrl-C or SIGTERM ended the command; the message says what is kept, and in which folder."""


@contextmanager
def checking(source: str = "") -> Iterator[None]:
    """Turn what parsers and values raise on bad input into BadInput, with `source` (a file or option) in front."""
    try:
        yield
    except BadInput as error:
        if str(error).startswith(source):
            raise
        raise BadInput(f"{source}: {error}") from error
    except (ValueError, LookupError, OSError, ImportError) as error:
        text = error.args[0] if isinstance(error, KeyError) and error.args else str(error)
        message = text if not source or str(text).startswith(source) else f"{source}: {text}"
        raise BadInput(message) from error
