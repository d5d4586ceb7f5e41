"""LIBSVM text is read exactly, or refused with its line."""

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.datasets import load_svmlight_file

from hetsgd.models.data.dataset import DataError
from hetsgd.models.data.libsvm import looks_like_libsvm, parse_libsvm
from hetsgd.models.data.table import SparseRows, Table, dense


def features_of(table: Table) -> NDArray[Any]:
    return dense(table.x, np.arange(table.rows), np.dtype(np.float64))


def test_rows_are_read_with_absent_features_as_zero() -> None:
    table = parse_libsvm(b"-1 1:0.5 3:-2e1\n\n+1 # nothing here\n+1 2:7 \r\n", origin="f")
    assert features_of(table).tolist() == [[0.5, 0, -20], [0, 0, 0], [0, 7, 0]]
    assert table.y.tolist() == [0, 1, 1]
    assert table.label_names == ("-1", "1")


@pytest.mark.parametrize(
    ("labels", "classes", "names"),
    [
        ("0 1 0", [0, 1, 0], ("0", "1")),
        ("+1 -1 -1", [1, 0, 0], ("-1", "1")),
        ("3 1 2", [2, 0, 1], ("1", "2", "3")),
        ("10 9.0 2", [2, 1, 0], ("2", "9", "10")),
    ],
)
def test_classes_are_numbered_in_rising_order_of_their_label(
    labels: str, classes: list[int], names: tuple[str, ...]
) -> None:
    table = parse_libsvm("\n".join(f"{label} 1:1" for label in labels.split()).encode(), origin="f")
    assert table.y.tolist() == classes
    assert table.label_names == names


def test_a_row_may_carry_several_labels_or_none() -> None:
    table = parse_libsvm(b"0,3 1:1\n 2:5\n3 \n", origin="f", multilabel=True)
    assert table.y.tolist() == [[1, 1], [0, 0], [0, 1]]
    assert table.label_names == ("0", "3")
    assert features_of(table).tolist() == [[1, 0], [0, 5], [0, 0]]


def test_the_declared_width_is_kept() -> None:
    assert parse_libsvm(b"0 1:1\n1 2:1\n", origin="f", features=9).features == 9


def test_an_index_0_means_counting_from_0() -> None:
    table = parse_libsvm(b"0 0:5 2:7\n1 1:3\n", origin="f")
    assert features_of(table).tolist() == [[5, 0, 7], [0, 3, 0]]
    declared = parse_libsvm(b"0 1:5\n1 2:3\n", origin="f", first_index=0)
    assert features_of(declared).tolist() == [[0, 5, 0], [0, 0, 3]]
    with pytest.raises(DataError, match=r"f, line 3: an index must be >= 1 \(features are counted from 1\), got 0"):
        parse_libsvm(b"0 1:1\n\n1 0:1", origin="f", first_index=1)
    with pytest.raises(DataError, match=r"f, line 2: an index must be <= 1 \(2 features are declared, counted from 0"):
        parse_libsvm(b"0 0:1\n1 2:1", origin="f", features=2)


def test_declared_classes_keep_their_order_and_bound_the_labels() -> None:
    table = parse_libsvm(b"2 1:1\n1 1:1\n", origin="f", classes=("3", "2", "1"))
    assert (table.y.tolist(), table.label_names) == ([1, 2], ("3", "2", "1"))
    several = parse_libsvm(b"2 1:1\n", origin="f", classes=("1", "2", "3"), multilabel=True)
    assert several.y.tolist() == [[0, 1, 0]]
    with pytest.raises(DataError, match="f, line 3: a label must be one of 1, 2, got 7"):
        parse_libsvm(b"1 1:1\n#\n7 1:1\n", origin="f", classes=("1", "2"))
    with pytest.raises(DataError, match="f, line 2: a label must be one of 1, 2, got 0"):
        parse_libsvm(b"1 1:1\n0,2 1:1\n", origin="f", classes=("1", "2"), multilabel=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b" \n#only a comment\n", "f: must hold rows"),
        (b"0 1:1\n\x80\xff 1:1", "f, line 2: a label must be a finite number"),
        (b"0 1:1\n1:1 2:2", "f, line 2: label missing, the line starts with '1:1'"),
        (b"0 1:1\n0 2:1", "at least two classes are needed, every row has label 0"),
        (b"0 1:1\n1 2:nan", "f, line 2: a value must be a finite number, got '2:nan'"),
        (b"0 1:1\n1 2:1e999", "f, line 2: a value must be finite, got inf"),
        (b"0 1:1\n1 -3:1", "f, line 2: an index must be a whole number, got '-3:1'"),
        (b"0 1:1\n1 2:1 2:4", "f, line 2: indices must rise within a line, got 2 after 2"),
        (b"0 1:1\n1 99999999999:1", "f, line 2: an index must be <= 10,000,000"),
        (b"0 1:1\n1 4:1", r"f, line 2: an index must be <= 3 \(3 features are declared, counted from 1\), got 4"),
        (b"0 1:1\n1 abc", "f, line 2: a feature must be index:value, got 'abc'"),
        (b"0 1:1\n1 1:1_0", "f, line 2: a value must be a finite number, got '1:1_0'"),
        (b"0 1:1\n1.5 2:1", "f, line 2: a label must be a whole number"),
        (b"0 1:1\nnan 2:1", "f, line 2: a label must be a finite number, got 'nan'"),
        (b"0 1:1\n1,2 2:1", "f, line 2: a label must be one number, got '1,2' .*multilabel = true"),
        (b"0 qid:1 1:1\n1 1:1", "f, line 1: an index must be a whole number, got 'qid:1'"),
        (b"0\n1\n", None),
    ],
)
def test_bad_text_is_refused_with_file_line_rule_and_value(text: bytes, message: str | None) -> None:
    if message is None:  # rows without any feature are fine once the width is declared
        assert features_of(parse_libsvm(text, origin="f", features=3)).tolist() == [[0.0] * 3] * 2
        message = "f: must hold features"
        with pytest.raises(DataError, match=message):
            parse_libsvm(text, origin="f")
    else:
        with pytest.raises(DataError, match=message):
            parse_libsvm(text, origin="f", features=3 if "declared" in message else None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"-1 1:1\n0 1:1", "f, line 1: labels must be whole numbers >= 0 joined by commas, got '-1'"),
        (b"0,,1 1:1", "f, line 1: labels must be whole numbers"),
        (b" 1:1\n 2:1", "f: must hold labels"),
    ],
)
def test_bad_label_sets_are_refused(text: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_libsvm(text, origin="f", multilabel=True)


def test_a_matrix_beyond_the_memory_limit_is_refused_before_it_is_built() -> None:
    table = parse_libsvm(b"0 1:1\n" * 249 + b"1 10000000:1", origin="f")
    with pytest.raises(DataError, match=r"250 rows x 10,000,000 features need 18\.6 GiB as float64"):
        features_of(table)


rows_of_pairs = st.lists(
    st.tuples(
        st.sampled_from([-1, 1]),
        st.dictionaries(st.integers(1, 30), st.floats(allow_nan=False, allow_infinity=False), max_size=8),
    ),
    min_size=2,
    max_size=12,
).filter(lambda rows: len({label for label, _ in rows}) == 2 and any(pairs for _, pairs in rows))


@given(rows_of_pairs)
def test_any_valid_text_reads_as_scikit_learn_reads_it(rows: list[tuple[int, dict[int, float]]]) -> None:
    text = "".join(
        f"{label:+d} " + " ".join(f"{index}:{pairs[index]!r}" for index in sorted(pairs)) + "\n"
        for label, pairs in rows
    ).encode()
    expected_x, expected_y = load_svmlight_file(io.BytesIO(text), n_features=30, zero_based=False)
    table = parse_libsvm(text, origin="f", features=30)
    np.testing.assert_array_equal(features_of(table), expected_x.toarray())
    np.testing.assert_array_equal(table.y, (expected_y > 0).astype(int))


near_misses = st.text("0123:.,+-e#naif \n\t", max_size=60).map(str.encode)


@given(st.one_of(st.binary(max_size=200), near_misses), st.booleans())
def test_any_bytes_are_read_as_python_reads_them_or_refused(raw: bytes, multilabel: bool) -> None:
    try:
        table = parse_libsvm(raw, origin="f", multilabel=multilabel)
    except DataError:
        return
    lines = raw.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    rows = [line.split(b"#")[0].split() for line in lines]
    rows = [row for row in rows if row]
    assert isinstance(table.x, SparseRows)
    assert table.rows == len(rows)
    indices = [int(token.split(b":")[0]) for row in rows for token in row if b":" in token]
    base = int(0 not in indices)
    for place, row in enumerate(rows):
        pairs = [token.split(b":") for token in row if b":" in token]
        own = slice(table.x.starts[place], table.x.starts[place + 1])
        assert (table.x.columns[own] + base).tolist() == [int(index) for index, _ in pairs]
        assert table.x.values[own].tolist() == [float(value) for _, value in pairs]
        labels = [name for name in row[0].split(b",") if b":" not in row[0]]
        chosen = np.flatnonzero(table.y[place]) if multilabel else [table.y[place]]
        assert [table.label_names[label] for label in chosen] == [
            str(label) for label in sorted({int(float(name)) for name in labels})
        ]


def test_the_format_is_recognised_by_its_pairs() -> None:
    assert looks_like_libsvm(b"-1 \n-1 4:1 7:2\n")
    assert looks_like_libsvm(b"0,3 1:1\n")
    assert not looks_like_libsvm(b"time,label\n12:30,1\n")
    assert not looks_like_libsvm(b"a,b,c\n1,2,3\n")
