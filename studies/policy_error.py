"""A policy that raises: who it was, in which of its functions, and where in its own file."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hetsgd.models.foreign import ESCAPES, by_signal, told, words_of
from hetsgd.models.policy import PolicyError
from hetsgd.studies.failure import RunFailed

if TYPE_CHECKING:
    from types import FrameType

    from hetsgd.models.plan import Plan

# Which of a policy's methods is called by which function of ours; with that of `_optional` in its `method`.
_CALLERS: Final = {
    ("hetsgd.models.contract", "begun"): "begin",
    ("hetsgd.models.coordinator", "request"): "next",
    ("hetsgd.models.coordinator", "finished"): "on_result",
    ("hetsgd.models.coordinator", "_optional"): "",
    ("hetsgd.models.contract", "check_merges"): "the sequence of merges",
}


@contextmanager
def policy_faults(plan: Plan, failure: type[Exception] = RunFailed) -> Iterator[None]:
    """Turn what a policy raises, or answers against the contract, into `failure`, with the name of the policy.

    What a built-in policy refuses (PolicyError) passes: it says itself which setting breaks which rule. An error that
    comes from elsewhere passes as it is.
    """
    try:
        yield
    except BaseException as error:
        if by_signal(error):
            raise
        refused = isinstance(error, PolicyError)
        if refused and type(plan.recipe).__module__.startswith("hetsgd."):
            raise
        raised = error.__cause__ if refused and isinstance(error.__cause__, ESCAPES) else error
        where = where_of(raised)
        if where is None and not refused:
            raise
        words = words_of(raised) if raised is error and refused else told(raised)
        raise failure(": ".join(part for part in (f"policy {plan.policy}", where, words) if part)) from error


def where_of(error: BaseException) -> str | None:
    """`next raised at line 12 of mine.py`, where the error passed through a policy's function; else None."""
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    for index, (frame, _) in enumerate(frames):
        method = _method(frame)
        if method is None:
            continue
        if index + 1 == len(frames):
            if isinstance(error, PolicyError):  # our own check of the answer
                return None
            # No frame of the policy: what we called is no function of this form, or one that is not Python's.
            return f"{method} cannot be called"
        inner = frames[index + 1][0]
        if _ours(inner):
            continue
        file = inner.f_code.co_filename
        # The innermost line of the policy's own file: below it may be a library that it called.
        line = [number for below, number in frames[index + 1 :] if below.f_code.co_filename == file][-1]
        return f"{method} raised at line {line} of {_short(file)}"
    return None


def _method(frame: FrameType) -> str | None:
    """The method of a policy that this frame calls; None where it calls none."""
    method = _CALLERS.get((frame.f_globals.get("__name__", ""), frame.f_code.co_name))
    return str(frame.f_locals.get("method", "")) if method == "" else method


def _ours(frame: FrameType) -> bool:
    """Whether the frame is of hetsgd itself, and not of one of its policies."""
    name = str(frame.f_globals.get("__name__", ""))
    return name.startswith("hetsgd.") and not name.startswith("hetsgd.models.policies.")


def _short(file: str) -> str:
    """The file, relative to the working folder where it lies in it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
