"""Predicted against measured: both engines under the same seeds, beside the spread of the real repeats."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hetsgd.models.loss_curve import LossReference
from hetsgd.studies.event_order import implied_record
from hetsgd.studies.interval import percent
from hetsgd.studies.results import Panel, Record, examples_per_s, final_loss, mean_epoch_s, time_to
from hetsgd.studies.validation_rows import Measure, Split
from hetsgd.studies.validation_rows import Row as Row  # what a validation consists of, offered with it

TIME: Final = "time_to_loss_s"
SPEED: Final = "examples_per_s"
_CLOSE: Final = 0.25
# Between the levels that are reported everywhere: where engines differ, both may reach only one of these.
_FINE_LEVELS: Final = (0.6, 0.7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """All rows of one machine and workload, with what they add up to."""

    machine: str
    workload: str
    level: float
    repeats: int
    reference: LossReference | None
    rows: tuple[Row, ...]

    @property
    def median_error(self) -> float | None:
        """Median absolute relative error of time to loss, over policies and levels reached in both."""
        errors = [abs(row.error) for row in self.rows if row.metric.startswith(TIME) and row.error is not None]
        return statistics.median(errors) if errors else None

    @property
    def worst_error(self) -> float | None:
        """Median absolute relative error of time to loss of the policy where it is largest."""
        by_label: dict[str, list[float]] = {}
        for row in self.rows:
            if row.metric.startswith(TIME) and row.error is not None:
                by_label.setdefault(row.label, []).append(abs(row.error))
        return max((statistics.median(errors) for errors in by_label.values()), default=None)

    @property
    def worst_speed(self) -> Row | None:
        """The policy whose rows per second were predicted worst."""
        rows = [row for row in self.rows if row.metric == SPEED and row.error is not None]
        return max(rows, key=lambda row: abs(row.error or 0.0), default=None)

    @property
    def noise_floor(self) -> float | None:
        """The same between two real runs of one policy and seed set: no prediction can be expected to be better."""
        noise = [error for row in self.rows if row.metric.startswith(TIME) for error in row.noise]
        return statistics.median(noise) if noise else None

    @property
    def ranked_at(self) -> float | None:
        """The level that the rankings are compared at: the deciding one, else the highest below that is of use.

        Of use is a level that at least half of the policies, and two, reached in every run of both engines (or the only
        policy).
        """
        labels = len({row.label for row in self.rows})
        levels = sorted({float(row.metric.partition(".")[2]) for row in self.rows if row.metric.startswith(TIME)})
        for level in reversed(levels):
            if level <= self.level and len(self._reached(level)) >= min(labels, max(2, (labels + 1) // 2)):
                return level
        return None

    @property
    def times(self) -> tuple[Row, ...]:
        """Time to the level of `ranked_at`, of the policies that reached it in both."""
        level = self.ranked_at
        return () if level is None else self._reached(level)

    def _reached(self, level: float) -> tuple[Row, ...]:
        rows = [row for row in self.rows if row.metric == f"{TIME}.{level:g}"]
        return tuple(row for row in rows if row.predicted is not None and row.measured is not None)

    @property
    def splits(self) -> tuple[Split, ...]:
        """The error of each policy split, where the order of its real runs was replayed."""
        parts: dict[str, list[tuple[float, float]]] = {}
        for row in self.rows:
            timing, rest = row.timing_error, row.statistics_error
            if row.metric.startswith(TIME) and timing is not None and rest is not None:
                parts.setdefault(row.label, []).append((timing, rest))
        return tuple(
            Split(
                label=label, timing=statistics.median(part for part, _ in found),
                statistics=statistics.median(part for _, part in found),
            )
            for label, found in parts.items()
        )  # fmt: skip

    @property
    def kendall_tau(self) -> float | None:
        """Agreement of the two rankings by time to the level (1: the same, -1: reversed); None below 2 policies."""
        rows = self.times
        if len(rows) < 2:
            return None
        from scipy.stats import kendalltau

        tau = float(kendalltau([row.predicted for row in rows], [row.measured for row in rows]).statistic)
        return tau if math.isfinite(tau) else None

    def as_json(self) -> dict[str, Any]:
        """The `hetsgd.validation/1` object."""
        policies: dict[str, dict[str, Any]] = {}
        for row in self.rows:
            policies.setdefault(row.label, {})[row.metric] = {
                "predicted": row.predicted,
                "measured": {"mean": row.measured, "spread": row.spread, "values": list(row.measured_all)},
                "error": row.error,
                "error_kind": row.kind,
                **_split_json(row),
            }
        return {
            "schema": "hetsgd.validation/1",
            "machine": self.machine,
            "workload": self.workload,
            "level": self.level,
            "ranked_at": self.ranked_at,
            "repeats": self.repeats,
            "loss_reference": None if self.reference is None else [self.reference.initial, self.reference.best],
            "policies": policies,
            "kendall_tau": self.kendall_tau,
            "median_error": self.median_error,
            "noise_floor": self.noise_floor,
            "error_split": {
                split.label: {
                    "timing": split.timing,
                    "statistics": split.statistics,
                    "dominates": split.dominates,
                }
                for split in self.splits
            },
            "verdict": self.verdict(),
        }

    def verdict(self) -> str:
        """Whether the prediction held here, in words and with the figures that say so."""
        rows, error, floor = self.times, self.median_error, self.noise_floor
        if not rows or error is None:
            return (
                f"Whether the prediction holds on {self.machine} is not established: no level of loss was "
                "reached in every run of both engines."
            )
        tau = self.kendall_tau
        order = "" if tau is None else f" Kendall's tau of the two rankings ({len(rows)} policies): {tau:.2f}."
        beside = "" if floor is None else f", {_beside(error, floor)} (two real runs differ by {percent(floor)})"
        same, winner = self._winner(rows)
        worst, speed = self.worst_error or error, self.worst_speed
        off = abs(speed.error) if speed is not None and speed.error is not None else 0.0
        rate = "" if speed is None else f" Rows per second are off by up to {percent(off)} ({speed.label})."
        held = _held(same, max(worst, off if off > _CLOSE else 0.0), floor, tau)
        return (
            f"On {self.machine} the prediction {held}: {winner}. The median error of time to loss is "
            f"{percent(error)}{beside}, {percent(worst)} for the worst policy.{rate}{order}"
        )

    def _winner(self, rows: Sequence[Row]) -> tuple[bool, str]:
        """Whether the first policy is the same in both engines, and who it was."""
        predicted = min(rows, key=lambda row: row.predicted or 0.0).label
        measured = min(rows, key=lambda row: row.measured or 0.0).label
        joined = "and" if predicted == measured else f"but {measured}"
        text = f"{predicted} was predicted first {joined} was measured first"
        if self.ranked_at != self.level:
            to = f"to {percent(self.ranked_at or 0.0)} of the way"
            text = f"{text} {to} ({percent(self.level)} was not reached in enough of the runs)"
        return predicted == measured, text


def measures(levels: Sequence[float]) -> tuple[Measure, ...]:
    """The metrics that are compared."""
    times = [
        Measure(name=f"{TIME}.{level:g}", error="relative", value=_time_at(level), of_losses=True) for level in levels
    ]
    return (
        *times,
        Measure(name="epoch_s", error="relative", value=lambda record, _: mean_epoch_s(record)),
        Measure(name=SPEED, error="relative", value=lambda record, _: examples_per_s(record)),
        Measure(
            name="final_loss", error="relative", value=lambda record, _: _finite(final_loss(record)), of_losses=True
        ),
        Measure(name="update_share.cpu", error="absolute", value=lambda record, _: record["update_share"]["cpu"]),
        Measure(name="utilization.cpu", error="absolute", value=lambda record, _: record["utilization"]["cpu"]),
        Measure(
            name="utilization.accelerator", error="absolute",
            value=lambda record, _: record["utilization"]["accelerator"],
        ),
    )  # fmt: skip


def validate_panel(panel: Panel, level: float) -> Validation:
    """Tabulate the predicted and measured runs of one machine and workload."""
    labels = [label for label in panel.measured if label in panel.predicted]
    levels = sorted({*panel.levels, *_FINE_LEVELS})
    rows = [_row(label, measure, panel) for label in labels for measure in measures(levels)]
    return Validation(
        machine=panel.machine,
        workload=panel.workload,
        level=level,
        repeats=max((len(panel.measured[label]) for label in labels), default=0),
        reference=panel.reference,
        rows=tuple(rows),
    )


def _row(label: str, measure: Measure, panel: Panel) -> Row:
    def values(records: Sequence[Record]) -> tuple[float | None, ...]:
        return tuple(measure.value(record, panel.reference) for record in records)

    records = [implied_record(record) for record in panel.measured[label]]
    implied = [record for record in records if record is not None]
    return Row(
        label=label,
        metric=measure.name,
        kind=measure.error,
        predicted_all=values(panel.predicted[label]),
        measured_all=values(panel.measured[label]),
        implied_all=values(implied) if measure.of_losses and len(implied) == len(panel.measured[label]) else (),
    )


def _split_json(row: Row) -> dict[str, Any]:
    """The parts of the error, where the order of the real runs was replayed."""
    if not row.implied_all:
        return {}
    return {"implied": row.implied, "timing_error": row.timing_error, "statistics_error": row.statistics_error}


def _time_at(level: float) -> Callable[[Record, LossReference | None], float | None]:
    return lambda record, reference: time_to(record, reference, level)


def _held(same_first: bool, error: float, floor: float | None, tau: float | None) -> str:
    """In words: an error like that of repeating the run is as good as can be, twice that is good where it is small."""
    within = floor is not None and error <= max(floor, min(2.0 * floor, _CLOSE))
    if same_first and within:
        return "held"
    if same_first:
        return "held for the winner, not for the times"
    if floor is not None and floor > _CLOSE:
        return "can be neither confirmed nor refuted, since real runs differ too much from each other"
    if within or (tau is not None and tau >= 0.6):
        return "held in part"
    return "did not hold"


def _beside(error: float, floor: float) -> str:
    if error <= floor:
        return "no more than real runs differ from each other"
    return f"{error / floor:.1f} times what real runs differ from each other" if floor else "more than real runs differ"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def by_metric(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    """The rows by metric, in order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.metric, []).append(row)
    return found
