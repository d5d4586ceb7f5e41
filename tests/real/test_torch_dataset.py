"""Torch data become data sets with the same rows, or are refused by item."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from hetsgd.models.data.dataset import DataError
from hetsgd.real.torch_dataset import from_torch

X = torch.tensor([[0.0, 1.5], [2.0, 0.0], [0.0, -3.0], [4.0, 0.0], [0.0, 0.0]])
Y = torch.tensor([0, 2, 1, 2, 0])


class Pairs(Dataset[Any]):
    """Any indexed data set."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, place: int) -> Any:
        return self.items[place]


class Stream(IterableDataset[Any]):
    """Any data set that can only be read through."""

    def __iter__(self) -> Iterator[Any]:
        return zip(X, Y, strict=True)


@pytest.mark.parametrize(
    "dataset",
    [
        (X, Y),
        TensorDataset(X, Y),
        Subset(TensorDataset(X, Y), range(5)),
        Stream(),
        Pairs([(x.reshape(1, 2), int(y)) for x, y in zip(X, Y, strict=True)]),
        Pairs([[x.numpy().astype(np.float64), y] for x, y in zip(X, Y, strict=True)]),
        (X.requires_grad_(False).to(torch.bfloat16), Y.to(torch.uint8)),
        (X.to_sparse(), Y),
    ],
    ids=["tensors", "TensorDataset", "Subset", "iterable", "images", "arrays", "bfloat16", "sparse"],
)
def test_each_kind_of_data_gives_the_same_rows(dataset: Any) -> None:
    data = from_torch(dataset, name="mine", test_fraction=0)
    np.testing.assert_array_equal(data.train_x, X.numpy())
    assert data.train_x.dtype == np.float32
    assert data.train_y.tolist() == Y.tolist()
    assert (data.name, data.classes, data.label_names) == ("mine", 3, ("0", "1", "2"))
    assert data.source.startswith("mine, from torch: 5 rows x 2 features, 3 classes; 5 rows for training")


def test_several_labels_a_row_and_declared_names() -> None:
    marks = torch.tensor([[1, 0], [0, 0], [1, 1]])
    data = from_torch((X[:3], marks), classes=["red", "round"], test_fraction=0, dtype="float64")
    assert data.multilabel
    assert data.train_y.tolist() == marks.tolist()
    assert data.label_names == ("red", "round")
    assert data.train_x.dtype == np.float64


def test_a_test_part_of_its_own_and_a_sparse_set() -> None:
    data = from_torch((X, Y), test=TensorDataset(X[:2], Y[:2]), classes=5, sparse=True, scaling="none")
    assert (data.rows, data.test_rows, data.classes, data.sparse) == (5, 2, 5, True)
    np.testing.assert_array_equal(data.test_x.toarray(), X[:2].numpy())
    assert "the published parts" in data.source


def test_classes_keep_their_index_though_some_do_not_occur() -> None:
    data = from_torch((X[:2], torch.tensor([0, 3])), test_fraction=0)
    assert (data.classes, data.train_y.tolist()) == (4, [0, 3])


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        ((X, Y), {"classes": 2}, "torch, item 1: a label must be one of 0, 1, got 2"),
        ((X, Y - 1), {}, "torch, item 0: a label must be one of 0, 1, got -1"),
        ((X, Y.float() + 0.5), {}, "torch, item 0: a label must be a whole number"),
        ((X, torch.zeros(5)), {}, r"torch: there must be rows of two classes or more, got class 0 alone"),
        ((X, torch.ones(5)), {}, "torch: at least two classes are needed, every row has label 1"),
        ((X, Y[:3]), {}, r"torch: x and y must have the same rows, at least one, got .*\[5, 2\].*\[3\]"),
        ((X[:0], Y[:0]), {}, "torch: x and y must have the same rows, at least one"),
        ((X, Y, Y), {}, "torch: must be two tensors"),
        ((X[:, 0], Y), {}, r"torch: features must be numbers of shape \(rows, features\)"),
        ((X / 0, Y), {}, "torch, row 0, column 0: must be finite, got nan"),
        ((X.to(torch.complex64), Y), {}, "torch: must be real numbers, got complex64"),
        ((X, Y), {"dtype": "float16"}, "torch: dtype must be float32 or float64, got 'float16'"),
        (Pairs([]), {}, "torch: must hold items, found none"),
        (Pairs([X[0]]), {}, "torch, item 0: must be a pair"),
        (Pairs([(X[0], 0), (X, 1)]), {}, "torch, item 1: must have 2 features .* as item 0 has, got 10"),
        (Pairs([("cat", 0)]), {}, "torch, item 0, x: must be a tensor, an array or a number, got str .*transform"),
        (17, {}, "torch: must be a torch Dataset or two tensors, got int"),
    ],
)
def test_what_does_not_fit_is_refused_by_item(dataset: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_torch(dataset, test_fraction=0, **options)


def test_a_stream_without_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return itertools.cycle([(X[0], 0), (X[1], 1)])

    monkeypatch.setattr("hetsgd.real.torch_dataset.LARGEST_ITEMS", 100)
    with pytest.raises(DataError, match="torch, item 100: there must be at most 100 items"):
        from_torch(Endless())
