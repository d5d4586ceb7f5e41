"""Delimited tables (CSV and its kin): comma, semicolon, tab or blanks; one row a line, one label column.

The first line is a header where its feature fields are names rather than numbers. The label column is the
last one, or the one named; its classes are whole numbers or words. Multi-label tables name several label
columns of 0 and 1.
"""

import csv
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.data.dataset import DataError
from hetsgd.models.data.table import Table, check_classes, compact, index_classes

_NUMBER = re.compile(r"\s*[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?\s*", re.ASCII)
_NOT_FINITE = re.compile(r"\s*[+-]?(?:nan|inf|infinity)\s*", re.IGNORECASE)
_MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """How the lines of one file are laid out."""

    origin: str
    delimiter: str | None
    header: tuple[str, ...] | None
    width: int
    labels: tuple[int, ...]
    words: bool

    @property
    def features(self) -> list[int]:
        return [column for column in range(self.width) if column not in self.labels]

    def column_name(self, column: int) -> str:
        return f"column {column + 1}" if self.header is None else f"column {column + 1} ({self.header[column]})"


def parse_delimited(
    raw: bytes, *, origin: str, label: str | Sequence[str] | None = None, multilabel: bool = False
) -> Table:
    """All rows of a delimited table.

    `origin` names the file in messages; `label` is the header's name of the label column (the last column
    without it), or, where `multilabel`, the names of all label columns (a sequence, or joined by commas).

    Raises DataError with file, line, column, rule and value for anything that is not such a table.
    """
    lines = _text(raw, origin).split("\n")
    rows = [line for line in lines if line]
    layout = _layout(rows, origin, _wanted(label, multilabel=multilabel, origin=origin))
    if layout.header is not None:
        rows = rows[1:]
    if not rows:
        raise DataError(f"{origin}: must hold rows below the header, found none")
    numbers, words = _numbers(rows, lines, layout)
    x = compact(np.ascontiguousarray(numbers[:, layout.features]))
    if multilabel:
        return _multilabel(x, numbers, lines, layout)
    codes = numbers[:, layout.labels[0]]
    if layout.words:
        names = tuple(sorted(words))
        check_classes(names, origin=origin)
        rank = {name: place for place, name in enumerate(names)}
        rank_of_code = np.array([rank[word] for word in words], dtype=np.int64)
        return Table(x=x, y=rank_of_code[codes.astype(np.int64)], label_names=names)
    y, names = index_classes(codes, origin=origin, line_of=lambda row: _line_of(row, lines, layout))
    return Table(x=x, y=y, label_names=names)


def _text(raw: bytes, origin: str) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise DataError(f"{origin}, line {line}: must be UTF-8 text, got byte 0x{raw[error.start]:02x}") from error
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise DataError(f"{origin}, line {line}: must be text, got a zero byte")
    text = text.replace("\r\n", "\n").replace("\r", "\n").rstrip()
    if not text:
        raise DataError(f"{origin}: must hold rows, the file is empty")
    return text


def _wanted(label: str | Sequence[str] | None, *, multilabel: bool, origin: str) -> tuple[str, ...]:
    names = tuple(label.split(",") if multilabel else (label,)) if isinstance(label, str) else tuple(label or ())
    names = tuple(name.strip() for name in names)
    if multilabel and not names:
        raise DataError(f'{origin}: label must name the label columns of a multi-label table, as in "a,b,c"')
    if not multilabel and len(names) > 1:
        raise DataError(f"{origin}: label must be one column, got {', '.join(names)} (set multilabel=True for several)")
    return names


def _layout(rows: list[str], origin: str, wanted: tuple[str, ...]) -> _Layout:
    counts = {mark: rows[0].count(mark) for mark in ",;\t"}
    best = max(counts, key=lambda mark: counts[mark])
    delimiter = best if counts[best] else None
    first = _fields(rows[0], delimiter, origin)
    if len(first) < 2:
        raise DataError(
            f"{origin}, line 1: must hold features and a label separated by comma, semicolon, tab or blank, "
            f"got {_shown(rows[0])}"
        )
    second = _fields(rows[1], delimiter, origin) if len(rows) > 1 else []
    has_header = bool(wanted) or _is_header(first, second)
    header = tuple(field.strip() for field in first) if has_header else None
    if header is not None:
        _check_header(header, origin, wanted)
    labels = tuple(header.index(name) for name in wanted) if header and wanted else (len(first) - 1,)
    sample = second if has_header else first
    words = len(labels) == 1 and len(sample) == len(first) and not _is_number(sample[labels[0]])
    return _Layout(origin=origin, delimiter=delimiter, header=header, width=len(first), labels=labels, words=words)


def _is_header(first: list[str], second: list[str]) -> bool:
    """Whether the first line names the columns. A line with numbers among its features is a row."""
    features = [_is_number(field) for field in first[:-1]]
    if all(features):
        # Columns may be named 0, 1, 2, ..., label: then the label of the next line is a number, this one is not.
        return not _is_number(first[-1]) and len(second) == len(first) and _is_number(second[-1])
    return not any(features) and not all(field.strip().lower() in _MISSING for field in first[:-1])


def _check_header(header: tuple[str, ...], origin: str, wanted: tuple[str, ...]) -> None:
    if "" in header:
        raise DataError(
            f"{origin}, line 1: every column must have a name, column {header.index('') + 1} has none "
            "(leave out an index column, it is no feature)"
        )
    for name in wanted:
        if header.count(name) != 1:
            shown = ", ".join(header[:6] + ("...",) * (len(header) > 6))
            found = "is there more than once" if name in header else "is not there"
            raise DataError(f"{origin}, line 1: label column {name!r} {found}, the columns are {shown}")
    if len(set(wanted)) == len(header):
        raise DataError(f"{origin}, line 1: at least one column must be a feature, all are labels")
    if len(set(wanted)) != len(wanted):
        raise DataError(f"{origin}: label columns must differ, got {', '.join(wanted)}")


def _numbers(rows: list[str], lines: list[str], layout: _Layout) -> tuple[NDArray[np.float64], list[str]]:
    """All fields as numbers; labels that are words become their place in the second result."""
    codes: dict[str, int] = {}
    converters: dict[int | str, Callable[[str], float]] = {}
    if layout.words:
        converters[layout.labels[0]] = lambda field: _word_code(field, codes)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            numbers: NDArray[np.float64] = np.loadtxt(
                rows,
                dtype=np.float64,
                comments=None,
                delimiter=layout.delimiter,
                converters=converters or None,
                quotechar='"',
                ndmin=2,
                encoding="utf-8",
            )
    except (ValueError, UserWarning, OverflowError) as error:
        raise _diagnosis(lines, layout) or DataError(f"{layout.origin}: {error}") from error
    if numbers.shape != (len(rows), layout.width) or not np.isfinite(numbers).all():
        raise _diagnosis(lines, layout) or DataError(
            f"{layout.origin}: must be {len(rows)} rows of {layout.width} finite numbers, got {numbers.shape}"
        )
    return numbers, list(codes)


def _word_code(field: str, codes: dict[str, int]) -> float:
    word = field.strip()
    if word.lower() in _MISSING or _is_number(word):
        raise ValueError(f"no class name: {field!r}")
    return float(codes.setdefault(word, len(codes)))


def _diagnosis(lines: list[str], layout: _Layout) -> DataError | None:
    """The first rule broken, found line by line: only a file that numpy refused is read this slowly."""
    header_to_skip = layout.header is not None
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        if header_to_skip:
            header_to_skip = False
            continue
        place = f"{layout.origin}, line {number}"
        fields = _fields(line, layout.delimiter, layout.origin)
        if len(fields) != layout.width:
            return DataError(f"{place}: must hold {layout.width} fields as line 1 does, got {len(fields)}")
        for column, field in enumerate(fields):
            fault = _fault(field, label=column in layout.labels, words=layout.words)
            if fault:
                return DataError(f"{place}, {layout.column_name(column)}: {fault}, got {_shown(field)}")
    return None


def _fault(field: str, *, label: bool, words: bool) -> str | None:
    if field.strip().lower() in _MISSING:
        return "label missing" if label else "value missing"
    if label and words:
        return "all labels must be names where the first is one" if _is_number(field) else None
    if _NUMBER.fullmatch(field):
        return None if np.isfinite(float(field)) else "must be a finite number"
    return "must be a finite number"


def _multilabel(x: NDArray[Any], numbers: NDArray[np.float64], lines: list[str], layout: _Layout) -> Table:
    marks = numbers[:, list(layout.labels)]
    wrong = (marks != 0) & (marks != 1)
    if wrong.any():
        row, place = (int(i) for i in np.argwhere(wrong)[0])
        raise DataError(
            f"{layout.origin}, line {_line_of(row, lines, layout)}, {layout.column_name(layout.labels[place])}: "
            f"a label must be 0 or 1, got {marks[row, place]}"
        )
    header = layout.header or ()
    return Table(x=x, y=marks.astype(np.uint8), label_names=tuple(header[column] for column in layout.labels))


def _line_of(row: int, lines: list[str], layout: _Layout) -> int:
    """Line of a row, for a message: blank lines and the header are no rows."""
    return [number for number, line in enumerate(lines, start=1) if line][row + (layout.header is not None)]


def _fields(line: str, delimiter: str | None, origin: str) -> list[str]:
    if delimiter is None:
        return line.split()
    try:
        return next(csv.reader([line], delimiter=delimiter))
    except csv.Error as error:
        raise DataError(f"{origin}: must be delimited text ({error}), got {_shown(line)}") from error


def _is_number(field: str) -> bool:
    return bool(_NUMBER.fullmatch(field) or _NOT_FINITE.fullmatch(field))


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "...")
