"""The folder of a study: `study.json`, `study.toml`, `runs.parquet`, `runs/`, `figures/` and the reports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from hetsgd.models.run import StopRule
from hetsgd.studies.campaign import StudyResult
from hetsgd.studies.case import Case, versions
from hetsgd.studies.comparison import run_figures
from hetsgd.studies.event_order import with_event_orders
from hetsgd.studies.failure import BadInput, checking
from hetsgd.studies.record import StoredRun, read_run, to_json
from hetsgd.studies.results import final_loss, time_to
from hetsgd.studies.study import On, Pilot, Study, Validation, Variant
from hetsgd.studies.tuning import Choice

STUDY_SCHEMA: Final = "hetsgd.study/1"


def write_study(folder: Path, result: StudyResult, source: str) -> None:
    """Write everything about a study but its runs and its report; runs that could not be stored are left out."""
    if source:
        (folder / "study.toml").write_text(source, encoding="utf-8")
    content = {
        "schema": STUDY_SCHEMA,
        "study": asdict(result.study),
        "versions": versions(),
        "wall_s": result.wall_s,
        "choices": [asdict(choice) for choice in result.choices],
        "failures": list(result.failures),
        "results": _results(result),
        "validation": [validation.as_json() for validation in result.validations],
        "cases": [
            {**asdict(case), "run": run.folder.name}
            for case, run in result.found.items()
            if (run.folder / "run.json").is_file()
        ],
    }
    (folder / "study.json").write_text(to_json(content) + "\n", encoding="utf-8")
    runs_frame(result).to_parquet(folder / "runs.parquet", index=False)


def read_study(folder: Path) -> StudyResult:
    """The study in a folder; BadInput where there is none or a file is missing."""
    path = folder / "study.json"
    if not path.is_file():
        raise BadInput(f"{folder}: holds no study.json; name the folder that `hetsgd study run FILE --out DIR` made")
    with checking(str(path)):
        content = json.loads(path.read_text(encoding="utf-8"))
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != STUDY_SCHEMA:
        raise BadInput(f"{path}: schema must be {STUDY_SCHEMA}, got {schema!r}")
    for key in ("cases", "study", "choices", "failures", "wall_s"):
        if key not in content:
            raise BadInput(f"{path}: {key}: must be there; run the study again, it keeps the runs that are whole")
    found: dict[Case, StoredRun] = {}
    with checking(str(path)):
        try:
            cases = [(entry.pop("run"), Case(**_tuples(entry))) for entry in content["cases"]]
            study = _study(content["study"])
            choices = tuple(_choice(entry) for entry in content["choices"])
            failures = tuple(map(str, content["failures"]))
            wall_s = float(content["wall_s"])
        except (AttributeError, KeyError, TypeError) as error:
            raise BadInput(
                f"{path}: is not what a study writes ({error}); run the study again, it keeps the runs that are whole"
            ) from error
        for key, case in cases:
            found[case] = read_run(folder / "runs" / key)
    return StudyResult(
        study=study,
        found=with_event_orders(found, {}, workers=1),  # none is replayed: those that were are in their folders
        choices=choices,
        failures=failures,
        wall_s=wall_s,
    )


def runs_frame(result: StudyResult) -> Any:
    """A pandas frame with one row per run: who it is, its settings, and its figures (see `run_figures`).

    A setting is a column `set.KEY`: a number where all runs have numbers there, else its text; missing where a run
    leaves it alone.
    """
    import pandas as pd

    references = {(panel.machine, panel.workload): panel for panel in result.panels}
    rows = []
    for case, run in result.found.items():
        row: dict[str, Any] = {
            "role": case.role, "engine": case.engine, "machine": case.machine, "workload": case.workload,
            "label": case.label, "policy": case.policy, "seed": case.seed, "repeat": case.repeat,
            "run": run.folder.name,
        }  # fmt: skip
        row |= {f"set.{key}": value for key, value in case.settings}
        row |= run_figures(run.record)
        panel = references.get((case.machine, case.workload))
        if panel is not None and case.role != "pilot":
            row |= {f"time_to_loss_s.{lv:g}": time_to(run.record, panel.reference, lv) for lv in panel.levels}
        rows.append(row)
    return pd.DataFrame(_even(rows))


def _even(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Settings as numbers in columns where all are numbers, else as text: a Parquet column has one type."""
    keys = {key for row in rows for key in row if key.startswith("set.")}
    numbers = {key for key in keys if all(_is_number(row[key]) for row in rows if key in row)}
    return [
        {
            key: value if key not in keys else float(value) if key in numbers else _text(value)
            for key, value in row.items()
        }
        for row in rows
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _results(result: StudyResult) -> dict[str, Any]:
    """Mean figures over seeds by panel and policy: what two studies are compared by."""
    table: dict[str, Any] = {}
    for panel in result.panels:
        ranking = panel.ranking(result.study.level)
        entries = {}
        for entry in ranking.entries:
            interval = entry.interval
            losses = [final_loss(record) for record in panel.runs[entry.label].values()]
            entries[entry.label] = {
                f"time_to_loss_s.{result.study.level:g}": None if interval is None else interval.mean,
                "final_loss": sum(losses) / len(losses),
            }
        table[f"{panel.machine} {panel.workload}"] = entries
    return table


def _tuples(value: Any) -> Any:
    """Lists of JSON as the tuples of frozen values."""
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    return {key: _tuples(item) for key, item in value.items()} if isinstance(value, dict) else value


def _study(content: Mapping[str, Any]) -> Study:
    values = _tuples(dict(content))
    pilot, validation = values.pop("pilot"), values.pop("validation")
    return Study(
        **{
            **values,
            "stop": StopRule(**values["stop"]),
            "variants": tuple(Variant(**variant) for variant in values["variants"]),
            "pilot": None if pilot is None else Pilot(**{**pilot, "stop": StopRule(**pilot["stop"])}),
            "on": tuple(_on(entry) for entry in values["on"]),
            "validation": None if validation is None else Validation(**{**validation, "stop": _stop(validation)}),
        }
    )


def _on(entry: Mapping[str, Any]) -> On:
    stops = {name: None if entry[name] is None else StopRule(**entry[name]) for name in ("stop", "pilot_stop")}
    return On(**{**entry, **stops})


def _stop(validation: Mapping[str, Any]) -> StopRule | None:
    return None if validation["stop"] is None else StopRule(**validation["stop"])


def _choice(entry: Mapping[str, Any]) -> Choice:
    values = _tuples(dict(entry))
    loss = values["loss"]
    return Choice(**{**values, "loss": float("nan") if loss is None else loss})
