"""Delimited tables (CSV and its kin): comma, semicolon, tab or blanks; one row a line, one label column.

The first line is a header where its feature fields are names rather than numbers. The label column is the
last one, or the one chosen; its classes are whole numbers or words. Multi-label tables have several label
columns of 0 and 1, chosen by name or counted from either end.
"""

import csv
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.data.dataset import DataError
from hetsgd.models.data.labels import LabelChoice, choose_labels
from hetsgd.models.data.table import Table, compact
from hetsgd.models.data.targets import index_numbers, index_words, marks
from hetsgd.models.data.text import decode, shown

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
    several: bool

    @property
    def features(self) -> list[int]:
        return [column for column in range(self.width) if column not in self.labels]

    def column_name(self, column: int) -> str:
        return f"column {column + 1}" if self.header is None else f"column {column + 1} ({self.header[column]})"


def parse_delimited(
    raw: bytes,
    *,
    origin: str,
    label: str | Sequence[str] | LabelChoice | None = None,
    multilabel: bool = False,
    classes: tuple[str, ...] | None = None,
) -> Table:
    """All rows of a delimited table.

    `origin` names the file in messages; `label` chooses the label columns (`choose_labels`; without it the last
    column), several of them where `multilabel`. `classes` declares the classes that may occur, in their order.

    Raises DataError with file, line, column, rule and value for anything that is not such a table.
    """
    lines = decode(raw, origin).split("\n")
    rows = [line for line in lines if line]
    layout = _layout(rows, origin, choose_labels(label, multilabel=multilabel, origin=origin))
    if layout.header is not None:
        rows = rows[1:]
    if not rows:
        raise DataError(f"{origin}: must hold rows below the header, found none")
    numbers, words = _numbers(rows, lines, layout)
    x = compact(np.ascontiguousarray(numbers[:, layout.features]))

    def place_of(row: int) -> str:
        return f"line {_line_of(row, lines, layout)}"

    if layout.several:
        columns = [layout.column_name(column) for column in layout.labels]
        names = tuple(layout.header[column] if layout.header else str(column + 1) for column in layout.labels)
        y = marks(numbers[:, list(layout.labels)], origin=origin, place_of=place_of, names=columns)
        return Table(x=x, y=y, label_names=names)
    codes = numbers[:, layout.labels[0]]
    if layout.words:
        classes_of_rows, names = index_words(
            codes.astype(np.int64), words, origin=origin, place_of=place_of, classes=classes
        )
    else:
        classes_of_rows, names = index_numbers(codes, origin=origin, place_of=place_of, classes=classes)
    return Table(x=x, y=classes_of_rows, label_names=names)


def _layout(rows: list[str], origin: str, choice: LabelChoice) -> _Layout:
    if choice.several and not choice.given:
        raise DataError(f'{origin}: label must name the label columns of a multi-label table, as in "a,b" or "last 2"')
    counts = {mark: rows[0].count(mark) for mark in ",;\t"}
    best = max(counts, key=lambda mark: counts[mark])
    delimiter = best if counts[best] else None
    first = _fields(rows[0], delimiter, origin)
    if len(first) < 2:
        raise DataError(
            f"{origin}, line 1: must hold features and a label separated by comma, semicolon, tab or blank, "
            f"got {shown(rows[0])}"
        )
    second = _fields(rows[1], delimiter, origin) if len(rows) > 1 else []
    titles = tuple(field.strip() for field in first)
    labels = choice.places(titles, f"{origin}, line 1") if choice.given else (len(first) - 1,)
    header = titles if choice.names or _is_header(first, second, labels) else None
    if header is not None and "" in header:
        raise DataError(
            f"{origin}, line 1: every column must have a name, column {header.index('') + 1} has none "
            "(leave out an index column, it is no feature)"
        )
    sample = first if header is None else second
    words = not choice.several and len(sample) == len(first) and not _is_number(sample[labels[0]])
    return _Layout(
        origin=origin,
        delimiter=delimiter,
        header=header,
        width=len(first),
        labels=labels,
        words=words,
        several=choice.several,
    )


def _is_header(first: list[str], second: list[str], labels: tuple[int, ...]) -> bool:
    """Whether the first line names the columns. A line with numbers among its features is a row."""
    fields = [field for column, field in enumerate(first) if column not in labels]
    features = [_is_number(field) for field in fields]
    if all(features):
        # Columns may be named 0, 1, 2, ..., label: then the label of the next line is a number, this one is not.
        label = labels[-1]
        return not _is_number(first[label]) and len(second) == len(first) and _is_number(second[label])
    return not any(features) and not all(field.strip().lower() in _MISSING for field in fields)


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
                return DataError(f"{place}, {layout.column_name(column)}: {fault}, got {shown(field)}")
    return None


def _fault(field: str, *, label: bool, words: bool) -> str | None:
    if field.strip().lower() in _MISSING:
        return "label missing" if label else "value missing"
    if label and words:
        return "all labels must be names where the first is one" if _is_number(field) else None
    if _NUMBER.fullmatch(field):
        return None if np.isfinite(float(field)) else "must be a finite number"
    return "must be a finite number"


def _line_of(row: int, lines: list[str], layout: _Layout) -> int:
    """Line of a row, for a message: blank lines and the header are no rows."""
    return [number for number, line in enumerate(lines, start=1) if line][row + (layout.header is not None)]


def _fields(line: str, delimiter: str | None, origin: str) -> list[str]:
    if delimiter is None:
        return line.split()
    try:
        return next(csv.reader([line], delimiter=delimiter))
    except csv.Error as error:
        raise DataError(f"{origin}: must be delimited text ({error}), got {shown(line)}") from error


def _is_number(field: str) -> bool:
    return bool(_NUMBER.fullmatch(field) or _NOT_FINITE.fullmatch(field))
