"""Labels as readers find them, as class indices or as marks of 0 and 1."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.data.dataset import DataError

PlaceOf = Callable[[int], str]
"""Where row i is, for a message: `line 7`."""


def declared_classes(classes: int | Sequence[str | int] | None) -> tuple[str, ...] | None:
    """The names of declared classes: `n` declares 0 to n - 1.

    >>> declared_classes(3)
    ('0', '1', '2')

    Raises DataError for names that repeat and for fewer than one.
    """
    if classes is None:
        return None
    if isinstance(classes, (str, bool)) or (isinstance(classes, int) and classes < 1):
        raise DataError(f"classes must be a number >= 1 or a list of names, got {classes!r}")
    names = tuple(str(name) for name in (range(classes) if isinstance(classes, int) else classes))
    if not names or len(set(names)) != len(names):
        raise DataError(f"classes must be names that differ, got {', '.join(names[:10]) or 'none'}")
    return names


def index_numbers(
    labels: NDArray[Any], *, origin: str, place_of: PlaceOf, classes: tuple[str, ...] | None = None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Class index of each row and the class names: those declared, else the labels in rising order.

    Raises DataError for labels that are not whole numbers or not declared, and where all rows have one label.
    """
    wrong = ~(np.abs(labels) <= 2.0**53) | (labels != np.floor(labels))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(
            f"{origin}, {place_of(row)}: a label must be a whole number (a class, not a measured value), "
            f"got {labels[row]}"
        )
    distinct, codes = np.unique(labels, return_inverse=True)
    names = tuple(str(int(value)) for value in distinct)
    return _index(codes.reshape(-1), names, origin=origin, place_of=place_of, classes=classes)


def index_words(
    codes: NDArray[np.int64],
    words: Sequence[str],
    *,
    origin: str,
    place_of: PlaceOf,
    classes: tuple[str, ...] | None = None,
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Class index of each row whose label is `words[code]`, and the class names: declared, else alphabetical.

    Raises DataError for words that are not declared, and where all rows have one label.
    """
    names = tuple(sorted(words))
    rank = {name: place for place, name in enumerate(names)}
    ranks = np.array([rank[word] for word in words], dtype=np.int64)
    return _index(ranks[codes], names, origin=origin, place_of=place_of, classes=classes)


def _index(
    codes: NDArray[Any], names: tuple[str, ...], *, origin: str, place_of: PlaceOf, classes: tuple[str, ...] | None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """`codes` into `names`, all of which occur, as indices into the declared classes where there are some."""
    if len(names) < 2:
        raise DataError(f"{origin}: at least two classes are needed, every row has label {names[0]}")
    if classes is None:
        return codes.astype(np.int64), names
    rank = {name: place for place, name in enumerate(classes)}
    ranks = np.array([rank.get(name, -1) for name in names], dtype=np.int64)
    y = ranks[codes]
    if (y < 0).any():
        row = int(np.argmax(y < 0))
        raise DataError(
            f"{origin}, {place_of(row)}: a label must be one of {listed(classes)}, got {names[int(codes[row])]}"
        )
    return y, classes


def marks(values: NDArray[Any], *, origin: str, place_of: PlaceOf, names: Sequence[str]) -> NDArray[np.uint8]:
    """Several labels a row, (rows, labels) of 0 and 1, as uint8.

    Raises DataError for other values and where no row carries any label.
    """
    wrong = (values != 0) & (values != 1)
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        raise DataError(
            f"{origin}, {place_of(row)}, {names[column]}: a label must be 0 or 1, got {values[row, column]}"
        )
    if not values.any():
        raise DataError(f"{origin}: must hold labels, no row has any")
    return values.astype(np.uint8)


def index_labels(
    labels: NDArray[Any],
    *,
    origin: str,
    place_of: PlaceOf,
    names: tuple[str, ...] | None = None,
    classes: tuple[str, ...] | None = None,
) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Targets from an array: (rows,) of numbers or text is one class a row, (rows, labels) is several labels.

    A single column (rows, 1) is one class a row unless `names` names it. Raises DataError as the functions above.
    """
    if labels.ndim == 2 and labels.shape[1] == 1 and names is None:
        labels = labels[:, 0]
    if labels.ndim == 2:
        if labels.dtype.kind not in "biuf":
            raise DataError(f"{origin}: labels of shape {labels.shape} must be 0 or 1, got {labels.dtype}")
        columns = names or classes or tuple(str(column) for column in range(labels.shape[1]))
        if len(columns) != labels.shape[1] or not columns:
            raise DataError(f"{origin}: must have {len(columns)} label columns, got {labels.shape[1]}")
        shown = [f"label {name}" for name in columns]
        return marks(labels, origin=origin, place_of=place_of, names=shown), columns
    if labels.ndim != 1:
        raise DataError(f"{origin}: labels must be (rows,) or (rows, labels), got shape {labels.shape}")
    if labels.dtype.kind in "US":
        text = labels.astype(str) if labels.dtype.kind == "U" else np.char.decode(labels, "latin-1")
        distinct, codes = np.unique(text, return_inverse=True)
        words = [str(word) for word in distinct]
        return index_words(codes.reshape(-1), words, origin=origin, place_of=place_of, classes=classes)
    if labels.dtype.kind not in "biuf":
        raise DataError(f"{origin}: labels must be numbers or text, got {labels.dtype}")
    return index_numbers(labels.astype(np.float64), origin=origin, place_of=place_of, classes=classes)


def listed(names: Sequence[str]) -> str:
    """Names for a message, the first ten.

    >>> listed(["a", "b"])
    'a, b'
    """
    return ", ".join([*names[:10], *(["..."] if len(names) > 10 else [])])
