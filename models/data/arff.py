"""ARFF, dense and sparse, as Weka, Mulan and MEKA write it.

Numeric attributes are features as they are. A nominal attribute whose values are all numbers (`{0,1}`) is that
number; one with k words becomes k - 1 features of 0 and 1, one per word but the first. A sparse row that leaves
an attribute out means 0, or the first declared value of a nominal attribute, as Weka reads it.

Labels are the last attribute (one class a row), or those chosen: by a Mulan XML file, by name, or so many at the
beginning or the end; a MEKA relation name (`-C n`) chooses them too.
"""

import csv
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.data.arff_header import Attribute, Header, cell_fault, parse_header, unquoted
from hetsgd.models.data.arff_sparse import sparse_cells
from hetsgd.models.data.dataset import DataError
from hetsgd.models.data.labels import LabelChoice
from hetsgd.models.data.table import SparseRows, Table, compact
from hetsgd.models.data.targets import PlaceOf, index_numbers, index_words, marks
from hetsgd.models.data.text import decode, shown


def parse_arff(
    raw: bytes, *, origin: str, label: LabelChoice | None = None, classes: tuple[str, ...] | None = None
) -> Table:
    """All rows of an ARFF file; sparse where the rows are.

    `origin` names the file in messages, `label` chooses the label attributes, `classes` declares the classes that
    may occur. A nominal label declares its classes itself.

    Raises DataError with file, line, attribute, rule and value for anything that is not such a file.
    """
    lines = decode(raw, origin).split("\n")
    header = parse_header(lines, origin)
    choice = label if label is not None and (label.given or label.several) else header.meka or LabelChoice(last=1)
    if choice.several and not choice.given:
        if header.meka is None:
            raise DataError(f'{origin}: label must choose the labels: an .xml file, "last 14", "first 14" or names')
        choice = header.meka
    names = [attribute.name for attribute in header.attributes]
    labels = choice.places(names, f"{origin}, @attribute lines")
    rows: list[str] = []
    numbers: list[int] = []
    for number, line in enumerate(lines[header.data_line - 1 :], start=header.data_line):
        content = line.strip()
        if content and not content.startswith("%"):
            rows.append(content)
            numbers.append(number)
    if not rows:
        raise DataError(f"{origin}: must hold rows below @data, found none")

    def place_of(row: int) -> str:
        return f"line {numbers[row]}"

    x: NDArray[np.float64] | SparseRows
    features = [column for column in range(len(names)) if column not in set(labels)]
    if all(len(header.attributes[column].values) == 1 for column in features):
        raise DataError(f"{origin}: at least one feature must have more than one possible value, none has")
    if rows[0].startswith("{"):
        cells = sparse_cells(rows, header.attributes, origin, place_of)
        x, found = cells.rows(features, header.attributes), cells.columns(labels)
    else:
        values = _dense(rows, header, origin, place_of)
        x, found = _spread(values, features, header.attributes), values[:, list(labels)]
    chosen = [header.attributes[column] for column in labels]
    y, label_names = _targets(found, chosen, choice.several, origin, place_of, classes)
    return Table(x=x if isinstance(x, SparseRows) else compact(x), y=y, label_names=label_names)


def _targets(
    values: NDArray[np.float64],
    labels: list[Attribute],
    several: bool,
    origin: str,
    place_of: PlaceOf,
    classes: tuple[str, ...] | None,
) -> tuple[NDArray[np.int64] | NDArray[np.uint8], tuple[str, ...]]:
    if several:
        for attribute in labels:
            if attribute.words:
                raise DataError(
                    f"{origin}: label {attribute.name} must be {{0,1}}, got {{{','.join(attribute.values[:5])}}}"
                )
        shown_names = [f"label {attribute.name}" for attribute in labels]
        names = tuple(attribute.name for attribute in labels)
        return marks(values, origin=origin, place_of=place_of, names=shown_names), names
    attribute, column = labels[0], values[:, 0]
    if attribute.words:
        codes = column.astype(np.int64)
        used, codes = np.unique(codes, return_inverse=True)
        words = [attribute.values[int(code)] for code in used]
        return index_words(
            codes.reshape(-1), words, origin=origin, place_of=place_of, classes=classes or attribute.values
        )
    declared = classes
    if declared is None and attribute.numbers and all(value == int(value) for value in attribute.numbers):
        declared = tuple(str(int(value)) for value in sorted(attribute.numbers))
    return index_numbers(column, origin=origin, place_of=place_of, classes=declared)


def _dense(rows: list[str], header: Header, origin: str, place_of: PlaceOf) -> NDArray[np.float64]:
    """All cells as numbers, words as the place of the value; checked against the declared values."""
    attributes = header.attributes
    codes = {
        column: {value: float(place) for place, value in enumerate(attribute.values)}
        for column, attribute in enumerate(attributes)
        if attribute.words
    }
    quote = "'" if any("'" in row for row in rows) else '"'
    converters: dict[int | str, Callable[[str], float]] = {
        column: partial(_code, known) for column, known in codes.items()
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            values: NDArray[np.float64] = np.loadtxt(
                rows,
                dtype=np.float64,
                comments=None,
                delimiter=",",
                converters=converters or None,
                quotechar=quote,
                ndmin=2,
                encoding="utf-8",
            )
    except (ValueError, KeyError, UserWarning, OverflowError) as error:
        raise _diagnosis(rows, attributes, quote, origin, place_of) or DataError(f"{origin}: {error}") from error
    good = values.shape == (len(rows), len(attributes)) and np.isfinite(values).all()
    if not good or not all(
        np.isin(values[:, column], attribute.numbers).all()
        for column, attribute in enumerate(attributes)
        if attribute.numbers
    ):
        raise _diagnosis(rows, attributes, quote, origin, place_of) or DataError(
            f"{origin}: must be {len(rows)} rows of {len(attributes)} finite numbers, got {values.shape}"
        )
    return values


def _code(codes: dict[str, float], field: str) -> float:
    return codes[unquoted(field.strip())]


def _spread(values: NDArray[np.float64], features: list[int], attributes: tuple[Attribute, ...]) -> NDArray[np.float64]:
    """The feature columns, a nominal attribute with words spread over one column per word but the first."""
    if not any(attributes[column].words for column in features):
        return np.ascontiguousarray(values[:, features])
    parts: list[NDArray[np.float64]] = []
    for column in features:
        cells = values[:, column]
        places = range(1, len(attributes[column].values)) if attributes[column].words else ()
        parts += [(cells == place).astype(np.float64) for place in places] if attributes[column].words else [cells]
    return np.ascontiguousarray(np.column_stack(parts))


def _diagnosis(
    rows: list[str], attributes: tuple[Attribute, ...], quote: str, origin: str, place_of: PlaceOf
) -> DataError | None:
    """The first rule broken, found line by line: only a file that was refused is read this slowly."""
    for place, row in enumerate(rows):
        where = f"{origin}, {place_of(place)}"
        if row.startswith("{"):
            return DataError(f"{where}: rows must be all sparse or all dense, got {shown(row)}")
        try:
            fields = next(csv.reader([row], quotechar=quote))
        except csv.Error as error:
            return DataError(f"{where}: must be values joined by commas ({error}), got {shown(row)}")
        if len(fields) != len(attributes):
            return DataError(f"{where}: must hold {len(attributes)} values, one per @attribute, got {len(fields)}")
        for field, attribute in zip(fields, attributes, strict=True):
            fault = cell_fault(field.strip(), attribute)
            if fault:
                return DataError(f"{where}, attribute {attribute.name}: {fault}, got {shown(field)}")
    return None
