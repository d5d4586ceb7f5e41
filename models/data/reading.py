"""Read one file in whatever format it is."""

from codecs import BOM_UTF8
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hetsgd.models.data.dataset import DataError
from hetsgd.models.data.formats import FORMATS, Format
from hetsgd.models.data.labels import LabelChoice, choose_labels
from hetsgd.models.data.libsvm import looks_like_libsvm, parse_libsvm
from hetsgd.models.data.source_file import bare_suffix, read_bytes
from hetsgd.models.data.storage import cached_table
from hetsgd.models.data.table import Table
from hetsgd.models.data.text import shown

_SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".svm": "libsvm",
    ".libsvm": "libsvm",
    ".svmlight": "libsvm",
    ".arff": "arff",
    ".npz": "npz",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_BINARY: tuple[tuple[bytes, Format], ...] = ((b"PK\x03\x04", "npz"), (b"PAR1", "parquet"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a file is to be read; None leaves it to the file.

    `label` chooses the label columns (`choose_labels`), or an array of an archive; `features` declares the width,
    `classes` the classes that may occur, `first_index` what LIBSVM text counts indices from.
    """

    format: Format | None = None
    label: str | Sequence[str] | None = None
    multilabel: bool | None = None
    features: int | None = None
    classes: tuple[str, ...] | None = None
    first_index: int | None = None

    def __post_init__(self) -> None:
        if self.format not in (None, *FORMATS):
            raise DataError(f"format must be one of {', '.join(FORMATS)}, got {self.format!r}")
        if self.first_index not in (None, 0, 1) or isinstance(self.first_index, bool):
            raise DataError(f"first_index must be 0 or 1, got {self.first_index!r}")
        if self.features is not None and (isinstance(self.features, bool) or not 0 < self.features < 2**31):
            raise DataError(f"features must lie in 1..{2**31 - 1}, got {self.features!r}")


def read_table(path: Path, reading: Reading) -> Table:
    """All rows of a file; text that takes long to parse is parsed once and kept.

    The format is the one asked for, else that of the suffix (below .bz2, .gz or .xz), else that of the content.

    Raises DataError, or MissingDataError where a file is not there.
    """
    format_ = reading.format or _SUFFIXES.get(bare_suffix(path))
    if format_ in ("npz", "parquet"):
        return _checked(_parse(read_bytes(path), format_, path, reading, _choice(path, reading)), path, reading)
    choice = _choice(path, reading)
    options = {
        "format": reading.format,
        "label": [choice.names, choice.first, choice.last, choice.several],
        "array": reading.label if isinstance(reading.label, str) else None,
        "features": reading.features,
        "classes": reading.classes,
        "first_index": reading.first_index,
    }

    def parse() -> Table:
        raw = read_bytes(path)
        return _parse(raw, reading.format or detect(path, raw), path, reading, choice)

    return _checked(cached_table(path, options, parse), path, reading)


def detect(path: Path, raw: bytes) -> Format:
    """The format by suffix, or by content where the suffix says nothing.

    A table without `index:value` pairs is delimited even where it is called .svm.
    """
    known = _SUFFIXES.get(bare_suffix(path))
    if known is not None and known != "libsvm":
        return known
    for magic, format_ in _BINARY:
        if raw.startswith(magic):
            return format_
    lines = (line.strip().lower() for line in raw[:100_000].removeprefix(BOM_UTF8).split(b"\n"))
    first = next((line for line in lines if line and not line.startswith(b"%")), b"")
    if first.startswith((b"@relation", b"@attribute")):
        return "arff"
    return "libsvm" if looks_like_libsvm(raw) else "csv"


def _choice(path: Path, reading: Reading) -> LabelChoice:
    return choose_labels(reading.label, multilabel=reading.multilabel, origin=str(path), folder=path.parent)


def _parse(raw: bytes, format_: Format, path: Path, reading: Reading, choice: LabelChoice) -> Table:
    """The rows of a file in this format; whatever a damaged file makes a library raise is told of the file."""
    try:
        return _parse_as(raw, format_, path, reading, choice)
    except (DataError, MemoryError):
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise DataError(f"{path}: cannot be read as {format_}, it is damaged or of another format ({what})") from error


def _parse_as(raw: bytes, format_: Format, path: Path, reading: Reading, choice: LabelChoice) -> Table:
    origin = str(path)
    if format_ == "libsvm":
        if choice.given:
            raise DataError(
                f"{origin}: label must be left out for LIBSVM text, whose lines start with it, "
                f"got {shown(str(reading.label))}"
            )
        return parse_libsvm(
            raw,
            origin=origin,
            features=reading.features,
            multilabel=choice.several,
            classes=reading.classes,
            first_index=reading.first_index,
        )
    if reading.first_index is not None:
        raise DataError(f"{origin}: first_index must be left out, only LIBSVM text counts indices")
    if format_ == "arff":
        from hetsgd.models.data.arff import parse_arff

        return parse_arff(raw, origin=origin, label=choice, classes=reading.classes)
    if format_ == "parquet":
        from hetsgd.models.data.parquet import parse_parquet

        return parse_parquet(raw, origin=origin, label=choice, classes=reading.classes)
    if format_ == "npz":
        from hetsgd.models.data.npz import parse_npz

        if reading.label is not None and not isinstance(reading.label, str):
            raise DataError(f"{origin}: label must name one array of the archive, got {reading.label!r}")
        return parse_npz(raw, origin=origin, label=reading.label, classes=reading.classes)
    from hetsgd.models.data.delimited import parse_delimited

    return parse_delimited(raw, origin=origin, label=choice, multilabel=choice.several, classes=reading.classes)


def _checked(table: Table, path: Path, reading: Reading) -> Table:
    """The table, whose width and kind of labels are those asked for."""
    if reading.features is not None and table.features != reading.features:
        raise DataError(f"{path}: must have the declared {reading.features} features, got {table.features}")
    if reading.multilabel is not None and table.multilabel != reading.multilabel:
        kind = "several labels a row" if table.multilabel else "one class a row"
        raise DataError(f"{path}: multilabel must be left out or {table.multilabel}, the file has {kind}")
    return table
