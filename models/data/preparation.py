"""Split into a training and a test part, and scaling fitted on the training part alone."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.data.dataset import DataError
from hetsgd.models.data.rows import Features, is_sparse

Scaling = Literal["none", "unit", "standard"]
"""`none`: as read; `unit`: each feature to [0, 1] by its training range; `standard`: mean 0, deviation 1."""

SCALINGS: tuple[Scaling, ...] = get_args(Scaling)

_CHUNK_ROWS = 65_536
_CACHED_VALUES = 65_536
"""Scaled at a time, so that what is in between stays in the cache."""


def class_quotas(counts: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """How many rows of each class make up `share` of all rows, each class within one row of its own share.

    Largest-remainder rounding, ties to the lower class; a class always leaves one row outside.

    >>> class_quotas(np.array([5, 3, 1]), 0.5)
    array([3, 2, 0])
    """
    exact = counts * share
    quotas: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    missing = int(np.floor(counts.sum() * share + 0.5)) - int(quotas.sum())
    order = np.argsort(-(exact - quotas), kind="stable")
    quotas[order[: max(missing, 0)]] += 1
    return np.clip(quotas, 0, np.maximum(counts - 1, 0)).astype(np.int64)


def stratified_rows(y: NDArray[np.int64], share: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows, in rising order, drawn so that every class keeps its share (`class_quotas`)."""
    quotas = class_quotas(np.bincount(y).astype(np.int64), share)
    chosen = [rng.permutation(np.flatnonzero(y == label))[:quota] for label, quota in enumerate(quotas)]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def split_rows(
    y: NDArray[Any], test_fraction: float, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Training and test rows, each in file order: disjoint, together all rows.

    Stratified over the classes where `y` is (rows,), drawn at random where it is (rows, labels). Each class
    keeps a training row. Raises DataError unless 0 <= test_fraction < 1.
    """
    if not 0 <= test_fraction < 1:
        raise DataError(f"test_fraction must lie in [0, 1), got {test_fraction}")
    if y.ndim == 1:
        test = stratified_rows(y, test_fraction, rng)
    else:
        size = min(int(np.floor(len(y) * test_fraction + 0.5)), len(y) - 1)
        test = np.sort(rng.permutation(len(y))[:size]).astype(np.int64)
    in_train = np.ones(len(y), dtype=bool)
    in_train[test] = False
    return np.flatnonzero(in_train).astype(np.int64), test


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scaler:
    """The map x -> (x - shift) / width of each feature; both (features,) float64."""

    shift: NDArray[np.float64]
    width: NDArray[np.float64]

    def apply(self, x: Features) -> None:
        """Scale the rows of `x` in place, in float64 whatever the type of `x`; test rows are not clipped.

        Of a CSR matrix only the values that are there are scaled: `shift` must be 0.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # Dataset refuses what is not finite
            if is_sparse(x):
                x.data[...] = x.data / self.width[x.indices]
                return
            rows = max(1, _CACHED_VALUES // x.shape[1])
            for start in range(0, len(x), rows):
                part = x[start : start + rows]
                part[...] = (part - self.shift) / self.width


def fit_scaler(x: Features, scaling: Scaling) -> Scaler | None:
    """The scaling fitted on training rows, None for `none`. A constant feature becomes 0.

    A CSR matrix must keep its zeros: `unit` divides each feature by its largest value and wants no negative ones,
    so that a feature without any zero keeps its offset; `standard` is refused.

    Raises DataError for an unknown scaling and where a feature's range is beyond float64.
    """
    if scaling not in SCALINGS:
        raise DataError(f"scaling must be one of {', '.join(SCALINGS)}, got {scaling!r}")
    if scaling == "none":
        return None
    if is_sparse(x):
        return _fit_sparse(x, scaling)
    low, high = x.min(axis=0).astype(np.float64), x.max(axis=0).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # reported below
        shift, width = (low, high - low) if scaling == "unit" else _mean_and_deviation(x)
    constant = low == high
    shift = np.where(constant, low, shift)
    width = np.where(constant, 1.0, width)
    if not (np.isfinite(shift).all() and np.isfinite(width).all() and (width > 0).all()):
        column = int(np.argmin(np.isfinite(shift) & np.isfinite(width) & (width > 0)))
        raise DataError(
            f"scaling {scaling!r} needs feature ranges that float64 can hold, "
            f"feature {column} runs from {low[column]} to {high[column]}"
        )
    return Scaler(shift=shift, width=width)


def _fit_sparse(x: Features, scaling: Scaling) -> Scaler:
    if scaling != "unit" or (len(x.data) and x.data.min() < 0):
        why = "shifts every zero" if scaling != "unit" else f"needs values >= 0 there, got {x.data.min()}"
        raise DataError(
            f'scaling {scaling!r} of a sparse set {why}: use scaling="none", or sparse=False where memory allows'
        )
    largest = np.zeros(x.shape[1], dtype=np.float64)
    np.maximum.at(largest, x.indices, x.data.astype(np.float64))
    return Scaler(shift=np.zeros_like(largest), width=np.where(largest > 0, largest, 1.0))


def _mean_and_deviation(x: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and population deviation in float64, chunk by chunk: no float64 copy of the whole matrix."""
    mean = x.mean(axis=0, dtype=np.float64)
    squares = np.zeros_like(mean)
    for start in range(0, len(x), _CHUNK_ROWS):
        squares += ((x[start : start + _CHUNK_ROWS] - mean) ** 2).sum(axis=0)
    return mean, np.sqrt(squares / len(x))
