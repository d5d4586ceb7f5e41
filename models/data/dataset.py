"""The data set a run trains and tests on, and the errors that bad input raises."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


class DataError(ValueError):
    """A data set or one of its files breaks a rule; the message names file, place, rule and value."""


class MissingDataError(DataError, FileNotFoundError):
    """A data set's file is not there; the message says where it was looked for."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """Training and test rows of one data set, dense, in host memory.

    `train_x` is (rows, features), `test_x` (test rows, features), both C-contiguous, of one type: float32 or
    float64. Single-label targets are int64 class indices of shape (rows,), 0 to classes - 1; multi-label
    targets are float32 of shape (rows, classes), 0 or 1. The training part is never empty; the test part is
    where it was asked for (`test_fraction` 0). `source` says in words what was read and how it was prepared.

    Raises DataError where shapes, types, finiteness or label ranges are wrong.
    """

    name: str
    train_x: NDArray[Any] = field(repr=False)
    train_y: NDArray[Any] = field(repr=False)
    test_x: NDArray[Any] = field(repr=False)
    test_y: NDArray[Any] = field(repr=False)
    classes: int
    multilabel: bool
    source: str

    def __post_init__(self) -> None:
        least = 1 if self.multilabel else 2
        if self.classes < least:
            raise DataError(f"{self.name}: classes must be >= {least}, got {self.classes}")
        if self.train_x.ndim != 2 or 0 in self.train_x.shape:
            raise DataError(f"{self.name}: train_x must be (rows, features), none of them 0, got {self.train_x.shape}")
        if self.test_x.ndim != 2 or self.test_x.shape[1] != self.train_x.shape[1]:
            raise DataError(
                f"{self.name}: test_x must have the {self.train_x.shape[1]} features of train_x, "
                f"got shape {self.test_x.shape}"
            )
        if self.train_x.dtype != self.test_x.dtype:
            raise DataError(
                f"{self.name}: train_x and test_x must share one type, got {self.train_x.dtype} and {self.test_x.dtype}"
            )
        for part, x, y in (("train", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            self._check_features(f"{part}_x", x)
            self._check_targets(f"{part}_y", y, len(x))

    def _check_features(self, name: str, x: NDArray[Any]) -> None:
        if x.dtype not in (np.float32, np.float64):
            raise DataError(f"{self.name}: {name} must be float32 or float64, got {x.dtype}")
        if not x.flags.c_contiguous:
            raise DataError(f"{self.name}: {name} must be C-contiguous")
        if not np.isfinite(x).all():
            row, column = (int(i) for i in np.argwhere(~np.isfinite(x))[0])
            raise DataError(f"{self.name}: {name} must be finite, got {x[row, column]} in row {row}, column {column}")

    def _check_targets(self, name: str, y: NDArray[Any], rows: int) -> None:
        kind, shape = (np.float32, (rows, self.classes)) if self.multilabel else (np.int64, (rows,))
        if y.dtype != kind or y.shape != shape:
            raise DataError(
                f"{self.name}: {name} must be {np.dtype(kind)} of shape {shape}, got {y.dtype} of shape {y.shape}"
            )
        if self.multilabel and not ((y == 0) | (y == 1)).all():
            raise DataError(f"{self.name}: {name} must hold only 0 and 1")
        if not self.multilabel and rows and (y.min() < 0 or y.max() >= self.classes):
            raise DataError(f"{self.name}: {name} must lie in 0..{self.classes - 1}, got {y.min()}..{y.max()}")

    @property
    def rows(self) -> int:
        """Training rows: the length of an epoch."""
        return len(self.train_x)

    @property
    def test_rows(self) -> int:
        """Rows kept for testing; may be 0."""
        return len(self.test_x)

    @property
    def features(self) -> int:
        """Inputs of the network."""
        return int(self.train_x.shape[1])

    @property
    def outputs(self) -> int:
        """Outputs of the network: one per class or label."""
        return self.classes

    @property
    def density(self) -> float:
        """Share of the training features that are not zero, as prepared (after scaling)."""
        return float(np.count_nonzero(self.train_x) / self.train_x.size)

    @property
    def class_balance(self) -> tuple[float, ...]:
        """Share of the training rows in each class (carrying each label, where multi-label)."""
        if self.multilabel:
            return tuple(float(share) for share in self.train_y.mean(axis=0, dtype=np.float64))
        counts = np.bincount(self.train_y, minlength=self.classes)
        return tuple(float(count) / self.rows for count in counts)
