"""The data set a run trains and tests on."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.data.errors import DataError, MissingDataError
from hetsgd.models.data.rows import Features, is_sparse, nonzeros

__all__ = ["DataError", "Dataset", "MissingDataError"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """Training and test rows of one data set, in host memory.

    `train_x` is (rows, features), `test_x` (test rows, features), of one type: float32 or float64. Both are dense
    and C-contiguous, or both canonical `scipy.sparse.csr_array`; `rows.py` takes batches out of either. Single-label
    targets are int64 class indices of shape (rows,), 0 to classes - 1; multi-label targets are float32 of shape
    (rows, classes), 0 or 1. The training part is never empty; the test part is where it was asked for
    (`test_fraction` 0). `label_names` names the classes, where the data name them. `source` says in words what was
    read and how it was prepared.

    Raises DataError where shapes, types, finiteness or label ranges are wrong.
    """

    name: str
    train_x: Features = field(repr=False)
    train_y: NDArray[Any] = field(repr=False)
    test_x: Features = field(repr=False)
    test_y: NDArray[Any] = field(repr=False)
    classes: int
    multilabel: bool
    source: str
    label_names: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        least = 1 if self.multilabel else 2
        if self.classes < least:
            raise DataError(f"{self.name}: classes must be >= {least}, got {self.classes}")
        if self.label_names and len(self.label_names) != self.classes:
            raise DataError(f"{self.name}: label_names must name {self.classes} classes, got {len(self.label_names)}")
        if self.train_x.ndim != 2 or 0 in self.train_x.shape:
            raise DataError(f"{self.name}: train_x must be (rows, features), none of them 0, got {self.train_x.shape}")
        if self.test_x.ndim != 2 or self.test_x.shape[1] != self.train_x.shape[1]:
            raise DataError(
                f"{self.name}: test_x must have the {self.train_x.shape[1]} features of train_x, "
                f"got shape {self.test_x.shape}"
            )
        if self.train_x.dtype != self.test_x.dtype or is_sparse(self.train_x) != is_sparse(self.test_x):
            raise DataError(
                f"{self.name}: train_x and test_x must share one type, got {_kind(self.train_x)} and "
                f"{_kind(self.test_x)}"
            )
        for part, x, y in (("train", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            self._check_features(f"{part}_x", x)
            self._check_targets(f"{part}_y", y, x.shape[0])

    def _check_features(self, name: str, x: Features) -> None:
        if x.dtype not in (np.float32, np.float64):
            raise DataError(f"{self.name}: {name} must be float32 or float64, got {x.dtype}")
        if is_sparse(x):
            self._check_sparse(name, x)
            return
        if not x.flags.c_contiguous:
            raise DataError(f"{self.name}: {name} must be C-contiguous")
        if not np.isfinite(x).all():
            row, column = (int(i) for i in np.argwhere(~np.isfinite(x))[0])
            raise DataError(f"{self.name}: {name} must be finite, got {x[row, column]} in row {row}, column {column}")

    def _check_sparse(self, name: str, x: Features) -> None:
        from scipy.sparse import csr_array

        if not isinstance(x, csr_array):
            raise DataError(f"{self.name}: {name} must be a numpy array or scipy.sparse.csr_array, got {type(x)}")
        try:
            x.check_format(full_check=True)
        except ValueError as error:
            raise DataError(f"{self.name}: {name} must be a valid CSR matrix, got {error}") from error
        if not x.has_canonical_format:
            raise DataError(f"{self.name}: {name} must have rising columns, none twice (sum_duplicates() makes it so)")
        if not np.isfinite(x.data).all():
            place = int(np.argmin(np.isfinite(x.data)))
            row = int(np.searchsorted(x.indptr, place, side="right")) - 1
            raise DataError(
                f"{self.name}: {name} must be finite, got {x.data[place]} in row {row}, column {x.indices[place]}"
            )

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
        return int(self.train_x.shape[0])

    @property
    def test_rows(self) -> int:
        """Rows kept for testing; may be 0."""
        return int(self.test_x.shape[0])

    @property
    def features(self) -> int:
        """Inputs of the network."""
        return int(self.train_x.shape[1])

    @property
    def outputs(self) -> int:
        """Outputs of the network: one per class or label."""
        return self.classes

    @property
    def sparse(self) -> bool:
        """Whether the features are CSR."""
        return is_sparse(self.train_x)

    @property
    def density(self) -> float:
        """Share of the training features that are not zero, as prepared (after scaling)."""
        return nonzeros(self.train_x) / (self.rows * self.features)

    @property
    def class_balance(self) -> tuple[float, ...]:
        """Share of the training rows in each class (carrying each label, where multi-label)."""
        if self.multilabel:
            return tuple(float(share) for share in self.train_y.mean(axis=0, dtype=np.float64))
        counts = np.bincount(self.train_y, minlength=self.classes)
        return tuple(float(count) / self.rows for count in counts)

    def summary(self) -> str:
        """A few lines for a person: rows, features, density, classes with their shares, source."""
        from hetsgd.models.data.summary import summarise

        return summarise(self)


def _kind(x: Features) -> str:
    return f"sparse {x.dtype}" if is_sparse(x) else str(x.dtype)
