"""Traces on disk: what is read is what was written, tables, texts and totals alike."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from hetsgd.models.invariants import check
from hetsgd.models.learner import NoLearner
from hetsgd.models.machine_file import load_machine
from hetsgd.models.metrics import metrics
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.run import RunSettings, StopRule, TraceLevel
from hetsgd.models.trace import SCHEMA, Trace
from hetsgd.models.workload_file import load_workload
from hetsgd.sim import simulate
from hetsgd.studies.trace_store import TraceStoreError, frame, read_trace, write_trace

SmallRun = Callable[..., Trace]


def assert_same(one: Trace, other: Trace) -> None:
    for name in SCHEMA:
        assert one[name].dtype == other[name].dtype
        assert one[name].tobytes() == other[name].tobytes(), name
    assert one.texts == other.texts
    assert one.totals == other.totals
    assert (one.places, one.workers) == (other.places, other.workers)
    assert list(one.places) == list(other.places)
    for field in ("level", "elapsed_s", "logical_cpus", "status", "stop_reason"):
        assert getattr(one, field) == getattr(other, field)


@pytest.mark.parametrize("level", ["none", "summary", "full"])
def test_a_trace_comes_back_as_it_was(small_run: SmallRun, tmp_path: Path, level: TraceLevel) -> None:
    trace = small_run(level)
    write_trace(trace, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        *(f"{name}.parquet" for name in SCHEMA), "texts.parquet", "totals.json",
    }  # fmt: skip
    found = read_trace(tmp_path)
    assert_same(trace, found)
    assert check(found) == []
    assert metrics(found).staleness == metrics(trace).staleness
    found.span("compute", "gpu", "gpu", 9, 1.0, 2.0)  # still a trace that can be written to
    assert found.totals.busy_s["gpu", "compute"] == trace.totals.busy_s["gpu", "compute"] + 1.0


def test_an_empty_trace_comes_back(tmp_path: Path) -> None:
    write_trace(Trace(), tmp_path)
    assert_same(Trace(), read_trace(tmp_path))


def test_a_simulated_run_comes_back_with_the_same_metrics_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    run = RunSettings(stop=StopRule(seconds=0.5), lookahead=1)
    plan = Plan(
        machine=load_machine("aws-p3.16xlarge", {}),
        workload=load_workload("covtype", data=False).workload,
        policy="adaptive-hogbatch",
        recipe=recipe("adaptive-hogbatch"),
        run=run,
    )
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        write_trace(simulate(plan, NoLearner()), tmp_path / name)
    trace, found = simulate(plan, NoLearner()), read_trace(tmp_path / "one")
    assert_same(trace, found)
    assert repr(metrics(found, plan=plan)) == repr(metrics(trace, plan=plan))  # nan is not equal to itself
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes(), path.name


def test_files_are_zstd_parquet_with_the_columns_of_the_schema(small_run: SmallRun, tmp_path: Path) -> None:
    write_trace(small_run(), tmp_path)
    for name, columns in SCHEMA.items():
        file = pq.ParquetFile(tmp_path / f"{name}.parquet")
        assert file.schema_arrow.names == [column for column, _ in columns]
        if file.metadata.num_rows:
            assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_totals_are_strict_json(small_run: SmallRun, tmp_path: Path) -> None:
    write_trace(small_run(), tmp_path)
    text = (tmp_path / "totals.json").read_text()
    head = json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))
    assert head["schema"] == "hetsgd.trace/1"
    assert head["totals"]["staleness"]["cpu"] == [[0, 2], [1, 3], [2, 1]]


def test_a_frame_has_words_for_codes(small_run: SmallRun) -> None:
    trace = small_run()
    spans = frame(trace, "spans")
    assert list(spans.columns) == ["kind", "place", "worker", "id", "start_s", "end_s", "bytes"]
    seconds = (spans["end_s"] - spans["start_s"]).groupby([spans["place"], spans["kind"]], observed=True).sum()
    assert seconds["cpu[0]", "compute"] == pytest.approx(7.5)
    fates = frame(trace, "fates").set_index("id")
    assert fates.loc[5, "fate"] == "lost"
    assert fates.loc[5, "reason"] == "killed"
    for name in SCHEMA:
        assert isinstance(frame(trace, name), pd.DataFrame)
    with pytest.raises(ValueError, match=r"table: there is no 'span', did you mean 'spans'\? known: assignments, "):
        frame(trace, "span")


def test_losses_that_are_not_numbers_stay_what_they_are(tmp_path: Path) -> None:
    trace = Trace()
    trace.tables["evaluations"].add((0, 0, 0, 0.0, 0.0, float("inf"), float("nan"), 0.5, float("nan")))
    write_trace(trace, tmp_path)
    row = read_trace(tmp_path)["evaluations"][0]
    assert row["train"] == np.inf
    assert np.isnan(row["test"])


def test_a_missing_or_damaged_file_is_named(small_run: SmallRun, tmp_path: Path) -> None:
    with pytest.raises(TraceStoreError, match=r"holds no whole trace: .*totals\.json"):
        read_trace(tmp_path)
    write_trace(small_run(), tmp_path)
    (tmp_path / "spans.parquet").write_bytes(b"not a table")
    with pytest.raises(TraceStoreError, match=r"must be a trace of hetsgd\.trace/1"):
        read_trace(tmp_path)
    (tmp_path / "spans.parquet").unlink()
    with pytest.raises(TraceStoreError, match=r"holds no whole trace: .*spans\.parquet"):
        read_trace(tmp_path)
    (tmp_path / "totals.json").write_text('{"schema": "hetsgd.trace/9"}')
    with pytest.raises(TraceStoreError, match=r"schema must be hetsgd\.trace/1, got 'hetsgd\.trace/9'"):
        read_trace(tmp_path)
    (tmp_path / "totals.json").write_text("{}")
    with pytest.raises(TraceStoreError, match=r"must be a trace of hetsgd\.trace/1: KeyError\('schema'\)"):
        read_trace(tmp_path)
    (tmp_path / "totals.json").write_text("[")
    with pytest.raises(TraceStoreError, match="JSONDecodeError"):
        read_trace(tmp_path)
