"""ARFF is read as Weka and Mulan mean it, or refused with line and attribute."""

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.io import arff as scipy_arff

from hetsgd.models.data.arff import parse_arff
from hetsgd.models.data.dataset import DataError
from hetsgd.models.data.labels import LabelChoice
from hetsgd.models.data.table import Table, dense

LAST_2 = LabelChoice(last=2, several=True)
HEADER = """% a comment
@RELATION 'two labels'

@attribute size numeric
@attribute 'has wings' {0, 1}
@attribute kind {ant, bee, 'big cat'}
@attribute flies {0,1}
@attribute stings {0,1}
@data
"""
DENSE = HEADER + "1.5, 1, bee, 1, 1\n% between\n-2e1,0,'big cat',0,0\n\n0,0,ant,0,1\n"
SPARSE = HEADER + "{0 1.5, 1 1, 2 bee, 3 1, 4 1}\n{0 -2e1,2 'big cat'}\n{4 1}\n"
X = [[1.5, 1, 1, 0], [-20, 0, 0, 1], [0, 0, 0, 0]]
Y = [[1, 1], [0, 0], [0, 1]]


def features_of(table: Table) -> Any:
    return dense(table.x, np.arange(table.rows), np.dtype(np.float64)).tolist()


@pytest.mark.parametrize("text", [DENSE, SPARSE, DENSE.replace("\n", "\r\n")])
def test_dense_and_sparse_rows_read_alike(text: str) -> None:
    table = parse_arff(text.encode(), origin="f", label=LAST_2)
    assert features_of(table) == X
    assert table.y.tolist() == Y
    assert table.label_names == ("flies", "stings")


@pytest.mark.parametrize(
    ("relation", "labels"),
    [("'x: -C 2'", ("a", "b")), ("'x: -C -1'", ("c",)), ("'x: -C -2 -split 5'", ("b", "c"))],
)
def test_the_labels_that_meka_names_are_used(relation: str, labels: tuple[str, ...]) -> None:
    text = (
        f"@relation {relation}\n" + "".join(f"@attribute {name} {{0,1}}\n" for name in "abc") + "@data\n1,0,1\n0,1,0\n"
    )
    table = parse_arff(text.encode(), origin="f", label=LabelChoice())
    assert table.label_names == labels
    assert table.multilabel


def test_without_a_choice_the_last_attribute_is_the_class() -> None:
    text = "@relation x\n@attribute a real\n@attribute class {setosa,daisy,rose}\n@data\n1,setosa\n2,daisy\n"
    table = parse_arff(text.encode(), origin="f")
    assert (table.y.tolist(), table.label_names) == ([0, 1], ("setosa", "daisy", "rose"))
    numbers = text.replace("{setosa,daisy,rose}", "numeric").replace("setosa", "7").replace("daisy", "3")
    assert parse_arff(numbers.encode(), origin="f").label_names == ("3", "7")


def test_what_a_sparse_row_leaves_out_is_the_first_declared_value() -> None:
    text = (
        "@relation x\n@attribute a {1,0}\n@attribute b {NO,YES}\n@attribute n numeric\n@attribute l {1,0}\n"
        "@attribute m {0,1}\n@data\n{2 5}\n{0 0, 1 YES, 3 0, 4 1}\n"
    )
    table = parse_arff(text.encode(), origin="f", label=LAST_2)
    assert features_of(table) == [[1, 0, 5], [0, 1, 0]]
    assert table.y.tolist() == [[1, 0], [0, 1]]


def test_cells_of_a_sparse_row_may_come_in_any_order() -> None:
    table = parse_arff((HEADER + "{4 1, 0 2}\n{1 1, 0 3}\n").encode(), origin="f", label=LAST_2)
    assert features_of(table) == [[2, 0, 0, 0], [3, 1, 0, 0]]
    assert table.y.tolist() == [[0, 1], [0, 0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f: must hold rows, the file is empty"),
        ("@relation x\n", "f: must hold a line @data"),
        ("@data\n1,2\n", "f, line 1: @attribute lines must come before @data"),
        ("hello\n", "f, line 1: must be @relation, @attribute, @data or a % comment, got 'hello'"),
        ("@attribute a\n@data\n", "f, line 1: must be '@attribute NAME TYPE'"),
        ("@attribute a string\n@data\n", "f, line 1: the type of a must be numeric, real, integer or a list"),
        ("@attribute a {x,x}\n@data\n", "f, line 1: the values of a must differ"),
        (HEADER, "f: must hold rows below @data"),
        (HEADER + "1,1,bee,1\n", "f, line 10: must hold 5 values, one per @attribute, got 4"),
        (HEADER + "1,1,bee,1,1\nx,0,ant,0,1\n", "f, line 11, attribute size: must be a finite number, got 'x'"),
        (HEADER + "1,1,bee,1,1\nnan,0,ant,0,1\n", "f, line 11, attribute size: must be a finite number, got 'nan'"),
        (HEADER + "1,1,bee,1,1\n1e999,0,ant,0,1\n", "f, line 11, attribute size: must be a finite number"),
        (HEADER + "1,1,bee,1,1\n?,0,ant,0,1\n", "f, line 11, attribute size: value missing"),
        (HEADER + "1,1,cow,1,1\n", "f, line 10, attribute kind: must be one of ant, bee, big cat, got 'cow'"),
        (HEADER + "1,2,bee,1,1\n", "f, line 10, attribute has wings: must be one of 0, 1, got '2'"),
        (HEADER + "1,1,bee,1,7\n", "f, line 10, attribute stings: must be one of 0, 1, got '7'"),
        (HEADER + "1,1,bee,1,1\n{0 1}\n", "f, line 11: rows must be all sparse or all dense"),
        (HEADER + "{0 1,4 1}\n1,1,bee,1,1\n", r"f, line 11: must be \{index value"),
        (HEADER + "{0 1, 5 1}\n", "f, line 10: an index must be < 5"),
        (HEADER + "{0 1, 2 cow}\n", "f, line 10, attribute kind: must be one of ant, bee, big cat, got 'cow'"),
        (HEADER + "{0 1, 0 2, 4 1}\n", "f, line 10: each attribute may occur once, got index 0 twice"),
        (HEADER + "{0 1,\n", r"f, line 10: must be \{index value"),
        (HEADER + "{0 1}, {5}\n", r"f, line 10: must be \{index value"),
        (HEADER + "{0 1}\n{1 1}\n", "f: must hold labels, no row has any"),
    ],
)
def test_bad_files_are_refused_with_place_rule_and_value(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_arff(text.encode(), origin="f", label=LAST_2)


NUMERIC = "@relation x\n@attribute a numeric\n@attribute l {0,1}\n@attribute m {0,1}\n@data\n"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("{0 1, 9 1}\n", "f, line 6: an index must be < 3"),
        ("{0 1, 1 2}\n", "f, line 6, attribute l: a value must be one of 0, 1, got 2"),
        ("{0 1e999, 1 1}\n", "f, line 6, attribute a: a value must be finite, got inf"),
        ("{0 nan, 1 1}\n", "f, line 6, attribute a: must be a finite number, got 'nan'"),
        ("{99999999999999999999 1}\n", "f, line 6: an index must be < 3"),
    ],
)
def test_bad_numeric_sparse_rows(rows: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_arff((NUMERIC + rows).encode(), origin="f", label=LAST_2)


def test_one_class_and_labels_that_are_words_are_refused() -> None:
    text = "@relation x\n@attribute a real\n@attribute class {no,yes}\n@data\n1,no\n2,no\n"
    with pytest.raises(DataError, match="f: at least two classes are needed, every row has label no"):
        parse_arff(text.encode(), origin="f")
    with pytest.raises(DataError, match=r"f: label class must be \{0,1\}, got \{no,yes\}"):
        parse_arff(text.encode(), origin="f", label=LabelChoice(last=1, several=True))
    with pytest.raises(DataError, match=r"f: label must choose the labels: an .xml file"):
        parse_arff(text.encode(), origin="f", label=LabelChoice(several=True))
    with pytest.raises(DataError, match="f, line 6: a label must be one of no, rose, got yes"):
        parse_arff(text.replace("2,no", "2,yes").encode(), origin="f", classes=("no", "rose"))


@given(
    st.lists(
        st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from("01"), st.sampled_from("uvw")),
        min_size=2,
        max_size=8,
    ).filter(lambda rows: len({row[2] for row in rows}) > 1)
)
def test_valid_dense_text_reads_as_scipy_reads_it(rows: list[tuple[float, str, str]]) -> None:
    text = "@relation x\n@attribute a numeric\n@attribute b {0,1}\n@attribute c {u,v,w}\n@data\n"
    text += "".join(f"{a!r},{b},{c}\n" for a, b, c in rows)
    table = parse_arff(text.encode(), origin="f")
    expected, _ = scipy_arff.loadarff(io.StringIO(text))
    assert features_of(table) == [[float(row["a"]), float(row["b"])] for row in expected]
    assert [table.label_names[index] for index in table.y] == [row["c"].decode() for row in expected]


near_misses = st.text("{}0123 ,.e+-'?x\n", max_size=60)
valid_rows = st.lists(st.tuples(st.integers(-9, 9), st.sampled_from("01"), st.sampled_from("01")), max_size=4)
almost_rows = st.one_of(
    near_misses,
    st.tuples(valid_rows, near_misses, st.booleans()).map(
        lambda drawn: (
            "".join(f"{{0 {a}, 1 {b},2 {c}}}\n" if drawn[2] else f"{a},{b}, {c}\n" for a, b, c in drawn[0]) + drawn[1]
        )
    ),
)


@given(almost_rows)
def test_any_rows_are_read_as_a_plain_reader_reads_them_or_refused(rows: str) -> None:
    try:
        table = parse_arff((NUMERIC + rows).encode(), origin="f", label=LAST_2)
    except DataError:
        return
    expected = []
    for line in rows.split("\n"):
        if line.strip():
            cells = line.strip().strip("{}").split(",") if line.strip().strip("{} ") else []
            pairs = [cell.split() if "{" in line else [str(at), cell.strip()] for at, cell in enumerate(cells)]
            found = {int(index): float(value.strip("'")) for index, value in pairs}
            expected.append([found.get(column, 0.0) for column in range(3)])
    assert features_of(table) == [[row[0]] for row in expected]
    assert table.y.tolist() == [row[1:] for row in expected]
