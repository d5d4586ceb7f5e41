"""LIBSVM text: one row a line, `label index:value index:value ...`, indices rising and counted from 1.

Every line is matched against the grammar first, so that numpy's fast number parser meets only well-formed
text and each error can name its line. A `#` starts a comment. Multi-label lines carry `label,label,...` or,
for a row without labels, no label at all.
"""

import re

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.data.dataset import DataError
from hetsgd.models.data.table import SparseRows, Table, index_classes

_NUMBER = rb"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_LABELS = rb"\d{1,15}(?:,\d{1,15})*"
_SINGLE_LINE = re.compile(rb"(" + _NUMBER + rb")((?:\s+\d+:" + _NUMBER + rb")*)")
_MULTI_LINE = re.compile(rb"(" + _LABELS + rb"(?!\S))?((?:(?:^|\s+)\d+:" + _NUMBER + rb")*)")
_NUMBER_ONLY = re.compile(_NUMBER)
_FIRST_PAIR = re.compile(rb"(?:^|\s)\d+:[-+.\deE]+(?:\s|$)")
_LARGEST_INDEX = 2**31 - 1
_LARGEST_LABELS = 2**28


def parse_libsvm(raw: bytes, *, origin: str, features: int | None = None, multilabel: bool = False) -> Table:
    """All rows of a LIBSVM text.

    `origin` names the file in messages. `features` declares the width; without it the largest index is the
    width. Classes are numbered in rising order of their label (-1/+1, 0/1 and 1..k all become 0..k-1);
    multi-label columns likewise, one per label that occurs.

    Raises DataError with file, line, rule and value for anything that is not such a text.
    """
    line_form = _MULTI_LINE if multilabel else _SINGLE_LINE
    labels: list[bytes] = []
    pairs: list[bytes] = []
    lines: list[int] = []
    for number, line in enumerate(raw.split(b"\n"), start=1):
        content = line.split(b"#", 1)[0].strip()
        if not content:
            continue
        match = line_form.fullmatch(content)
        if match is None:
            raise DataError(f"{origin}, line {number}: {_fault(content, multilabel=multilabel)}")
        labels.append(match.group(1) or b"")
        pairs.append(match.group(2))
        lines.append(number)
    if not lines:
        raise DataError(f"{origin}: must hold rows, found none")
    x = _features(pairs, lines, origin, features)
    if multilabel:
        y, names = _label_matrix(labels, origin)
        return Table(x=x, y=y, label_names=names)
    numbers = np.fromstring(b" ".join(labels).decode(), sep=" ")
    classes, names = index_classes(numbers, origin=origin, line_of=lines.__getitem__)
    return Table(x=x, y=classes, label_names=names)


def _features(pairs: list[bytes], lines: list[int], origin: str, features: int | None) -> SparseRows:
    counts = np.array([row.count(b":") for row in pairs], dtype=np.int64)
    text = b" ".join(pairs).replace(b":", b" ").decode()
    flat = np.fromstring(text, sep=" ") if counts.any() else np.empty(0)
    indices, values = flat[0::2], flat[1::2]
    line_of = np.repeat(np.array(lines, dtype=np.int64), counts)
    _check_pairs(indices, values, line_of, origin)
    width = int(indices.max()) if features is None and len(indices) else features
    if not width:
        raise DataError(f"{origin}: must hold features, no row has any")
    if len(indices) and indices.max() > width:
        place = int(np.argmax(indices > width))
        raise DataError(
            f"{origin}, line {line_of[place]}: an index must be <= {width} (the declared number of features), "
            f"got {int(indices[place])}"
        )
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return SparseRows(values=values.copy(), columns=(indices - 1).astype(np.int32), starts=starts, features=width)


def _check_pairs(
    indices: NDArray[np.float64], values: NDArray[np.float64], line_of: NDArray[np.int64], origin: str
) -> None:
    for wrong, rule in (
        (indices < 1, "an index must be >= 1 (LIBSVM counts features from 1)"),
        (indices > _LARGEST_INDEX, f"an index must be <= {_LARGEST_INDEX}"),
    ):
        if wrong.any():
            place = int(np.argmax(wrong))
            raise DataError(f"{origin}, line {line_of[place]}: {rule}, got {indices[place]:.0f}")
    if not np.isfinite(values).all():
        place = int(np.argmin(np.isfinite(values)))
        raise DataError(f"{origin}, line {line_of[place]}: a value must be finite, got {values[place]}")
    falling = (indices[1:] <= indices[:-1]) & (line_of[1:] == line_of[:-1])
    if falling.any():
        place = int(np.argmax(falling))
        raise DataError(
            f"{origin}, line {line_of[place]}: indices must rise within a line, "
            f"got {int(indices[place + 1])} after {int(indices[place])}"
        )


def _label_matrix(labels: list[bytes], origin: str) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    per_row = [[int(label) for label in row.split(b",")] if row else [] for row in labels]
    distinct = sorted({label for row in per_row for label in row})
    if not distinct:
        raise DataError(f"{origin}: must hold labels, no row has any")
    if len(labels) * len(distinct) > _LARGEST_LABELS:
        raise DataError(
            f"{origin}: rows x labels must be <= {_LARGEST_LABELS:,}, got {len(labels):,} x {len(distinct):,}"
        )
    column = {label: place for place, label in enumerate(distinct)}
    y = np.zeros((len(labels), len(distinct)), dtype=np.uint8)
    for place, row in enumerate(per_row):
        y[place, [column[label] for label in row]] = 1
    return y, tuple(str(label) for label in distinct)


def _fault(content: bytes, *, multilabel: bool) -> str:
    """The first rule that a malformed line breaks, with the value."""
    tokens = content.split()
    label = tokens[0]
    if b":" in label and not multilabel:
        return f"label missing, the line starts with {_shown(label)}"
    if b"," in label and not multilabel:
        return f"a label must be one number, got {_shown(label)} (load multi-label data with multilabel=True)"
    if not multilabel and not _NUMBER_ONLY.fullmatch(label):
        return f"a label must be a finite number, got {_shown(label)}"
    if multilabel and b":" not in label and not re.fullmatch(_LABELS, label):
        return f"labels must be whole numbers >= 0 joined by commas, got {_shown(label)}"
    for token in tokens if b":" in label else tokens[1:]:
        index, colon, value = token.partition(b":")
        if not colon:
            return f"a feature must be index:value, got {_shown(token)}"
        if not re.fullmatch(rb"\d+", index):
            return f"an index must be a whole number >= 1, got {_shown(token)}"
        if not _NUMBER_ONLY.fullmatch(value):
            return f"a value must be a finite number, got {_shown(token)}"
    return f"must be 'label index:value index:value ...', got {_shown(content)}"


def _shown(token: bytes) -> str:
    return repr(token[:60].decode("utf-8", "replace"))


def looks_like_libsvm(raw: bytes) -> bool:
    """Whether one of the first lines holds `index:value`, which no delimited table does."""
    return any(_FIRST_PAIR.search(line) for line in raw[:100_000].split(b"\n")[:100])
