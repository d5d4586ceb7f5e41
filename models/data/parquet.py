"""Parquet tables: one row a row, number columns as features, label columns as in delimited tables.

The only module of models/ that uses pyarrow, and only once a Parquet file is read.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.data.dataset import DataError
from hetsgd.models.data.labels import LabelChoice
from hetsgd.models.data.source_file import content_limit, size_words
from hetsgd.models.data.table import Table, compact
from hetsgd.models.data.targets import index_labels, index_words
from hetsgd.models.data.text import shown


def parse_parquet(
    raw: bytes, *, origin: str, label: LabelChoice | None = None, classes: tuple[str, ...] | None = None
) -> Table:
    """All rows of a Parquet table.

    `origin` names the file in messages, `label` chooses the label columns (default: the last), `classes` declares
    the classes that may occur. Raises DataError with file, column, row, rule and value.
    """
    import pyarrow

    file = _opened(raw, origin)
    names = [str(name) for name in file.schema_arrow.names]
    if len(names) < 2 or not file.metadata.num_rows:
        count = file.metadata.num_rows
        raise DataError(f"{origin}: must hold rows of features and a label, got {count} rows of {len(names)}")
    unnamed = [name for name in names if name.startswith("__index_level_") or not name.strip()]
    if unnamed:
        raise DataError(f"{origin}: every column must have a name, got {shown(unnamed[0])} (write without the index)")
    choice = label if label is not None and label.given else LabelChoice(last=1, several=bool(label and label.several))
    if choice.several and (label is None or not label.given):
        raise DataError(f'{origin}: label must name the label columns of a multi-label table, as in "a,b" or "last 2"')
    places = choice.places(names, f"{origin}, columns")
    features = [place for place in range(len(names)) if place not in set(places)]
    for place in features if not choice.several else range(len(names)):
        # Before anything is unpacked: text that repeats takes no room in the file, and all memory here.
        _check_numbers(file.schema_arrow.field(place).type, f"{origin}, column {names[place]}")
    table = _unpacked(file, origin)
    x = np.empty((table.num_rows, len(features)), dtype=np.float64)
    for column, place in enumerate(features):
        x[:, column] = _numbers(table.column(place), f"{origin}, column {names[place]}")
    if choice.several:
        parts = [_numbers(table.column(place), f"{origin}, column {names[place]}") for place in places]
        labels: NDArray[Any] = np.column_stack(parts)
        own = tuple(names[place] for place in places)
        y, label_names = index_labels(labels, origin=origin, place_of=_row, names=own)
    else:
        column, where = table.column(places[0]), f"{origin}, column {names[places[0]]}"
        if pyarrow.types.is_dictionary(column.type) and _is_text(column.type.value_type):
            codes, words = _words(column, where)
            y, label_names = index_words(codes, words, origin=origin, place_of=_row, classes=classes)
        else:
            y, label_names = index_labels(_numbers(column, where), origin=origin, place_of=_row, classes=classes)
    return Table(x=compact(x), y=y, label_names=label_names)


def _opened(raw: bytes, origin: str) -> Any:
    """The file, as pyarrow holds it; columns of text come as codes of their distinct words."""
    import pyarrow
    import pyarrow.parquet

    def opened(words: list[str] | None) -> Any:
        return pyarrow.parquet.ParquetFile(
            pyarrow.BufferReader(raw), page_checksum_verification=True, read_dictionary=words
        )

    with _whole(origin):
        file = opened(None)
        words = [str(field.name) for field in file.schema_arrow if _is_text(field.type)]
        if words:
            file = opened(words)
        size_bytes, limit = file.metadata.num_rows * file.metadata.num_columns * 8, content_limit()
    if size_bytes > limit:
        raise DataError(
            f"{origin}: must unpack to at most {size_words(limit)} on this machine, "
            f"got {file.metadata.num_rows:,} rows x {file.metadata.num_columns:,} columns"
        )
    return file


def _unpacked(file: Any, origin: str) -> Any:
    """All rows, checked."""
    with _whole(origin):
        table = file.read(use_threads=False)
        table.validate(full=True)
    return table


@contextmanager
def _whole(origin: str) -> Iterator[None]:
    """DataError for whatever pyarrow raises on damaged content."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, ValueError, TypeError, MemoryError, OverflowError) as error:
        raise DataError(f"{origin}: must be a whole Parquet file, got damaged content ({_first(error)})") from error


def _is_text(kind: Any) -> bool:
    import pyarrow

    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))


def _check_numbers(kind: Any, where: str) -> None:
    import pyarrow

    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    if not (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind)):
        raise DataError(f"{where}: must be numbers, got {kind}")


def _row(row: int) -> str:
    return f"row {row}"


def _first(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _numbers(column: Any, where: str) -> NDArray[np.float64]:
    """A column of finite numbers as float64."""
    import pyarrow

    _check_numbers(column.type, where)
    if pyarrow.types.is_dictionary(column.type):
        column = pyarrow.chunked_array([part.dictionary_decode() for part in column.chunks], column.type.value_type)
    _check_present(column, where)
    values: NDArray[np.float64] = np.asarray(column.combine_chunks().to_numpy(zero_copy_only=False), dtype=np.float64)
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise DataError(f"{where}, row {row}: must be a finite number, got {values[row]}")
    return values


def _words(column: Any, where: str) -> tuple[NDArray[np.int64], list[str]]:
    """A column of text as codes, and the word that each code stands for."""
    _check_present(column, where)
    whole = column.unify_dictionaries().combine_chunks()
    codes = np.asarray(whole.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
    used, codes = np.unique(codes, return_inverse=True)
    words = whole.dictionary.take(used).to_pylist()
    if len(set(words)) != len(words) or None in words:
        raise DataError(f"{where}: the words of a dictionary must be there and differ, got {shown(str(words[:5]))}")
    return codes.reshape(-1).astype(np.int64), words


def _check_present(column: Any, where: str) -> None:
    if column.null_count:
        row = int(np.argmax(np.asarray(column.is_null().to_numpy())))
        raise DataError(f"{where}, row {row}: value missing")
