"""Whether a prediction held, in words: who was first in both engines, what was missed, and the size of the errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from hetsgd.models.words import counted
from hetsgd.studies.interval import percent, ratio_interval
from hetsgd.studies.ranking import Lead, listed

if TYPE_CHECKING:
    from hetsgd.studies.validation import Validation
    from hetsgd.studies.validation_rows import Row

_CLOSE: Final = 0.25
_AGREES: Final = 0.6
Winner = Literal["same", "tied", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _First:
    """Who was first in both engines. `tied`: the prediction names several, and one of them was measured first."""

    winner: Winner
    words: str


def verdict(found: Validation) -> str:
    """Whether the prediction held on this machine, and the figures that say so."""
    rows, missed = found.times, _missed(found)
    if not rows:
        return (
            f"Whether the prediction holds on {found.machine} is not established: no level of loss was "
            f"reached in every run of both engines by enough of the policies.{missed}"
        )
    first = _first(rows, found)
    tau, speed = found.kendall_tau, found.worst_speed
    order = "" if tau is None else f" Kendall's tau of the two rankings (of {len(rows)} policies): {tau:.2f}."
    off = abs(speed.error) if speed is not None and speed.error is not None else 0.0
    rate = "" if speed is None else f" Rows per second are off by up to {percent(off)} ({speed.label})."
    text = f"On {found.machine} the prediction {_held(found, first.winner, off)}: {first.words}."
    return f"{text}{missed}{_errors(found)}{rate}{order}"


def _errors(found: Validation) -> str:
    levels = listed([percent(level) for level in found.counted_levels]) if found.counted_levels else "no level"
    policies = counted(len({row.label for row in found.rows}), "policy")
    over = f" The median error of time to loss, over {policies} and the way to {levels},"
    error, floor, worst = found.median_error, found.noise_floor, found.worst
    if error is None:
        return f"{over} is not a number: most of these times were reached by one engine alone."
    beside = "" if floor is None else f", {_beside(error, floor)} (two real runs differ by {percent(floor)})"
    last = (
        "" if worst is None else f"; the policy with the largest median of its own is {worst[0]}, {percent(worst[1])}"
    )
    return f"{over} is {percent(error)}{beside}{last}."


def _missed(found: Validation) -> str:
    """Policies that one engine alone brought to the deciding level in every run, with how often the other did."""
    texts = []
    policies = counted(len({row.label for row in found.rows}), "policy")
    for was, not_, predicted in (("measured", "predicted", False), ("predicted", "measured", True)):
        rows = [row for row in found.missed if (row.predicted is not None) == predicted]
        if rows:
            names = listed(
                [f"{row.label} ({_reached(row.measured_all if predicted else row.predicted_all)})" for row in rows]
            )
            texts.append(
                f" {len(rows)} of {policies} {'was' if len(rows) == 1 else 'were'} {was} to get to "
                f"{percent(found.level)} of the way in every run and not {not_} to: {names}; counted as an error "
                "larger than any other."
            )
    return "".join(texts)


def _reached(values: Sequence[float | None]) -> str:
    return f"{sum(value is not None for value in values)} of {counted(len(values), 'run')}"


def _first(rows: Sequence[Row], found: Validation) -> _First:
    """Who was first in each engine, where the seeds tell it."""
    predicted = _leaders([(row.label, row.predicted_all) for row in rows])
    measured = min(rows, key=lambda row: row.measured or 0.0).label
    winner: Winner = "other"
    if measured in predicted:
        winner = "same" if len(predicted) == 1 else "tied"
    if winner == "tied":
        text = f"the seeds do not tell apart which of {listed(predicted)} is first, and {measured} was measured first"
    else:
        joined = "and" if winner == "same" else f"but {measured}"
        text = f"{predicted[0]} was predicted first {joined} was measured first"
    beside = [label for label in _leaders([(row.label, row.measured_all) for row in rows]) if label != measured]
    if found.ranked_at != found.level:
        to = f"to {percent(found.ranked_at or 0.0)} of the way"
        text = f"{text} {to} ({percent(found.level)} was not reached in enough of the runs)"
    if beside:
        text = f"{text}, where the real runs do not tell it apart from {listed(beside)}"
    return _First(winner=winner, words=text)


def _leaders(times: Sequence[tuple[str, Sequence[float | None]]]) -> list[str]:
    """The first by mean time, and those that its runs, paired by seed, do not tell apart from it.

    One run each tells nothing about that: then the first is named alone.
    """
    known = {label: [value for value in values if value is not None] for label, values in times}
    ordered = sorted(known, key=lambda label: sum(known[label]) / len(known[label]))
    best = known[ordered[0]]
    if len(best) < 2 or min(best) <= 0.0:
        return ordered[:1]
    leads = [
        Lead(first=ordered[0], other=label, ratio=ratio_interval(known[label], best))
        for label in ordered[1:]
        if len(known[label]) == len(best)
    ]
    return [ordered[0], *(lead.other for lead in leads if not lead.established)]


def _held(found: Validation, winner: Winner, off: float) -> str:
    """In words: an error like that of repeating the run is as good as can be, twice that is good where it is small."""
    floor, tau = found.noise_floor, found.kendall_tau
    worst = found.worst
    error = max(worst[1] if worst is not None else 0.0, off if off > _CLOSE else 0.0)
    within = floor is not None and not found.missed and error <= max(floor, min(2.0 * floor, _CLOSE))
    if winner == "same":
        return "held" if within else "held for the winner, not for the times"
    if winner == "tied":
        return (
            "names no winner, and held for the times" if within else "names no winner, and did not hold for the times"
        )
    if floor is not None and floor > _CLOSE:
        return "can be neither confirmed nor refuted, since real runs differ too much from each other"
    return "held in part" if within or (tau is not None and tau >= _AGREES) else "did not hold"


def _beside(error: float, floor: float) -> str:
    if error <= floor:
        return "no more than real runs differ from each other"
    return f"{error / floor:.1f} times what real runs differ from each other" if floor else "more than real runs differ"
