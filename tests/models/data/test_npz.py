"""NPZ archives are read exactly whoever wrote them, or refused with the array."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy.sparse import csr_array, save_npz

from hetsgd.models.data import source_file
from hetsgd.models.data.dataset import DataError
from hetsgd.models.data.npz import parse_npz
from hetsgd.models.data.table import SparseRows, Table, dense

X = np.array([[1.5, 0, -2], [0, 0, 4]])
Y = np.array([7, 3])


def archive(compressed: bool = False, **arrays: Any) -> bytes:
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **arrays)
    return out.getvalue()


def csr_parts(x: NDArray[Any], prefix: str) -> dict[str, Any]:
    sparse = csr_array(x)
    parts = {"data": sparse.data, "indices": sparse.indices, "indptr": sparse.indptr, "shape": np.array(x.shape)}
    return {prefix + name: part for name, part in parts.items()}


def features_of(table: Table) -> Any:
    return dense(table.x, np.arange(table.rows), np.dtype(np.float64)).tolist()


@pytest.mark.parametrize(
    "arrays",
    [
        {"x": X, "y": Y},
        {"X": np.asfortranarray(X, dtype=">f4"), "labels": Y.astype(np.uint8)},
        {"pixels": X.astype(np.float16), "digit": Y},
        {"x": X.reshape(2, 3, 1), "y": Y.reshape(2, 1)},
        {"x_train": X, "y_train": Y},
        csr_parts(X, "x_") | {"y": Y},
        csr_parts(X, "") | {"y": Y, "format": np.array("csr")},
        {"x": X, "y": Y, "ids": np.arange(2)},
    ],
    ids=["plain", "big-endian", "own names", "flattened", "train", "csr", "scipy", "more"],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_each_layout_reads_alike(arrays: dict[str, Any], compressed: bool) -> None:
    table = parse_npz(archive(compressed, **arrays), origin="f")
    assert features_of(table) == X.tolist()
    assert (table.y.tolist(), table.label_names) == ([1, 0], ("3", "7"))


def test_scipys_own_file_reads_once_labels_are_added() -> None:
    out = io.BytesIO()
    save_npz(out, csr_array(X))
    with zipfile.ZipFile(out, "a") as kept:
        labels = io.BytesIO()
        np.save(labels, Y)
        kept.writestr("y.npy", labels.getvalue())
    assert features_of(parse_npz(out.getvalue(), origin="f")) == X.tolist()


def test_labels_may_be_words_or_marks_or_chosen_by_name() -> None:
    words = parse_npz(archive(x=X, y=np.array(["b", "a"])), origin="f")
    assert (words.y.tolist(), words.label_names) == ([1, 0], ("a", "b"))
    several = parse_npz(archive(x=X, y=np.array([[True, False], [True, True]])), origin="f")
    assert (several.y.tolist(), several.label_names) == ([[1, 0], [1, 1]], ("0", "1"))
    chosen = parse_npz(archive(x=X, y=Y, other=np.array([0, 1])), origin="f", label="other")
    assert chosen.y.tolist() == [0, 1]


def test_a_test_part_of_its_own_is_kept_apart() -> None:
    raw = archive(x_train=X, y_train=Y, x_test=X[:1] + 1, y_test=Y[:1])
    with pytest.raises(DataError, match="every row has label 7"):
        parse_npz(raw, origin="f")
    raw = archive(x_train=X, y_train=Y, x_test=X + 1, y_test=Y[::-1])
    table = parse_npz(raw, origin="f")
    assert (table.rows, table.test_start, table.y.tolist()) == (4, 2, [1, 0, 0, 1])


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({"x": X}, {}, "f: one array must be the labels"),
        ({"x": X, "y": Y, "labels": Y}, {}, "f: one array must be the labels"),
        ({"y": Y, "a": X, "b": X}, {}, "f: one array must be the features"),
        ({"x": X, "y": Y}, {"label": "z"}, "f: label array 'z' is not there, the arrays are x, y"),
        ({"x": X, "y": Y[:1]}, {}, r"f, array y: must have one entry per row \(2\), got shape \(1,\)"),
        ({"x": X, "y": np.array([1, 1])}, {}, "f: at least two classes are needed, every row has label 1"),
        ({"x": X, "y": np.array([0.5, 1])}, {}, "f, array y, row 0: a label must be a whole number"),
        ({"x": X, "y": np.array([0, np.nan])}, {}, "f, array y, row 1: a label must be a whole number"),
        ({"x": X, "y": Y}, {"classes": ("3",)}, "f, array y, row 0: a label must be one of 3, got 7"),
        ({"x": X, "y": np.array([[0, 1], [0, 2]])}, {}, "f, array y, row 1, label 1: a label must be 0 or 1, got 2"),
        ({"x": X * np.nan, "y": Y}, {}, "f, array x, row 0, column 0: must be finite, got nan"),
        ({"x": X[0], "y": Y}, {}, r"f, array x: features must be numbers of shape \(rows, features\)"),
        ({"x": X[:0], "y": Y[:0]}, {}, "features must be numbers"),
        ({"x": X.astype(complex), "y": Y}, {}, "f, array x: must hold numbers or text"),
        ({"x": np.array([["a", "b"]] * 2), "y": Y}, {}, "f, array x: features must be numbers"),
        ({"x": np.array([{}, []], dtype=object), "y": Y}, {}, "f, array x: must hold numbers or text"),
        (csr_parts(X, "x_") | {"y": Y, "x_shape": np.array([2, 2])}, {}, r"indices must lie in 0\.\.1 .*, got 0\.\.2"),
        (csr_parts(X, "x_") | {"y": Y, "x_shape": np.array([3, 3])}, {}, "indptr must rise from 0 to 3 in 3 steps"),
        (csr_parts(X, "x_") | {"y": Y, "x_indices": np.array([0, 0, 2])}, {}, "row 0: a column may occur once, got 0"),
        (csr_parts(X, "x_") | {"y": Y, "x_data": np.array([1, np.inf, 1])}, {}, "row 0, column 2: must be finite"),
        (csr_parts(X, "") | {"y": Y, "format": np.array("csc")}, {}, "f, array format: must be csr"),
        ({"x_data": X[0], "y": Y}, {}, "f: the CSR parts must be complete, missing x_indices, x_indptr, x_shape"),
        ({"x": X, "y": Y, "y_test": Y}, {}, "f: array y_test must come with the features x_test"),
    ],
)
def test_bad_archives_are_refused_by_array_rule_and_value(
    arrays: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        parse_npz(archive(**arrays), origin="f", **options)


def test_a_header_that_promises_more_than_is_there_allocates_nothing() -> None:
    raw = archive(x=X, y=Y).replace(b"(2, 3)", b"(2000000000, 3000000000)"[:6])
    with pytest.raises(DataError, match=r"f: must be a whole \.npz archive"):  # the zip checksum tells
        parse_npz(raw, origin="f")
    array = io.BytesIO()
    np.save(array, X)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as kept:
        kept.writestr("x.npy", array.getvalue().replace(b"(2, 3), }      ", b"(9999, 99999),}"))
    with pytest.raises(DataError, match=r"f, array x: must hold \(9999, 99999\) values of float64, got 48 bytes"):
        parse_npz(out.getvalue(), origin="f")


matrices = hnp.arrays(
    st.sampled_from([np.float32, np.float64, np.int16, np.uint8]),
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=6),
    elements=st.integers(0, 200),
)


@given(matrices, st.booleans(), st.data())
def test_a_damaged_archive_reads_as_numpy_reads_it_or_is_refused(
    x: NDArray[Any], compressed: bool, data: st.DataObject
) -> None:
    y = np.arange(len(x)) % 2
    parts: dict[str, Any] = csr_parts(x, "x_") if data.draw(st.booleans()) else {"x": x}
    raw = bytearray(archive(compressed, **parts, y=y))
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.just(len(raw)), st.integers(0, len(raw))))
    try:
        table = parse_npz(bytes(raw[:cut]), origin="f")
    except DataError:
        return
    assert features_of(table) == x.tolist()
    assert table.y.tolist() == y.tolist()
    assert isinstance(table.x, SparseRows) == ("x" not in parts)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(DataError, match=r"f: must be a whole \.npz archive"):
        parse_npz(b"PK\x03\x04" + raw, origin="f")


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "sprung",))

    raw = archive(x=X, y=np.array([Trap(), Trap()], dtype=object))
    with pytest.raises(DataError, match="f, array y: must hold numbers or text"):
        parse_npz(raw, origin="f")
    assert not (tmp_path / "sprung").exists()


def test_an_archive_that_unpacks_to_too_much_is_refused_before_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = archive(True, x=np.zeros((1000, 1000)), y=np.arange(1000) % 2)
    assert len(raw) < 20_000
    monkeypatch.setattr(source_file, "MAX_CONTENT_BYTES", 2**20)
    with pytest.raises(DataError, match=r"f: must unpack to at most 1\.0 MiB on this machine, got 7\.6 MiB"):
        parse_npz(raw, origin="f")
