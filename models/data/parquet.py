"""Parquet tables: one row a row, number columns as features, label columns as in delimited tables.

The only module of models/ that uses pyarrow, and only once a Parquet file is read.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.data.dataset import DataError
from hetsgd.models.data.labels import LabelChoice
from hetsgd.models.data.source_file import MAX_CONTENT_BYTES
from hetsgd.models.data.table import Table, compact
from hetsgd.models.data.targets import index_labels
from hetsgd.models.data.text import shown


def parse_parquet(
    raw: bytes, *, origin: str, label: LabelChoice | None = None, classes: tuple[str, ...] | None = None
) -> Table:
    """All rows of a Parquet table.

    `origin` names the file in messages, `label` chooses the label columns (default: the last), `classes` declares
    the classes that may occur. Raises DataError with file, column, row, rule and value.
    """
    table = _read(raw, origin)
    names = [str(name) for name in table.column_names]
    if len(names) < 2 or not table.num_rows:
        raise DataError(f"{origin}: must hold rows of features and a label, got {table.num_rows} rows of {len(names)}")
    unnamed = [name for name in names if name.startswith("__index_level_") or not name.strip()]
    if unnamed:
        raise DataError(f"{origin}: every column must have a name, got {shown(unnamed[0])} (write without the index)")
    choice = label if label is not None and label.given else LabelChoice(last=1, several=bool(label and label.several))
    if choice.several and (label is None or not label.given):
        raise DataError(f'{origin}: label must name the label columns of a multi-label table, as in "a,b" or "last 2"')
    places = choice.places(names, f"{origin}, columns")
    features = [place for place in range(len(names)) if place not in set(places)]
    x = np.empty((table.num_rows, len(features)), dtype=np.float64)
    for column, place in enumerate(features):
        x[:, column] = _numbers(table.column(place), f"{origin}, column {names[place]}")
    if choice.several:
        parts = [_numbers(table.column(place), f"{origin}, column {names[place]}") for place in places]
        labels: NDArray[Any] = np.column_stack(parts)
        own: tuple[str, ...] | None = tuple(names[place] for place in places)
    else:
        labels, own = _labels(table.column(places[0]), f"{origin}, column {names[places[0]]}"), None
    y, label_names = index_labels(
        labels, origin=origin, place_of=lambda row: f"row {row}", names=own, classes=None if own else classes
    )
    return Table(x=compact(x), y=y, label_names=label_names)


def _read(raw: bytes, origin: str) -> Any:
    """The table, as pyarrow holds it."""
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(raw), page_checksum_verification=True)
        size_bytes = file.metadata.num_rows * file.metadata.num_columns * 8
        if size_bytes > MAX_CONTENT_BYTES:
            raise DataError(
                f"{origin}: must unpack to at most {MAX_CONTENT_BYTES / 2**30:.0f} GiB, "
                f"got {file.metadata.num_rows:,} rows x {file.metadata.num_columns:,} columns"
            )
        table = file.read(use_threads=False)
        table.validate(full=True)
    except DataError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, MemoryError, OverflowError) as error:
        raise DataError(f"{origin}: must be a whole Parquet file, got damaged content ({_first(error)})") from error
    return table


def _first(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _numbers(column: Any, where: str) -> NDArray[np.float64]:
    """A column of finite numbers as float64."""
    import pyarrow

    kind = column.type
    if not (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind)):
        raise DataError(f"{where}: must be numbers, got {kind}")
    _check_present(column, where)
    values: NDArray[np.float64] = np.asarray(column.combine_chunks().to_numpy(zero_copy_only=False), dtype=np.float64)
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise DataError(f"{where}, row {row}: must be a finite number, got {values[row]}")
    return values


def _labels(column: Any, where: str) -> NDArray[Any]:
    """A column of class labels: numbers, or text as numpy text."""
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = pyarrow.chunked_array([chunk.dictionary_decode() for chunk in column.chunks], column.type.value_type)
    kind = column.type
    if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
        return _numbers(column, where)
    _check_present(column, where)
    return np.array(column.to_pylist(), dtype=np.str_)


def _check_present(column: Any, where: str) -> None:
    if column.null_count:
        row = int(np.argmax(np.asarray(column.is_null().to_numpy())))
        raise DataError(f"{where}, row {row}: value missing")
