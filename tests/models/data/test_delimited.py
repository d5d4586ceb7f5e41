"""Delimited tables are read exactly, or refused with line and column."""

import csv
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsgd.models.data.dataset import DataError
from hetsgd.models.data.delimited import parse_delimited


def read(text: str, **options: Any) -> tuple[Any, Any, tuple[str, ...]]:
    table = parse_delimited(text.encode(), origin="f", **options)
    assert isinstance(table.x, np.ndarray)
    return table.x.tolist(), table.y.tolist(), table.label_names


EXPECTED = ([[1.0, 2.5], [3.0, 4.0]], [1, 0], ("7", "9"))


@pytest.mark.parametrize(
    "text",
    [
        "a,b,kind\n1,2.5,9\n3,4,7\n",
        "1,2.5,9\n3,4,7",
        "a;b;kind\n1;2.5;9\n3;4;7\n",
        "a\tb\tkind\n1\t2.5\t9\n3\t4\t7\n",
        "1 2.5  9\n3 4 7\n",
        '\ufeff"a","b","kind"\r\n"1", 2.5,9\r\n\r\n3,4,7\r\n\r\n',
        "0,1,kind\n1,2.5,9\n3,4,7\n",
    ],
    ids=["comma", "headless", "semicolon", "tab", "blank", "quoted-windows", "numbered-header"],
)
def test_header_delimiter_and_label_column_are_found(text: str) -> None:
    assert read(text) == EXPECTED


def test_the_label_column_is_chosen_by_name() -> None:
    assert read("kind,a,b\n9,1,2.5\n7,3,4\n", label="kind") == EXPECTED


def test_words_are_classes_in_alphabetical_order() -> None:
    assert read("5,1,setosa\n6,2,daisy\n7,3,setosa\n") == ([[5, 1], [6, 2], [7, 3]], [1, 0, 1], ("daisy", "setosa"))


def test_several_label_columns_make_a_multi_label_table() -> None:
    text = "a,red,b,round\n1,0,2.5,1\n3,1,4,1\n"
    expected = ([[1.0, 2.5], [3.0, 4.0]], [[0, 1], [1, 1]], ("red", "round"))
    assert read(text, label="red,round", multilabel=True) == expected
    assert read(text, label=["red", "round"], multilabel=True) == expected


def test_integers_are_kept_small_and_large_values_exactly() -> None:
    small = parse_delimited(b"1,-32768,0\n2,32767,1\n", origin="f").x
    large = parse_delimited(b"1,-32769,0\n2,32767,1\n", origin="f").x
    assert isinstance(small, np.ndarray)
    assert isinstance(large, np.ndarray)
    assert [str(x.dtype) for x in (small, large)] == ["int16", "float64"]
    assert large.tolist() == [[1, -32769], [2, 32767]]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "f: must hold rows, the file is empty"),
        ("a,b,c\n", {}, "f: must hold rows below the header"),
        ("1,2,0\n1,2\n1,2,1\n", {}, "f, line 2: must hold 3 fields as line 1 does, got 2"),
        ("a,b,c\n\n1,2,0\n1,x,1\n", {}, r"f, line 4, column 2 \(b\): must be a finite number, got 'x'"),
        ("1,2,0\n1,inf,1\n", {}, "f, line 2, column 2: must be a finite number, got 'inf'"),
        ("1,2,0\n1,1e999,1\n", {}, "f, line 2, column 2: must be a finite number, got '1e999'"),
        ("1,2,0\n1,,1\n", {}, "f, line 2, column 2: value missing, got ''"),
        ("1,2,0\n1,?,1\n", {}, "f, line 2, column 2: value missing, got '\\?'"),
        ("?,NA,0\n1,2,1\n", {}, "f, line 1, column 1: value missing"),
        ("1,2,0\n1,2,\n", {}, "f, line 2, column 3: label missing"),
        ("1,2,no\n1,2,\n", {}, "f, line 2, column 3: label missing"),
        ("1,2,no\n1,2,yes\n1,2,3\n", {}, "f, line 3, column 3: all labels must be names"),
        ("1,2,no\n1,2,yes,5\n", {}, "f, line 2: must hold 3 fields"),
        ("1,2,0\n1,2,0\n", {}, "at least two classes are needed, every row has label 0"),
        ("1,2,no\n1,2,no\n", {}, "at least two classes are needed, every row has label no"),
        ("a,b,c\n1,2,0\n\n1,2,1.5\n", {}, "f, line 4: a label must be a whole number"),
        ("1\n2\n", {}, "must hold features and a label"),
        ("1,5;2,5;0\n2,5;3,5;1\n", {}, "f, line 1, column 2: must be a finite number, got '5;2'"),
        (",a,c\n0,1,1\n1,1,0\n", {}, "f, line 1: every column must have a name, column 1 has none"),
        ("a,b,c\n1,2,0\n", {"label": "d"}, "label column 'd' is not there, the columns are a, b, c"),
        ("a,c,c\n1,2,0\n", {"label": "c"}, "label column 'c' is there more than once"),
        ("a,b,c\n1,2,0\n", {"label": ["a", "b"]}, "label must be one column, got a, b"),
        ("a,b,c\n1,2,0\n", {"multilabel": True}, "label must name the label columns"),
        ("a,b\n1,0\n", {"multilabel": True, "label": "a,b"}, "at least one column must be a feature"),
        (
            "a,b,c\n1,2,0\n\n1,1,3\n",
            {"multilabel": True, "label": "c"},
            r"f, line 4, column 3 \(c\): a label must be 0 or 1, got 3",
        ),
        ("1,2,0\n1,2\0,1\n", {}, "f, line 2: must be text, got a zero byte"),
    ],
)
def test_bad_tables_are_refused_with_file_place_rule_and_value(
    text: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read(text, **options)


def test_bytes_that_are_no_text_are_refused_with_their_line() -> None:
    with pytest.raises(DataError, match="f, line 2: must be UTF-8 text, got byte 0xff"):
        parse_delimited(b"1,2,3\n\xff\xfe", origin="f")


near_misses = st.text('012.,;+-eEnaifx"_ \n\t', max_size=60).map(str.encode)
tables = st.lists(
    st.tuples(st.floats(width=32), st.integers(-3, 3), st.sampled_from(["0", "1", "x", ""])), min_size=1, max_size=6
).map(lambda rows: "\n".join(f"{a},{b},{label}" for a, b, label in rows).encode())


@given(st.one_of(st.binary(max_size=200), near_misses, tables))
def test_any_bytes_are_read_as_python_reads_them_or_refused(raw: bytes) -> None:
    try:
        table = parse_delimited(raw, origin="f")
    except DataError:
        return
    text = raw.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    delimiter = max(",;\t", key=text.strip("\n").split("\n")[0].count)
    lines = [line for line in text.rstrip().split("\n") if line]
    if delimiter in lines[0]:
        rows = list(csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter))
    else:
        rows = [line.split() for line in lines]
    rows = rows[len(rows) - table.rows :]
    assert len(lines) - table.rows in (0, 1)
    assert isinstance(table.x, np.ndarray)
    assert table.x.tolist() == [[float(field) for field in row[:-1]] for row in rows]
    for row, label in zip(rows, table.y, strict=True):
        name = table.label_names[label]
        assert name == row[-1].strip() or float(name) == float(row[-1])
