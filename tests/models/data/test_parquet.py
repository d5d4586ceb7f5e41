"""Parquet tables are read exactly, or refused with column and row."""

import io
import tracemalloc
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsgd.models.data import source_file
from hetsgd.models.data.dataset import DataError
from hetsgd.models.data.labels import LabelChoice
from hetsgd.models.data.parquet import parse_parquet


def written(columns: dict[str, Any], **options: Any) -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), out, **options)
    return out.getvalue()


COLUMNS: dict[str, Any] = {"a": [1, 2, 3], "b": [0.5, -1.0, 2.0], "c": [True, False, True], "kind": [4, 9, 4]}


@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}, {"row_group_size": 1}])
def test_columns_of_numbers_are_features_and_the_last_one_the_label(options: dict[str, Any]) -> None:
    table = parse_parquet(written(COLUMNS, **options), origin="f")
    assert np.asarray(table.x).tolist() == [[1, 0.5, 1], [2, -1, 0], [3, 2, 1]]
    assert (table.y.tolist(), table.label_names) == ([0, 1, 0], ("4", "9"))


def test_labels_may_be_words_categories_or_several_columns() -> None:
    words = {"kind": ["b", "a", "b"], "a": [1, 2, 3]}
    choice = LabelChoice(names=("kind",))
    for column in (pyarrow.array(words["kind"]), pyarrow.array(words["kind"]).dictionary_encode()):
        table = parse_parquet(written({**words, "kind": column}), origin="f", label=choice)
        assert (table.y.tolist(), table.label_names) == ([1, 0, 1], ("a", "b"))
    marks = {"a": [1, 2], "red": [0, 1], "round": [True, True]}
    several = parse_parquet(written(marks), origin="f", label=LabelChoice(last=2, several=True))
    assert (several.y.tolist(), several.label_names) == ([[0, 1], [1, 1]], ("red", "round"))


@pytest.mark.parametrize(
    ("changes", "choice", "message"),
    [
        ({"a": ["x", "y", "z"]}, {}, "f, column a: must be numbers, got string"),
        ({"a": [1, None, 3]}, {}, "f, column a, row 1: value missing"),
        ({"b": [0.0, 1.0, float("nan")]}, {}, "f, column b, row 2: must be a finite number, got nan"),
        ({"kind": [1, 1, 1]}, {}, "f: at least two classes are needed, every row has label 1"),
        ({"kind": [1, 1, None]}, {}, "f, column kind, row 2: value missing"),
        ({"kind": ["u", None, "v"]}, {}, "f, column kind, row 1: value missing"),
        ({"kind": [1.5, 1.0, 2.0]}, {}, "f, row 0: a label must be a whole number"),
        ({"__index_level_0__": [0, 1, 2]}, {}, "f: every column must have a name, got '__index_level_0__'"),
        ({}, {"names": ("z",)}, "f, columns: label column 'z' is not there, the columns are a, b, c, kind"),
        ({}, {"last": 2, "several": True}, "f, row 0, label kind: a label must be 0 or 1, got 4"),
        ({}, {"several": True}, "f: label must name the label columns of a multi-label table"),
    ],
)
def test_bad_tables_are_refused_by_column_row_rule_and_value(
    changes: dict[str, Any], choice: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        parse_parquet(written(COLUMNS | changes), origin="f", label=LabelChoice(**choice))


def test_a_label_outside_the_declared_classes_is_refused() -> None:
    with pytest.raises(DataError, match="f, row 1: a label must be one of 4, 5, got 9"):
        parse_parquet(written(COLUMNS), origin="f", classes=("4", "5"))


def test_tables_without_rows_or_features_are_refused() -> None:
    with pytest.raises(DataError, match="f: must hold rows of features and a label, got 0 rows of 2"):
        parse_parquet(written({"a": pyarrow.array([], "int64"), "b": pyarrow.array([], "int64")}), origin="f")
    with pytest.raises(DataError, match="f: must hold rows of features and a label, got 2 rows of 1"):
        parse_parquet(written({"a": [1, 2]}), origin="f")


CHECKED = written(
    {"a": list(range(50)), "b": [0.25 * row for row in range(50)], "kind": [0, 1] * 25}, write_page_checksum=True
)


@given(st.data())
def test_a_damaged_file_is_refused_or_read_as_it_was(data: st.DataObject) -> None:
    raw = bytearray(CHECKED)
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.just(len(raw)), st.integers(0, len(raw))))
    try:
        table = parse_parquet(bytes(raw[:cut]), origin="f")
    except DataError:
        return
    if bytes(raw[:cut]) == CHECKED:
        assert np.asarray(table.x).tolist() == [[row, 0.25 * row] for row in range(50)]
    # What lies outside the checksummed pages (a name, a number of rows) may change, but stays one finite table.
    assert table.rows > 0
    assert np.isfinite(np.asarray(table.x)).all()


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(DataError, match="f: must be a whole Parquet file"):
        parse_parquet(b"PAR1" + raw + b"PAR1", origin="f")


def test_text_that_repeats_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, word = 20_000, "w" * 10_000  # 200 MB as text, a few kB in the file
    columns = {"a": pyarrow.array(np.arange(rows)), "kind": pyarrow.array(["v", word] * (rows // 2))}
    raw = written(columns)
    assert len(raw) < 2**20
    tracemalloc.start()
    table = parse_parquet(raw, origin="f")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (table.rows, table.label_names) == (rows, ("v", word))
    assert table.y[:3].tolist() == [0, 1, 0]
    assert peak < 2**24
    with pytest.raises(DataError, match="f, column kind: must be numbers, got string"):
        parse_parquet(raw, origin="f", label=LabelChoice(first=1))
    monkeypatch.setattr(source_file, "MAX_CONTENT_BYTES", 2**17)
    with pytest.raises(DataError, match=r"f: must unpack to at most 128\.0 KiB on this machine, got 20,000 rows x 2"):
        parse_parquet(raw, origin="f")


def test_a_column_of_codes_is_read_by_what_they_stand_for() -> None:
    codes = pyarrow.array([2, 1, 2]).dictionary_encode()
    words = pyarrow.array(["no", "yes", "no"]).dictionary_encode()
    table = parse_parquet(written({"a": codes, "kind": words}), origin="f")
    assert np.asarray(table.x).tolist() == [[2], [1], [2]]
    assert (table.y.tolist(), table.label_names) == ([0, 1, 0], ("no", "yes"))
