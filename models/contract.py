"""What the coordinator demands of policies and engines, checked where it is cheap and an error would stay silent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from hetsgd.models.edge import shown_value
from hetsgd.models.foreign import ESCAPES, by_signal, told
from hetsgd.models.policy import (
    Assign,
    Fleet,
    Kind,
    LaneMode,
    Merge,
    PolicyError,
    Recipe,
    Result,
    Rule,
    Schedule,
    Seat,
    Wait,
    Work,
    Write,
)
from hetsgd.models.run import RunSettings

# What each rule can merge. An elastic merge leaves the replica with its worker, so the worker must keep it.
_TAKES: Final[dict[Rule, tuple[Write, ...]]] = {
    "gradient": ("gradient",),
    "overwrite": ("replica", "keep"),
    "delta": ("replica", "keep"),
    "average": ("replica", "keep"),
    "elastic": ("keep",),
    "discard": ("gradient", "replica", "keep"),
}


_ANSWERS: Final = "on_result (on_fault, on_drained)"
_ALWAYS: Final = ("next", "on_result")
_SOMETIMES: Final = ("on_fault", "on_drained")


def check_parts(recipe: Any) -> None:
    """Raise PolicyError when what a recipe says of itself has not the form that the seam asks for."""
    _check_words("kinds", recipe.kinds, get_args(Kind))
    _check_words("lane_modes", recipe.lane_modes, get_args(LaneMode))
    ahead = recipe.max_lookahead
    if isinstance(ahead, bool) or not isinstance(ahead, int) or ahead < 0:
        raise PolicyError(f"max_lookahead must be a whole number >= 0, got {shown_value(ahead)}")
    if not isinstance(recipe.reads_losses, bool):
        raise PolicyError(f"reads_losses must be True or False, got {shown_value(recipe.reads_losses)}")
    if not callable(recipe.begin):
        raise PolicyError(f"begin must be a method, got {shown_value(recipe.begin)}")


def _check_words(field: str, value: Any, allowed: tuple[str, ...]) -> None:
    good = isinstance(value, tuple | list | set | frozenset) and value and all(word in allowed for word in value)
    if not good:
        known = " and ".join(repr(word) for word in allowed)
        raise PolicyError(f"{field} must be a tuple of one or both of {known}, got {shown_value(value)}")


def begun(recipe: Recipe, fleet: Fleet) -> Schedule:
    """The schedule that a recipe makes; PolicyError when it makes none, or raises what ends a program."""
    try:
        schedule = recipe.begin(fleet)
    except BaseException as error:
        refuse_escape(error, "begin")
        raise
    lacks = [name for name in _ALWAYS if not callable(getattr(schedule, name, None))]
    lacks += [name for name in _SOMETIMES if not callable(getattr(schedule, name, begun))]
    if lacks:
        raise PolicyError(
            f"begin must return a schedule with the methods {' and '.join(_ALWAYS)}, got {shown_value(schedule)} "
            f"without {' and '.join(lacks)}"
        )
    return schedule


def refuse_escape(error: BaseException, method: str) -> None:
    """Raise PolicyError for what a policy's method raised, if it would pass as an interrupt or the program's end."""
    if isinstance(error, ESCAPES) and not by_signal(error):
        raise PolicyError(f"{method} raised {told(error)}") from error


def check_decision(decision: object, seat: Seat) -> None:
    """Raise PolicyError when what `next` has answered is neither work nor a wait."""
    if not isinstance(decision, Work | Wait):
        raise PolicyError(f"next must return Work or Wait, got {shown_value(decision)} for {seat}")


def check_merges(answer: Any) -> Sequence[Merge]:
    """The answer of a method that returns merges; PolicyError when it is no sequence. See `check_merge` for each."""
    try:
        items = iter(answer)
    except TypeError:
        raise PolicyError(f"{_ANSWERS} must return a sequence of Merge, got {shown_value(answer)}") from None
    return tuple(items)


def check_recipe(recipe: Recipe, fleet: Fleet, run: RunSettings) -> None:
    """Raise PolicyError when the recipe does not support these settings, rather than run something else."""
    check_parts(recipe)
    name = type(recipe).__name__
    if run.lanes not in recipe.lane_modes:
        allowed = ", ".join(recipe.lane_modes)
        raise PolicyError(f"run.lanes: {name} supports {allowed}, got {run.lanes!r}")
    if recipe.reads_losses and run.evaluation == "deferred":
        raise PolicyError(f"run.evaluation: {name} reads losses during the run, so 'deferred' is refused")
    for member in fleet.members:
        if member.kind not in recipe.kinds:
            raise PolicyError(f"{name} does not use workers of kind {member.kind}, got {member.name}")


def check_wait(wait: Wait, seat: Seat, now_s: float) -> None:
    """Raise PolicyError when a wait could not end, or would end at once again and again."""
    until_s = wait.until_s
    if until_s is not None and not now_s < until_s < math.inf:
        raise PolicyError(
            f"wait: until_s must be finite and later than now ({now_s!r}), got {until_s!r} for {seat}: {wait.reason}"
        )


def check_work(work: Work, seat: Seat) -> None:
    """Raise PolicyError when a free lane is to keep a replica, which only a worker has. Other seats may."""
    if seat.lane >= 0 and (work.read == "own" or work.write in ("replica", "keep")):
        raise PolicyError(
            f"free lanes share the worker's memory: read 'own' and write 'replica' or 'keep' need "
            f"lanes='barrier', got read {work.read!r}, write {work.write!r} for {seat}"
        )


def check_result(assign: Assign, result: Result) -> None:
    """Raise PolicyError when an engine reports other rows than were given out, or reads after it wrote."""
    if result.rows != assign.stop - assign.start or result.seat != assign.seat:
        raise PolicyError(
            f"finished: assignment {assign.id} gave {assign.rows} rows to {assign.seat}, "
            f"the result is of {result.rows} rows from {result.seat}"
        )
    if result.read > result.wrote:
        raise PolicyError(
            f"finished: assignment {assign.id} wrote version {result.wrote} but read the later {result.read}"
        )


def compensates(recipe: Recipe) -> bool:
    """Whether merges of the policy may compensate for delay: unless its recipe says `compensates = False`."""
    return bool(getattr(recipe, "compensates", True))


def check_merge(merge: Merge, held: Mapping[int, Result], fleet: Fleet, *, compensates: bool = True) -> None:
    """Raise PolicyError when a merge names results that are not held or that its rule cannot take.

    `compensates`: what the recipe says of itself.
    """
    if not isinstance(merge, Merge):
        raise PolicyError(f"{_ANSWERS} must return a sequence of Merge, got one with {shown_value(merge)}")
    if merge.compensate and not compensates:
        raise PolicyError(
            f"merge: compensate must be 0 where the recipe says compensates = False, got {merge.compensate:g}"
        )
    missing = [key for key in merge.inputs if key not in held]
    if missing:
        raise PolicyError(f"merge: results {missing} are not held (unknown, in place or merged before)")
    allowed = _TAKES[merge.rule]
    for key in merge.inputs:
        write = held[key].work.write
        if write not in allowed:
            raise PolicyError(f"merge: rule {merge.rule!r} takes {' or '.join(allowed)}, result {key} is {write!r}")
    if merge.write_back:
        names = {member.name for member in fleet.members}
        unknown = [name for name in merge.write_back if name not in names]
        if unknown:
            raise PolicyError(f"merge: write_back names unknown workers {', '.join(unknown)}")
