"""The rows of a sparse ARFF file: `{index value, index value, ...}`, indices counted from 0."""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.data.arff_header import NUMBER, TOKEN, Attribute, cell_fault, unquoted
from hetsgd.models.data.dataset import DataError
from hetsgd.models.data.table import SparseRows
from hetsgd.models.data.targets import PlaceOf
from hetsgd.models.data.text import shown

_NUMERIC_ROW = re.compile(rf"\{{\s*(?:[0-9]+\s+{NUMBER}(?:\s*,\s*[0-9]+\s+{NUMBER})*)?\s*\}}")
_ROW = re.compile(rf"\{{\s*(?:[0-9]+\s+(?:{TOKEN})(?:\s*,\s*[0-9]+\s+(?:{TOKEN}))*)?\s*\}}")
_CELL = re.compile(rf"([0-9]+)\s+({TOKEN})")
_LARGEST_CELLS = 2**28


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparseCells:
    """All cells that are not zero, sorted by row and attribute; words as the place of the value."""

    count: int
    row: NDArray[np.int64]
    attribute: NDArray[np.int64]
    value: NDArray[np.float64]

    def columns(self, attributes: tuple[int, ...]) -> NDArray[np.float64]:
        """The given attributes as a dense matrix (rows, attributes)."""
        if self.count * len(attributes) > _LARGEST_CELLS:
            raise DataError(f"rows x labels must be <= {_LARGEST_CELLS:,}, got {self.count:,} x {len(attributes):,}")
        places = np.full(int(max(attributes, default=0)) + 1, -1, dtype=np.int64)
        places[list(attributes)] = np.arange(len(attributes))
        own = self.attribute < len(places)
        column = places[self.attribute[own]]
        chosen = column >= 0
        out = np.zeros((self.count, len(attributes)))
        out[self.row[own][chosen], column[chosen]] = self.value[own][chosen]
        return out

    def rows(self, features: list[int], attributes: tuple[Attribute, ...]) -> SparseRows:
        """The given attributes as sparse rows, words spread over one column per word but the first."""
        widths = np.zeros(len(attributes), dtype=np.int64)
        words = np.array([attribute.words for attribute in attributes])
        for column in features:
            widths[column] = len(attributes[column].values) - 1 if words[column] else 1
        offsets = np.cumsum(widths) - widths
        own = (widths[self.attribute] > 0) & (self.value != 0)
        attribute, value = self.attribute[own], self.value[own]
        wordy = words[attribute]
        columns = offsets[attribute] + np.where(wordy, value.astype(np.int64) - 1, 0)
        counts = np.bincount(self.row[own], minlength=self.count)
        return SparseRows(
            values=np.where(wordy, 1.0, value),
            columns=columns.astype(np.int32),
            starts=np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]),
            features=int(widths.sum()),
        )


def sparse_cells(rows: list[str], attributes: tuple[Attribute, ...], origin: str, place_of: PlaceOf) -> SparseCells:
    """The cells of all rows, those left out included where their declared first value is not 0.

    Raises DataError with file, line, attribute, rule and value for a row that breaks a rule.
    """
    wordy = any(attribute.words for attribute in attributes)
    texts: list[str] = []
    for place, row in enumerate(rows):
        numeric = not wordy and _NUMERIC_ROW.fullmatch(row)
        texts.append(row[1:-1].strip() if numeric else _translated(row, attributes, f"{origin}, {place_of(place)}"))
    counts = np.array([text.count(",") + 1 if text else 0 for text in texts], dtype=np.int64)
    joined = " ".join(texts).replace(",", " ")
    flat = np.fromstring(joined, sep=" ") if counts.any() else np.empty(0)
    row_of, index, value = np.repeat(np.arange(len(rows)), counts), flat[0::2], flat[1::2]
    _check(index, value, row_of, attributes, origin, place_of)
    row_of, column, value = _with_absent(row_of, index.astype(np.int64), value, attributes, len(rows), origin)
    key = row_of * len(attributes) + column
    if len(key) and (np.diff(key) <= 0).any():
        order = np.argsort(key, kind="stable")
        key, row_of, column, value = key[order], row_of[order], column[order], value[order]
        twice = np.flatnonzero(np.diff(key) == 0)
        if len(twice):
            at = int(twice[0])
            raise DataError(
                f"{origin}, {place_of(int(row_of[at]))}: each attribute may occur once, got index {column[at]} twice"
            )
    return SparseCells(count=len(rows), row=row_of, attribute=column, value=value)


def _translated(row: str, attributes: tuple[Attribute, ...], where: str) -> str:
    """A row whose values are words or quoted, as numbers."""
    if not _ROW.fullmatch(row):
        raise DataError(f"{where}: must be {{index value, index value, ...}}, got {shown(row)}")
    parts: list[str] = []
    for index, token in _CELL.findall(row[1:-1]):
        if len(index) > 9 or int(index) >= len(attributes):
            raise DataError(f"{where}: an index must be < {len(attributes)} (the attributes), got {index}")
        attribute = attributes[int(index)]
        fault = cell_fault(token, attribute)
        if fault:
            raise DataError(f"{where}, attribute {attribute.name}: {fault}, got {shown(token)}")
        value = unquoted(token)
        parts.append(f"{index} {attribute.values.index(value) if attribute.words else value}")
    return ", ".join(parts)


def _check(
    index: NDArray[np.float64],
    value: NDArray[np.float64],
    row_of: NDArray[np.int64],
    attributes: tuple[Attribute, ...],
    origin: str,
    place_of: PlaceOf,
) -> None:
    outside = index >= len(attributes)
    if outside.any():
        at = int(np.argmax(outside))
        raise DataError(
            f"{origin}, {place_of(int(row_of[at]))}: an index must be < {len(attributes)} (the attributes), "
            f"got {index[at]:.0f}"
        )
    wrong = ~np.isfinite(value)
    allowed_sets = sorted({attribute.numbers for attribute in attributes if attribute.numbers})
    kind = {numbers: place for place, numbers in enumerate(allowed_sets)}
    kinds = np.array([kind[item.numbers] if item.numbers else -1 for item in attributes], dtype=np.int64)
    kind_of = kinds[index.astype(np.int64)]
    for place, numbers in enumerate(allowed_sets):
        wrong |= (kind_of == place) & ~np.isin(value, numbers)
    if wrong.any():
        at = int(np.argmax(wrong))
        attribute = attributes[int(index[at])]
        rule = f"be one of {', '.join(attribute.values[:10])}" if attribute.values else "be finite"
        raise DataError(
            f"{origin}, {place_of(int(row_of[at]))}, attribute {attribute.name}: a value must {rule}, got {value[at]:g}"
        )


def _with_absent(
    row_of: NDArray[np.int64],
    column: NDArray[np.int64],
    value: NDArray[np.float64],
    attributes: tuple[Attribute, ...],
    count: int,
    origin: str,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """The cells with those that rows leave out of attributes whose first declared value is not 0."""
    filled = [place for place, attribute in enumerate(attributes) if attribute.absent]
    if len(filled) * count > _LARGEST_CELLS:
        raise DataError(
            f"{origin}: attributes that are not 0 where left out must be few, got {len(filled):,} in {count:,} rows"
        )
    rows, columns, values = [row_of], [column], [value]
    for place in filled:
        missing = np.setdiff1d(np.arange(count), row_of[column == place])
        rows.append(missing)
        columns.append(np.full(len(missing), place))
        values.append(np.full(len(missing), attributes[place].absent))
    return np.concatenate(rows), np.concatenate(columns), np.concatenate(values)
