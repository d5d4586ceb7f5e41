"""Data frames of figures, from the runs of a study."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from hetsgd.models.series import batch_series, utilization_series
from hetsgd.models.trace import Trace
from hetsgd.studies.campaign import StudyResult
from hetsgd.studies.case import Case
from hetsgd.studies.interval import percent
from hetsgd.studies.record import OutputError, StoredRun
from hetsgd.studies.results import Panel
from hetsgd.studies.validation import Validation

BINS = 60


def panel_title(panel: Panel | Case, workloads: int) -> str:
    """The name of a panel in figures: the machine, and the workload where there are several."""
    return panel.machine if workloads == 1 else f"{panel.machine}, {panel.workload}"


def curve_frame(result: StudyResult) -> pd.DataFrame:
    """Loss curves of the simulated runs: panel, policy, seed, t_s, epoch, train."""
    rows = [
        {
            "panel": title, "policy": case.label, "seed": case.seed, "t_s": point["t_s"], "epoch": point["epoch"],
            "train": np.nan if point["train"] is None else point["train"],
        }
        for title, case, run in _runs(result)
        for point in run.record["loss"]
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["panel", "policy", "seed", "t_s", "epoch", "train"])


def share_frame(result: StudyResult) -> pd.DataFrame:
    """Update shares of every simulated run: panel, policy, cpu, accelerator."""
    rows = [{"panel": title, "policy": case.label, **run.record["update_share"]} for title, case, run in _runs(result)]
    return pd.DataFrame(rows, columns=["panel", "policy", "cpu", "accelerator"])


def staleness_frame(result: StudyResult) -> pd.DataFrame:
    """Staleness of every simulated run and class: panel, policy, kind, mean, p50, p95."""
    rows = [
        {"panel": title, "policy": case.label, "kind": kind, **{key: found[key] for key in ("mean", "p50", "p95")}}
        for title, case, run in _runs(result)
        for kind, found in run.record["staleness"].items()
    ]
    return pd.DataFrame(rows, columns=["panel", "policy", "kind", "mean", "p50", "p95"])


def time_frames(result: StudyResult) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Utilization and batch sizes over time in the first seed's runs, whose traces are whole."""
    busy: list[pd.DataFrame] = []
    batches: list[pd.DataFrame] = []
    for title, case, run in _runs(result):
        if case.seed != result.study.seeds[0]:
            continue
        try:
            trace = run.trace
        except OutputError:
            continue
        if trace.level != "full" or not trace.elapsed_s > 0.0:
            continue
        busy += _busy(trace, title, case.label)
        batches += _batches(trace, title, case.label)
    columns = ["panel", "kind", "policy", "t_s", "busy"], ["panel", "kind", "policy", "worker", "t_s", "batch"]
    found = [pd.concat(parts, ignore_index=True) if parts else pd.DataFrame() for parts in (busy, batches)]
    return found[0].reindex(columns=columns[0]), found[1].reindex(columns=columns[1])


def prediction_frame(validation: Validation) -> pd.DataFrame:
    """Predicted and measured values of the metrics worth a panel: metric, policy, predicted, measured, low, high.

    Missing (nan) where a level was not reached in every run of that engine.
    """
    level = validation.ranked_at or validation.level
    titles = {
        f"time_to_loss_s.{level:g}": f"time to {percent(level)} of the way [s]",
        "examples_per_s": "throughput [rows/s]",
        "final_loss": "final training loss",
        "update_share.cpu": "update share of the CPU team",
        "utilization.cpu": "utilization of the CPU team",
        "utilization.accelerator": "utilization of the accelerator",
    }
    rows: list[dict[str, Any]] = []
    for row in validation.rows:
        if row.metric in titles:
            values = [value for value in row.measured_all if value is not None] or [np.nan]
            rows.append(
                {
                    "metric": titles[row.metric], "policy": row.label, "low": min(values), "high": max(values),
                    "predicted": np.nan if row.predicted is None else row.predicted,
                    "measured": np.nan if row.measured is None else row.measured,
                }
            )  # fmt: skip
    frame = pd.DataFrame(rows, columns=["metric", "policy", "predicted", "measured", "low", "high"])
    order = {title: number for number, title in enumerate(titles.values())}
    return frame.sort_values("metric", key=lambda column: column.map(order), kind="stable", ignore_index=True)


def _runs(result: StudyResult) -> Iterator[tuple[str, Case, StoredRun]]:
    workloads = len(result.study.workloads)
    for case, run in result.found.items():
        if case.role == "run":
            yield panel_title(case, workloads), case, run


def _busy(trace: Trace, panel: str, policy: str) -> list[pd.DataFrame]:
    series = utilization_series(trace, bins=BINS)
    return [
        pd.DataFrame({"panel": panel, "kind": kind, "policy": policy, "t_s": series.middles_s, "busy": values})
        for kind, values in series.values.items()
    ]


def _batches(trace: Trace, panel: str, policy: str) -> list[pd.DataFrame]:
    series = batch_series(trace, bins=4 * BINS)
    return [
        pd.DataFrame({
            "panel": panel, "kind": trace.workers[worker], "policy": policy, "worker": worker,
            "t_s": series.middles_s, "batch": values,
        })
        for worker, values in series.values.items()
        if np.isfinite(values).any()
    ]  # fmt: skip
