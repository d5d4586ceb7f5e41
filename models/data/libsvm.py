"""LIBSVM text: one row a line, `label index:value index:value ...`, indices rising, counted from 1 or from 0.

Every line is matched against the grammar first, so that numpy's fast number parser meets only well-formed
text and each error can name its line. A `#` starts a comment. Multi-label lines carry `label,label,...` or,
for a row without labels, no label at all.
"""

import re
from codecs import BOM_UTF8

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.data.dataset import DataError
from hetsgd.models.data.table import MAX_FEATURES, SparseRows, Table
from hetsgd.models.data.targets import index_numbers, listed

_NUMBER = rb"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_LABELS = rb"\d{1,15}(?:,\d{1,15})*"
_SINGLE_LINE = re.compile(rb"(" + _NUMBER + rb")((?:\s+\d+:" + _NUMBER + rb")*)")
_MULTI_LINE = re.compile(rb"(" + _LABELS + rb"(?!\S))?((?:(?:^|\s+)\d+:" + _NUMBER + rb")*)")
_NUMBER_ONLY = re.compile(_NUMBER)
_FIRST_PAIR = re.compile(rb"(?:^|\s)\d+:[-+.\deE]+(?:\s|$)")
_LARGEST_LABELS = 2**28


def parse_libsvm(
    raw: bytes,
    *,
    origin: str,
    features: int | None = None,
    multilabel: bool = False,
    classes: tuple[str, ...] | None = None,
    first_index: int | None = None,
) -> Table:
    """All rows of a LIBSVM text.

    `origin` names the file in messages. `features` declares the width; without it the largest index is the
    width. `first_index` is what indices count from, 0 or 1; without it 1, unless an index 0 occurs. `classes`
    declares the classes that may occur; without it they are numbered in rising order of their label (-1/+1, 0/1
    and 1..k all become 0..k-1). Multi-label columns likewise, one per label declared or found.

    Raises DataError with file, line, rule and value for anything that is not such a text.
    """
    line_form = _MULTI_LINE if multilabel else _SINGLE_LINE
    raw = raw.removeprefix(BOM_UTF8)
    if b"\r" in raw:
        raw = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
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
    x = _features(pairs, lines, origin, features, first_index)
    if multilabel:
        matrix, names = _label_matrix(labels, lines, origin, classes)
        return Table(x=x, y=matrix, label_names=names)
    numbers = np.fromstring(b" ".join(labels).decode(), sep=" ")
    y, names = index_numbers(numbers, origin=origin, place_of=lambda row: f"line {lines[row]}", classes=classes)
    return Table(x=x, y=y, label_names=names)


def _features(
    pairs: list[bytes], lines: list[int], origin: str, features: int | None, first_index: int | None
) -> SparseRows:
    counts = np.array([row.count(b":") for row in pairs], dtype=np.int64)
    text = b" ".join(pairs).replace(b":", b" ").decode()
    flat = np.fromstring(text, sep=" ") if counts.any() else np.empty(0)
    indices, values = flat[0::2], flat[1::2]
    line_of = np.repeat(np.array(lines, dtype=np.int64), counts)
    base = first_index if first_index is not None else int(not (len(indices) and indices.min() == 0))
    _check_pairs(indices, values, line_of, origin, base)
    width = int(indices.max()) + 1 - base if features is None and len(indices) else features
    if not width:
        raise DataError(f"{origin}: must hold features, no row has any")
    largest = width - 1 + base
    if len(indices) and indices.max() > largest:
        place = int(np.argmax(indices > largest))
        raise DataError(
            f"{origin}, line {line_of[place]}: an index must be <= {largest} ({width} features are declared, "
            f"counted from {base}), got {int(indices[place])}"
        )
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return SparseRows(values=values.copy(), columns=(indices - base).astype(np.int32), starts=starts, features=width)


def _check_pairs(
    indices: NDArray[np.float64], values: NDArray[np.float64], line_of: NDArray[np.int64], origin: str, base: int
) -> None:
    for wrong, rule in (
        (indices < base, f"an index must be >= {base} (features are counted from {base})"),
        (indices > MAX_FEATURES, f"an index must be <= {MAX_FEATURES:,}: keep or hash fewer features"),
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


def _label_matrix(
    labels: list[bytes], lines: list[int], origin: str, classes: tuple[str, ...] | None
) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    per_row = [[str(int(label)) for label in row.split(b",")] if row else [] for row in labels]
    found = {label for row in per_row for label in row}
    if not found:
        raise DataError(f"{origin}: must hold labels, no row has any")
    names = tuple(sorted(found, key=int)) if classes is None else classes
    if len(labels) * len(names) > _LARGEST_LABELS:
        raise DataError(f"{origin}: rows x labels must be <= {_LARGEST_LABELS:,}, got {len(labels):,} x {len(names):,}")
    column = {label: place for place, label in enumerate(names)}
    y = np.zeros((len(labels), len(names)), dtype=np.uint8)
    for place, row in enumerate(per_row):
        for label in row:
            if label not in column:
                raise DataError(f"{origin}, line {lines[place]}: a label must be one of {listed(names)}, got {label}")
            y[place, column[label]] = 1
    return y, names


def _fault(content: bytes, *, multilabel: bool) -> str:
    """The first rule that a malformed line breaks, with the value."""
    tokens = content.split()
    label = tokens[0]
    if b":" in label and not multilabel:
        return f"label missing, the line starts with {_shown(label)}"
    if b"," in label and not multilabel:
        return f"a label must be one number, got {_shown(label)} (several a row: multilabel = true)"
    if not multilabel and not _NUMBER_ONLY.fullmatch(label):
        return f"a label must be a finite number, got {_shown(label)}"
    if multilabel and b":" not in label and not re.fullmatch(_LABELS, label):
        return f"labels must be whole numbers >= 0 joined by commas, got {_shown(label)}"
    for token in tokens if b":" in label else tokens[1:]:
        index, colon, value = token.partition(b":")
        if not colon:
            return f"a feature must be index:value, got {_shown(token)}"
        if not re.fullmatch(rb"\d+", index):
            return f"an index must be a whole number, got {_shown(token)}"
        if not _NUMBER_ONLY.fullmatch(value):
            return f"a value must be a finite number, got {_shown(token)}"
    return f"must be 'label index:value index:value ...', got {_shown(content)}"


def _shown(token: bytes) -> str:
    return repr(token[:60].decode("utf-8", "replace"))


def looks_like_libsvm(raw: bytes) -> bool:
    """Whether one of the first lines holds `index:value`, which no delimited table does."""
    return any(_FIRST_PAIR.search(line) for line in raw[:100_000].split(b"\n")[:100])
