"""The trace: what each level keeps, how tables are packed, and totals that do not depend on the level."""

import numpy as np
import pytest

from hetsgd.models.run import TraceLevel
from hetsgd.models.trace import SCHEMA, SPAN_KINDS, Table, Trace


@pytest.mark.parametrize("rows", [0, 1, 8191, 8192, 8193, 20000])
def test_a_table_gives_back_its_rows_in_order_across_chunks(rows: int) -> None:
    table = Table([("id", "i8"), ("value", "f8")])
    for row in range(rows):
        table.add((row, row / 7))
    assert len(table) == rows
    array = table.array()
    assert array["id"].tolist() == list(range(rows))
    assert array["value"].tolist() == [row / 7 for row in range(rows)]
    assert table.array() is array  # nothing was added: no copy
    table.add((rows, 0.5))
    assert table.array()["id"].tolist() == list(range(rows + 1))


def test_many_rows_can_be_added_at_once_and_sorted() -> None:
    table = Table([("id", "i8"), ("value", "f8")])
    table.add((3, 0.0))
    table.extend(np.array([(1, 1.0), (3, 2.0), (2, 3.0)], dtype=[("id", "i8"), ("value", "f8")]))
    assert table.array()["id"].tolist() == [3, 1, 3, 2]
    table.sort("id")
    assert table.array()["value"].tolist() == [1.0, 3.0, 0.0, 2.0]


def test_a_table_that_is_not_kept_stays_empty() -> None:
    table = Table([("id", "i8")], enabled=False)
    table.add((1,))
    assert len(table) == 0
    assert table.array().dtype.names == ("id",)


@pytest.mark.parametrize(
    ("level", "kept"),
    [
        ("none", {"evaluations", "epochs", "faults"}),
        ("summary", set(SCHEMA) - {"spans", "updates", "calls", "stats"}),
        ("full", set(SCHEMA)),
    ],
)
def test_each_level_keeps_its_tables(level: TraceLevel, kept: set[str]) -> None:
    trace = Trace(level=level)
    for name, columns in SCHEMA.items():
        trace.tables[name].add(tuple(0 for _ in columns))
    assert {name for name in SCHEMA if len(trace[name])} == kept


@pytest.mark.parametrize("level", ["none", "summary", "full"])
def test_totals_are_the_same_at_every_level(level: TraceLevel) -> None:
    trace = Trace(level=level)
    trace.span("compute", "cpu[0]", "cpu", 0, 1.0, 1.5)
    trace.span("compute", "cpu[0]", "cpu", 1, 2.0, 2.25)
    trace.span("pull", "pcie:down", "gpu", 2, 2.0, 3.0, 400)
    trace.update("cpu", 5, 2, 1.5, "cpu", 0, 0, 8)
    assert trace.totals.busy_s == {("cpu[0]", "compute"): 0.75, ("pcie:down", "pull"): 1.0}
    assert trace.totals.bytes == {"pcie:down": 400}
    assert trace.totals.updates == {"cpu": 1.0}
    assert trace.totals.staleness["cpu"] == {2: 1}  # version written - 1 - version read
    assert (len(trace.spans), len(trace.updates)) == ((3, 1) if level == "full" else (0, 0))


def test_a_text_has_one_code() -> None:
    trace = Trace()
    assert trace.code("a") == trace.code("a") != trace.code("b")
    trace.span("merge", "merge", "", 7, 0.0, 1.0)
    row = trace["spans"][0]
    assert (SPAN_KINDS[row["kind"]], trace.texts[row["place_text"]], int(row["id"])) == ("merge", "merge", 7)


def test_a_million_updates_with_their_spans_stay_under_100_mb() -> None:
    """A full trace of a lane update is one row of two tables; the rest (assignments, calls) is shared by a team."""
    assert 1_000_000 * (np.dtype(SCHEMA["updates"]).itemsize + np.dtype(SCHEMA["spans"]).itemsize) <= 90e6
