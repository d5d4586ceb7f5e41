"""Every column of a stored trace is documented, in its file and on the page, with the same words."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hetsgd.models.trace import SCHEMA, Trace
from hetsgd.studies.trace_columns import CODES, COLUMNS, TABLES
from hetsgd.studies.trace_store import write_trace

PAGE = (Path(__file__).parents[2] / "docs" / "traces.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", SCHEMA)
def test_the_page_has_every_column_of_a_table_and_no_other(table: str) -> None:
    section = PAGE.split(f"\n## {table}\n", 1)[1].split("\n#", 1)[0]
    assert TABLES[table] in section
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", section, flags=re.MULTILINE)
    assert [name for name, _, _ in rows] == [name for name, _ in SCHEMA[table]]
    assert {name: (unit, meaning) for name, unit, meaning in rows} == COLUMNS[table]


def test_units_suit_names_and_types() -> None:
    for table, columns in SCHEMA.items():
        for name, kind in columns:
            unit = COLUMNS[table][name][0]
            assert (unit == "s") == name.endswith("_s"), (table, name)
            assert (unit == "text") == name.endswith("_text"), (table, name)
            if kind == "i1":
                assert unit == f"code into {'/'.join(CODES[name])}"


def test_the_files_carry_units_and_meanings(small_run: Callable[..., Trace], tmp_path: Path) -> None:
    write_trace(small_run(), tmp_path)
    for table in SCHEMA:
        schema = pq.read_schema(tmp_path / f"{table}.parquet")
        assert schema.metadata[b"description"].decode() == TABLES[table]
        found = {
            field.name: (field.metadata[b"unit"].decode(), field.metadata[b"description"].decode()) for field in schema
        }
        assert found == COLUMNS[table]
