"""Predicted against measured: both engines under the same seeds, beside the spread of the real repeats."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hetsgd.models.loss_curve import LossReference
from hetsgd.studies.event_order import implied_record
from hetsgd.studies.results import Panel, Record, examples_per_s, final_loss, mean_epoch_s, time_to
from hetsgd.studies.validation_rows import Measure, Split
from hetsgd.studies.validation_rows import Row as Row  # what a validation consists of, offered with it

TIME: Final = "time_to_loss_s"
SPEED: Final = "examples_per_s"
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
    def counted_levels(self) -> tuple[float, ...]:
        """The levels whose times count in the errors: up to the deciding one, reached in every run of some engine."""
        found = {_level(row) for row in self._counted() if _error_of(row) is not None}
        return tuple(sorted(found))

    @property
    def median_error(self) -> float | None:
        """Median absolute relative error of time to loss, over policies and `counted_levels`.

        What one engine alone reached in every run is an error larger than any other; None where it is most of them.
        """
        errors = [error for row in self._counted() if (error := _error_of(row)) is not None]
        median = statistics.median(errors) if errors else math.inf
        return median if math.isfinite(median) else None

    @property
    def worst(self) -> tuple[str, float] | None:
        """The policy whose median of these errors is the largest, among those with a finite one, and that median."""
        by_label: dict[str, list[float]] = {}
        for row in self._counted():
            if (error := _error_of(row)) is not None:
                by_label.setdefault(row.label, []).append(error)
        medians = {label: statistics.median(errors) for label, errors in by_label.items()}
        finite = {label: median for label, median in medians.items() if math.isfinite(median)}
        return max(finite.items(), key=lambda item: item[1], default=None)

    @property
    def missed(self) -> tuple[Row, ...]:
        """Times to the deciding level that one engine alone reached in every run: the prediction failed there."""
        rows = (row for row in self.rows if row.metric == f"{TIME}.{self.level:g}")
        return tuple(row for row in rows if (row.predicted is None) != (row.measured is None))

    def _counted(self) -> list[Row]:
        return [row for row in self.rows if row.metric.startswith(TIME) and _level(row) <= self.level]

    @property
    def worst_speed(self) -> Row | None:
        """The policy whose rows per second were predicted worst."""
        rows = [row for row in self.rows if row.metric == SPEED and row.error is not None]
        return max(rows, key=lambda row: abs(row.error or 0.0), default=None)

    @property
    def noise_floor(self) -> float | None:
        """The same between two real runs of one policy and seed set: no prediction can be expected to be better."""
        noise = [error for row in self._counted() for error in row.noise]
        return statistics.median(noise) if noise else None

    @property
    def ranked_at(self) -> float | None:
        """The level that the rankings are compared at: the deciding one, else the highest below that is of use.

        Of use is a level that at least half of the policies, and two, reached in every run of both engines (or the only
        policy).
        """
        labels = len({row.label for row in self.rows})
        levels = sorted({_level(row) for row in self.rows if row.metric.startswith(TIME)})
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
            "median_error_levels": list(self.counted_levels),
            "missed": [row.label for row in self.missed],
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
        from hetsgd.studies.validation_verdict import verdict

        return verdict(self)


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


def _level(row: Row) -> float:
    """The level of a row of times to loss."""
    return float(row.metric.partition(".")[2])


def _error_of(row: Row) -> float | None:
    """The absolute error of a time to loss: infinite where one engine alone always reached it, None if neither."""
    if (row.predicted is None) != (row.measured is None):
        return math.inf
    return None if row.error is None else abs(row.error)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def by_metric(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    """The rows by metric, in order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.metric, []).append(row)
    return found
