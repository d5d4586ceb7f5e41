"""Wide sparse sets stay CSR and mean the same as dense ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from hetsgd.models.data import assembly
from hetsgd.models.data.catalogue import load
from hetsgd.models.data.dataset import DataError, Dataset
from hetsgd.models.data.rows import gather


@pytest.fixture
def text(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    lines = []
    for row in range(60):
        columns = np.sort(rng.permutation(40)[:5]) + 1
        lines.append(f"{row % 3} " + " ".join(f"{column}:{rng.integers(1, 9)}" for column in columns))
    path = tmp_path / "wide.svm"
    path.write_text("\n".join([*lines, "0 1:0 2:4"]) + "\n", encoding="utf-8")  # one explicit zero
    return path


def densified(x: Any) -> NDArray[Any]:
    return gather(x, slice(0, x.shape[0]), np.empty(x.shape, x.dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sparse_set_holds_the_rows_of_the_dense_one(text: Path, dtype: Any) -> None:
    plain = load(text, scaling="none", dtype=dtype)
    sparse = load(text, scaling="none", dtype=dtype, sparse=True)
    assert (plain.sparse, sparse.sparse) == (False, True)
    assert isinstance(sparse.train_x, csr_array)
    assert sparse.train_x.dtype == dtype
    for part in ("train", "test"):
        np.testing.assert_array_equal(densified(getattr(sparse, f"{part}_x")), getattr(plain, f"{part}_x"))
        np.testing.assert_array_equal(getattr(sparse, f"{part}_y"), getattr(plain, f"{part}_y"))
    assert (sparse.rows, sparse.test_rows, sparse.features) == (plain.rows, plain.test_rows, plain.features)
    assert sparse.density == plain.density
    assert sparse.class_balance == plain.class_balance
    assert "kept sparse" in sparse.source


def test_unit_scaling_of_a_sparse_set_keeps_its_zeros(text: Path) -> None:
    raw = load(text, scaling="none", sparse=True)
    scaled = load(text, scaling="unit", sparse=True)
    largest = densified(raw.train_x).max(axis=0)
    np.testing.assert_allclose(densified(scaled.train_x), densified(raw.train_x) / np.where(largest, largest, 1))
    assert scaled.train_x.data.max() == 1
    assert scaled.density == raw.density
    np.testing.assert_allclose(densified(scaled.test_x), densified(raw.test_x) / np.where(largest, largest, 1))


def test_scalings_that_would_fill_a_sparse_set_are_refused(text: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="scaling 'standard' of a sparse set shifts every zero: use scaling=\"none\""):
        load(text, scaling="standard", sparse=True)
    (tmp_path / "minus.svm").write_text("0 1:-2\n1 2:1\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"'unit' of a sparse set needs values >= 0 there, got -2\.0"):
        load(tmp_path / "minus.svm", sparse=True, test_fraction=0)


def test_size_decides_where_nothing_is_said(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not load(text).sparse
    monkeypatch.setattr(assembly, "DENSE_BYTES", 61 * 40 * 4 - 1)
    assert load(text).sparse
    assert not load(text, sparse=False).sparse


def test_a_full_matrix_stays_dense_whatever_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "DENSE_BYTES", 1)
    path = tmp_path / "full.svm"
    path.write_text("0 1:1 2:2 3:3\n1 1:4 2:5 3:6\n", encoding="utf-8")
    assert not load(path, test_fraction=0).sparse
    (tmp_path / "table.csv").write_text("0,0,0,0\n0,0,1,1\n", encoding="utf-8")
    assert not load(tmp_path / "table.csv", test_fraction=0).sparse
    assert load(tmp_path / "table.csv", test_fraction=0, sparse=True).density == 1 / 6


def test_a_wrong_index_does_not_ask_for_a_network_without_end(tmp_path: Path) -> None:
    path = tmp_path / "wrong.svm"
    path.write_text("0 1:1\n1 2147483647:1\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"wrong\.svm, line 2: an index must be <= 10,000,000.*, got 2147483647"):
        load(path, test_fraction=0)


def test_values_beyond_float32_are_refused_in_sparse_sets_too(tmp_path: Path) -> None:
    path = tmp_path / "large.svm"
    path.write_text("0 1:1e300\n1 2:1\n", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"large: row 0, feature 0 \(from 0\): values must fit float32, .*; load as float64"
    ):
        load(path, sparse=True, test_fraction=0, scaling="none")


def csr(values: list[float], columns: list[int], starts: list[int], shape: tuple[int, int]) -> Any:
    parts = (np.array(values, np.float32), np.array(columns, np.int32), np.array(starts, np.int32))
    matrix = csr_array(parts, shape=shape)
    matrix.indices[:] = columns  # as given: the constructor may have put them right
    return matrix


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_x": csr([1, 2], [1, 1], [0, 2, 2], (2, 3))}, "train_x must have rising columns, none twice"),
        ({"train_x": csr([1, np.inf], [0, 2], [0, 1, 2], (2, 3))}, "must be finite, got inf in row 1, column 2"),
        ({"train_x": csr([1, 2], [0, 7], [0, 1, 2], (2, 3))}, "train_x must be a valid CSR matrix"),
        ({"train_x": csr_array((2, 3), dtype=np.float64)}, "share one type, got sparse float64 and sparse float32"),
        ({"train_x": np.zeros((2, 3), np.float32)}, "share one type, got float32 and sparse float32"),
        ({"train_x": csr_array((2, 3), dtype=np.float32).tocsc()}, "must be a numpy array or scipy.sparse.csr_array"),
        ({"label_names": ("a",)}, "label_names must name 2 classes, got 1"),
    ],
)
def test_a_data_set_checks_sparse_features(changes: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {
        "name": "toy",
        "train_x": csr([1, 2], [0, 2], [0, 1, 2], (2, 3)),
        "train_y": np.array([0, 1]),
        "test_x": csr_array((1, 3), dtype=np.float32),
        "test_y": np.array([0]),
        "classes": 2,
        "multilabel": False,
        "source": "made by a test",
    }
    assert Dataset(**fields).sparse
    with pytest.raises(DataError, match=message):
        Dataset(**(fields | changes))
