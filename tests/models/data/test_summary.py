"""A data set describes itself in a few lines."""

from pathlib import Path
from typing import Any

import numpy as np

from hetsgd.models.data.catalogue import load
from hetsgd.models.data.dataset import Dataset


def make(y: Any, classes: int, **changes: Any) -> str:
    y = np.asarray(y)
    x = np.zeros((len(y), 4), np.float32)
    x[:, 0] = 1
    fields: dict[str, Any] = {
        "name": "toy",
        "train_x": x,
        "train_y": y,
        "test_x": x[:0],
        "test_y": y[:0],
        "classes": classes,
        "multilabel": y.ndim == 2,
        "source": "made by a test",
    }
    return Dataset(**(fields | changes)).summary()


def test_the_embedded_sample_in_four_lines(no_sets: Path) -> None:
    lines = load("covtype-sample").summary().splitlines()
    assert lines[:3] == [
        "covtype-sample: 46,481 rows for training, 11,620 for testing",
        "features: 54, 22.1 % of the values not zero; dense float32, 12.0 MiB",
        "classes: 2; rest: 51.2 %, 2: 48.8 %",
    ]
    assert lines[3].startswith("source: the embedded 10 % sample of covtype")


def test_rare_and_absent_classes_are_pointed_out() -> None:
    text = make([0] * 98 + [1] * 2, 3, label_names=("no", "yes", "never"))
    assert "classes: 3; no: 98 %, yes: 2 %, never: 0 %; 1 without a training row (never); 1 rare" in text
    assert "25 % of the values not zero" in text


def test_many_classes_are_shown_by_their_extremes() -> None:
    y = np.repeat(np.arange(12), np.arange(10, 22))
    assert "classes: 12; from 0: 5.38 % to 11: 11.3 %" in make(y, 12)


def test_labels_are_shown_by_how_often_rows_carry_them() -> None:
    y = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 0, 0]], dtype=np.float32)
    text = make(y, 3, label_names=("red", "round", "none"))
    assert "labels: 3, 1.00 a row on average; most often red: 75 %, least none: 0 %; 1 without a training row" in text


def test_a_sparse_set_says_what_it_saves(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("0 1:1\n1 100000:1\n" * 10, encoding="utf-8")
    text = load(tmp_path / "a.svm", sparse=True, test_fraction=0).summary()
    assert "features: 100,000, 0.001 % of the values not zero; CSR float32, 0.4 KiB (7.6 MiB if dense)" in text
