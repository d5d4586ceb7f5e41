"""A policy that raises: who it was, in which of its functions, and where in its own file."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hetsgd.studies.failure import RunFailed

if TYPE_CHECKING:
    from types import FrameType

    from hetsgd.models.plan import Plan

_CALLED: Final = ("begin", "next", "on_result", "on_fault", "on_drained")


@contextmanager
def policy_faults(plan: Plan) -> Iterator[None]:
    """Turn what the code of a policy raises into RunFailed; what it refuses in words of its own (PolicyError) passes.

    An error that comes from elsewhere passes as it is.
    """
    from hetsgd.models.policy import PolicyError

    try:
        yield
    except PolicyError:
        raise
    except Exception as error:
        where = _where(error)
        if where is None:
            raise
        raise RunFailed(f"policy {plan.policy}: {where}: {type(error).__name__}: {error}") from error


def _where(error: Exception) -> str | None:
    """`next raised at line 12 of mine.py`, where the error passed through a policy's function; else None."""
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    for index, (frame, _) in enumerate(frames):
        if frame.f_code.co_name in _CALLED and _calls_policies(frame.f_back):
            file = frame.f_code.co_filename
            # The innermost line of the policy's own file: below it may be a library that it called.
            line = [number for inner, number in frames[index:] if inner.f_code.co_filename == file][-1]
            return f"{frame.f_code.co_name} raised at line {line} of {_short(file)}"
    return None


def _calls_policies(frame: FrameType | None) -> bool:
    """Whether this frame is one of those that call policies, and not a policy that calls itself or its parent."""
    module: Any = "" if frame is None else frame.f_globals.get("__name__", "")
    return module in ("hetsgd.models.coordinator", "hetsgd.studies.resolve")


def _short(file: str) -> str:
    """The file, relative to the working folder where it lies in it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
