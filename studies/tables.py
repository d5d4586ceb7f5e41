"""Tables of reports, as text cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hetsgd.models.words import counted
from hetsgd.studies.campaign import StudyResult
from hetsgd.studies.interval import Interval, mean_interval, number, percent, seconds, share
from hetsgd.studies.ranking import Entry
from hetsgd.studies.results import Panel, Record, examples_per_s, final_loss, mean_epoch_s, reference_over, time_to
from hetsgd.studies.spending import dollars, joules, until
from hetsgd.studies.validation import TIME, Row, Validation


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with a title, a sentence on what it says, headings and rows of text. The first column is left-aligned."""

    title: str
    note: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def result_tables(result: StudyResult) -> list[Table]:
    """Rankings, predicted against measured, and the settings that the pilots chose."""
    level = result.study.level
    tables = [_ranking(panel, level, result) for panel in result.panels if panel.runs]
    for validation in result.validations:
        tables.append(validation_table(validation))
        if validation.splits:
            tables.append(split_table(validation))
    if result.study.pilot is not None:
        tables.append(_choices(result))
    return tables


def _ranking(panel: Panel, level: float, result: StudyResult) -> Table:
    ranking = panel.ranking(level)
    ratios = {lead.other: lead.ratio for lead in ranking.leads}
    where = panel.machine if len(result.study.workloads) == 1 else f"{panel.machine}, {panel.workload}"
    metrics = result.study.metrics
    spent = _spent_columns(panel, level)
    rows = [
        (
            *_ranking_row(entry, ratios.get(entry.label), list(panel.runs[entry.label].values()), metrics),
            *(cell(list(panel.runs[entry.label].values())) for _, cell in spent),
        )
        for entry in ranking.entries
    ]
    goal = "" if panel.reference is None else f" (training loss {number(panel.reference.loss(level))})"
    return Table(
        title=f"Simulated on {where}",
        note=f"Ordered by time to {percent(level)} of the way{goal}; means over "
        f"{counted(len(result.study.seeds), 'seed')}, in brackets the 95 % interval, where there are seeds enough and "
        "they agree to within a factor of ten. Times the first: geometric mean of the ratios, seed by seed, not the "
        "ratio of the means. CPU, acc. (accelerator): share of the updates, share of the time computing, mean "
        "staleness in updates."
        + (" Energy and cost until that level, at the mean power and the price of the machine." if spent else ""),
        headings=(
            "policy",
            *(heading for metric in metrics for heading, _ in _COLUMNS[metric]),
            *(heading for heading, _ in spent),
        ),
        rows=tuple(rows),
    )


def _spent_columns(panel: Panel, level: float) -> list[tuple[str, Any]]:
    """Energy and cost until the level (the end, where there is none), where the machine gives watts and price."""
    records = [record for by_seed in panel.runs.values() for record in by_seed.values()]

    def column(key: str, words: Any) -> Any:
        def value(record: Record) -> float | None:
            at_s = time_to(record, panel.reference, level) if panel.reference else record["elapsed_s"]
            return until(record, key, at_s)

        return lambda found: _mean(found, value, words)

    wanted = (("energy", "energy_j", joules), ("cost", "cost_usd", dollars))
    return [
        (heading, column(key, words))
        for heading, key, words in wanted
        if all(record.get(key) is not None for record in records)
    ]


def _ranking_row(
    entry: Entry, ratio: Interval | None, records: Sequence[Record], metrics: Sequence[str]
) -> tuple[str, ...]:
    row = [entry.label]
    for metric in metrics:
        if metric == "time_to_loss_s":
            row += _times(entry, ratio)
        else:
            row += [cell(records) for _, cell in _COLUMNS[metric]]
    return tuple(row)


def _times(entry: Entry, ratio: Interval | None) -> list[str]:
    interval = entry.interval
    time = entry.shortfall if interval is None else _bracket(interval, seconds)
    return [time, "" if ratio is None else _bracket(ratio, number)]


def _bracket(interval: Interval, words: Any) -> str:
    if interval.silent:
        return str(words(interval.mean))
    low, high = words(interval.low), words(interval.high)
    unit = str(words(interval.mean)).partition(" ")[2]
    if unit and low.endswith(f" {unit}") and high.endswith(f" {unit}"):
        low = low.removesuffix(f" {unit}")
    return f"{words(interval.mean)} [{low}, {high}]"


def _mean(records: Sequence[Record], value: Any, words: Any) -> str:
    values = [found for found in map(value, records) if found is not None]
    return words(mean_interval(values).mean) if values else "-"


def _per_s(count: float, record: Record) -> float | None:
    return count / record["elapsed_s"] if record["elapsed_s"] else None


def _test_score(record: Record) -> float | None:
    score: float | None = record["loss"][-1]["test_score"] if record["loss"] else None
    return score


def _staleness(record: Record, kind: str) -> float | None:
    found = record["staleness"].get(kind)
    return None if found is None else float(found["mean"])


def _column(value: Any, words: Any) -> Any:
    return lambda records: _mean(records, value, words)


# Columns of the ranking by the metric that asks for them; the times are the entry's own.
_COLUMNS: Final[dict[str, list[tuple[str, Any]]]] = {
    "time_to_loss_s": [("time", None), ("times the first", None)],
    "final_loss": [("final loss", _column(final_loss, number)), ("test score", _column(_test_score, share))],
    "epoch_s": [("epoch", _column(mean_epoch_s, seconds))],
    "examples_per_s": [("rows/s", _column(examples_per_s, number))],
    "update_share": [
        ("updates/s", _column(lambda record: _per_s(sum(record["updates"].values()), record), number)),
        ("CPU share", _column(lambda record: record["update_share"]["cpu"], share)),
    ],
    "utilization": [
        ("CPU busy", _column(lambda record: record["utilization"]["cpu"], share)),
        ("acc. busy", _column(lambda record: record["utilization"]["accelerator"], share)),
    ],
    "staleness": [
        ("CPU stale", _column(lambda record: _staleness(record, "cpu"), number)),
        ("acc. stale", _column(lambda record: _staleness(record, "accelerator"), number)),
    ],
}


def validation_table(validation: Validation) -> Table:
    """Every policy and metric: predicted, measured, spread over the real runs, error."""
    # A level that neither engine reached says nothing.
    rows = [row for row in validation.rows if row.predicted is not None or row.measured is not None]
    floor = validation.noise_floor
    tau = validation.kendall_tau
    parts = [
        f"Median error of time to loss {percent(validation.median_error)}",
        f"noise floor (two real runs against each other) {percent(floor)}",
        f"Kendall's tau of the ranking {'-' if tau is None else f'{tau:.2f}'}",
    ]
    return Table(
        title=f"Predicted against measured on {validation.machine}",
        note=f"{validation.repeats} real runs of each policy, interleaved; the simulation under the same seeds. "
        f"Spread: standard deviation over the real runs. {'; '.join(parts)}.",
        headings=("policy", "metric", "predicted", "measured", "spread", "error"),
        rows=tuple(
            _validation_row(row, first=number == 0 or rows[number - 1].label != row.label)
            for number, row in enumerate(rows)
        ),
    )


def split_table(validation: Validation) -> Table:
    """Where the error of each policy's times to loss comes from."""
    return Table(
        title=f"Where the errors on {validation.machine} come from",
        note="The error of time to loss in two parts, medians over the levels: timing is what the predicted order of "
        "events and its times make, statistics what is left when the recorded order of the real runs is replayed with "
        "exact arithmetic (torn reads, lost updates). Neither: both below 5 %.",
        headings=("policy", "timing", "statistics", "what dominates"),
        rows=tuple(
            (split.label, f"{100 * split.timing:+z.0f} %", f"{100 * split.statistics:+z.0f} %", split.dominates)
            for split in validation.splits
        ),
    )


def _validation_row(row: Row, *, first: bool) -> tuple[str, ...]:
    words = _words_of(row.metric)
    error = row.error
    if error is None:
        shown = "-"
    else:
        shown = f"{100 * error:+z.0f} %" if row.kind == "relative" else f"{100 * error:+z.1f} points"
    label = row.label if first else ""
    return label, _metric_words(row.metric), words(row.predicted), words(row.measured), words(row.spread), shown


def _words_of(metric: str) -> Any:
    if metric.startswith(TIME) or metric == "epoch_s":
        return seconds
    return share if metric.startswith(("update_share", "utilization")) else number


def _metric_words(metric: str) -> str:
    name, _, rest = metric.partition(".")
    if name == TIME:
        return f"time to {percent(float(rest))}"
    return {"epoch_s": "epoch", "examples_per_s": "rows/s", "final_loss": "final loss"}.get(
        metric, f"{name.replace('_', ' ')}, {rest}"
    )


def _choices(result: StudyResult) -> Table:
    fixed = {key for machine in result.study.machines for key, _ in result.study.settings_on(machine)}
    rows = [
        (
            f"{choice.label} on {choice.machine}",
            ", ".join(f"{key.split('.', 1)[-1]} {value}" for key, value in choice.settings if key not in fixed),
            seconds(choice.time_s),
            number(choice.loss),
            str(choice.tried),
            str(choice.rejected),
            ", ".join(key.split(".", 1)[-1] for key in choice.at_edge) or "-",
        )
        for choice in result.choices
    ]
    return Table(
        title="What the pilots chose",
        note="Every policy had the same number of pilot runs. The point that was first to the pilots' level, else the "
        "one with the lowest loss, entered the study; one that diverged (its loss ended above where it began) only "
        f"where all did. {_pilot_levels(result)} At the edge: the best value tried was the smallest or the largest.",
        headings=(
            "policy", "settings", "time to the pilots' level", "pilot's loss at the end", "points tried", "diverged",
            "at the edge",
        ),
        rows=tuple(rows),
    )  # fmt: skip


def _pilot_levels(result: StudyResult) -> str:
    """What the pilots' level is: it is of the pilot runs, which are shorter than those that the study compares."""
    found: dict[str, list[Record]] = {}
    for case, run in result.found.items():
        if case.role == "pilot":
            where = case.machine if len(result.study.workloads) == 1 else f"{case.machine}, {case.workload}"
            found.setdefault(where, []).append(run.record)
    levels = {where: reference_over(records) for where, records in found.items()}
    words = [
        f"{number(reference.loss(result.study.level))} on {where}" for where, reference in levels.items() if reference
    ]
    return (
        f"The pilots' level is {percent(result.study.level)} of the way from the initial loss to the lowest of the "
        f"pilot runs alone: a training loss of {', '.join(words) or 'none, since no pilot improved'}. The level that "
        "decides above is of the runs that the study compares, and is another loss."
    )
