"""A data set is checked when it is made, and describes itself."""

from typing import Any

import numpy as np
import pytest

from hetsgd.models.data.dataset import DataError, Dataset, MissingDataError


def make(**changes: Any) -> Dataset:
    fields: dict[str, Any] = {
        "name": "toy",
        "train_x": np.array([[0, 1], [2, 0], [0, 3], [4, 5]], dtype=np.float32),
        "train_y": np.array([0, 1, 1, 1]),
        "test_x": np.array([[6, 7]], dtype=np.float32),
        "test_y": np.array([0]),
        "classes": 2,
        "multilabel": False,
        "source": "made by a test",
    }
    return Dataset(**(fields | changes))


def test_it_says_its_size_density_and_balance() -> None:
    data = make()
    assert (data.rows, data.test_rows, data.features, data.outputs) == (4, 1, 2, 2)
    assert data.density == 5 / 8
    assert data.class_balance == (0.25, 0.75)


def test_balance_of_labels_is_the_share_of_rows_that_carry_each() -> None:
    data = make(
        multilabel=True,
        classes=3,
        train_y=np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 0, 0]], dtype=np.float32),
        test_y=np.zeros((1, 3), dtype=np.float32),
    )
    assert data.class_balance == (0.75, 0.25, 0.0)


def test_an_empty_test_part_is_allowed() -> None:
    data = make(test_x=np.empty((0, 2), dtype=np.float32), test_y=np.empty(0, dtype=np.int64))
    assert data.test_rows == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": 1}, "classes must be >= 2, got 1"),
        ({"train_x": np.empty((0, 2), np.float32), "train_y": np.empty(0, np.int64)}, "none of them 0"),
        ({"train_x": np.array([[0, np.nan]] * 4, dtype=np.float32)}, "train_x must be finite, got nan in row 0"),
        ({"train_x": np.zeros((4, 2), dtype=np.float16)}, "share one type"),
        ({"train_x": np.zeros((2, 4), dtype=np.float32).T}, "train_x must be C-contiguous"),
        ({"train_y": np.array([0, 1, 2, 1])}, r"train_y must lie in 0\.\.1, got 0\.\.2"),
        ({"train_y": np.array([0, 1, 1])}, r"train_y must be int64 of shape \(4,\)"),
        ({"train_y": np.array([0, 1, 1, 1], dtype=np.int32)}, "train_y must be int64"),
        ({"test_x": np.zeros((1, 3), dtype=np.float32)}, "test_x must have the 2 features"),
        (
            {"multilabel": True, "train_y": np.full((4, 2), 0.5, np.float32), "test_y": np.zeros((1, 2), np.float32)},
            "train_y must hold only 0 and 1",
        ),
    ],
)
def test_what_is_wrong_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make(**changes)


def test_a_missing_file_is_both_a_data_error_and_a_missing_file() -> None:
    error = MissingDataError("w8a: no such file")
    assert isinstance(error, DataError)
    assert isinstance(error, FileNotFoundError)
    assert str(error) == "w8a: no such file"
