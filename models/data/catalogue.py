"""Load a data set by its name or from a file, split and scaled, ready for training."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from hetsgd.models.data.assembly import assemble
from hetsgd.models.data.covtype_sample import read_sample
from hetsgd.models.data.dataset import DataError, Dataset, MissingDataError
from hetsgd.models.data.download import DownloadProgress, fetch
from hetsgd.models.data.formats import Format
from hetsgd.models.data.homes import HOMES
from hetsgd.models.data.known import (
    COVTYPE_LIBSVM_COUNTS,
    KNOWN,
    SAMPLE,
    KnownSet,
    download_folder,
    find,
    how_to_get,
    missing_message,
    where_to_put,
)
from hetsgd.models.data.names import DESCRIPTIONS
from hetsgd.models.data.preparation import Scaling
from hetsgd.models.data.reading import Reading, read_table
from hetsgd.models.data.table import Table, join
from hetsgd.models.data.targets import declared_classes
from hetsgd.models.edge import nearest


def load(
    name_or_path: str | Path,
    *,
    label: str | Sequence[str] | None = None,
    multilabel: bool | None = None,
    test_fraction: float | None = None,
    scaling: Scaling = "unit",
    seed: int = 0,
    dtype: Literal["float32", "float64"] = "float32",
    format: Format | None = None,
    features: int | None = None,
    classes: int | Sequence[str | int] | None = None,
    first_index: int | None = None,
    sparse: bool | None = None,
    download: bool = False,
    progress: DownloadProgress | None = None,
) -> Dataset:
    """A data set of the catalogue (`describe()` in names.py lists them) or of a file of one's own.

    A file is LIBSVM text, a delimited table, ARFF, NPZ or Parquet, plain or compressed (.bz2, .gz, .xz); `format`
    overrides what its suffix and content say. `label` names the label column (default: the last; several names
    for multi-label), counts them (`last 983`, `first 14`) or names a Mulan XML file (`delicious.xml`, taken
    relative to the data file); of an NPZ archive it names the array. `multilabel` says that rows may carry
    several labels. `features` declares the width, `classes` the labels that may occur (a number n for 0 to
    n - 1), `first_index` whether LIBSVM text counts from 0 or 1: what lies outside is refused. Known sets know
    all this themselves.

    `test_fraction` is the share kept for testing, stratified over the classes and drawn by `seed`. Without it
    a published test part is used where there is one, else a fifth of the rows; given, all rows are split;
    0 trains on all. Rows keep their file order in both parts. `scaling` is fitted on the training part.
    `sparse` keeps the features CSR or dense; without it, data that come sparse stay so where the dense matrix
    would be larger than 1 GiB. A CSR set can be scaled by `unit` (each feature by its largest value) where no
    value is negative, and not by `standard`.

    Nothing is fetched unless `download` is set: then a known set that is not at hand is fetched into the cache
    folder, checked, with `progress` called as bytes come in.

    Raises DataError, MissingDataError where a file is not there, DownloadError where fetching fails.
    """
    if dtype not in ("float32", "float64"):
        raise DataError(f"dtype must be float32 or float64, got {dtype!r}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise DataError(f"seed must be a whole number >= 0, got {seed!r}")
    reading = Reading(
        format=format,
        label=label,
        multilabel=multilabel,
        features=features,
        classes=declared_classes(classes),
        first_index=first_index,
    )
    try:
        name, words, table = _table(name_or_path, reading, download=download, progress=progress)
        return assemble(
            table,
            name=name,
            words=words,
            test_fraction=test_fraction,
            scaling=scaling,
            seed=seed,
            dtype=np.dtype(dtype),
            sparse=sparse,
        )
    except MemoryError as error:
        raise DataError(
            f"{name_or_path}: does not fit the memory of this machine: keep fewer rows or features"
        ) from error


def _table(
    name_or_path: str | Path, reading: Reading, *, download: bool, progress: DownloadProgress | None
) -> tuple[str, str, Table]:
    """What the data set is called, what was read in words, and all its rows."""
    text = str(name_or_path)
    if text in DESCRIPTIONS and not isinstance(name_or_path, Path):
        if download:
            _download(text, progress)
        table, words = _known(text, reading)
        return _held(text), words, table
    path = Path(name_or_path)
    if download:
        raise DataError(f"download must be left out for a file, only known data sets are fetched, got {path}")
    if not _exists(path):
        raise MissingDataError(f"{path}: neither a file nor a known data set, {nearest(path.name, DESCRIPTIONS)}")
    return path.name.split(".")[0] or path.name, path.name, read_table(path, reading)


def _known(name: str, reading: Reading) -> tuple[Table, str]:
    """All rows of a known data set, and what was read in words."""
    known = KNOWN["covtype" if name == SAMPLE else name]
    _check_left_out(name, reading, known)
    path = None if name == SAMPLE else find(name, known.files)
    test_path = find(name, known.test_files)
    if _held(name) == SAMPLE:
        sample = "the embedded 10 % sample of covtype, stratified"
        words = sample if name == SAMPLE else f"the full set is not at hand ({how_to_get(name)}), instead {sample}"
        return _against_rest(read_sample(), known.positive), words + _task(known)
    if path is None:
        raise MissingDataError(missing_message(name))
    own = Reading(
        label=known.label,
        multilabel=known.multilabel,
        features=known.features,
        classes=known.classes,
        first_index=known.first_index,
    )
    table = read_table(path, own)
    words = path.name
    if test_path is not None:
        table = join(table, read_table(test_path, own))
        words = f"{path.name} and {test_path.name}"
    if ".libsvm." in path.name:
        return _covtype_of_libsvm(table, path), words + _task(known)
    return _against_rest(table, known.positive), words + _task(known)


def _held(name: str) -> str:
    """The data set that stands for a known one: covtype's embedded sample where the full set is not at hand."""
    return SAMPLE if name == "covtype" and find(name, KNOWN[name].files) is None else name


def _check_left_out(name: str, reading: Reading, known: KnownSet) -> None:
    """Refuse reading options that a known data set does not need, unless they say what it says itself."""
    own = {"multilabel": known.multilabel, "features": known.features, "classes": known.classes}
    for field in ("label", "format", "first_index", *own):
        value = getattr(reading, field)
        if value is not None and value != own.get(field):
            allowed = "left out" if own.get(field) is None else f"left out or {own[field]}"
            raise DataError(
                f"{field} must be {allowed} for the known data set {name}, got {value!r}; give a file's path"
            )


def _download(name: str, progress: DownloadProgress | None) -> None:
    """Fetch the files of a known data set that are not at hand, and check that they hold the published rows."""
    if name == SAMPLE:
        return
    known, folder = KNOWN[name], download_folder(name)
    missing = [
        file for files in (known.files, known.test_files) if files and find(name, files) is None for file in files
    ]
    if not missing:
        return
    if name not in HOMES:
        raise MissingDataError(f"no public address of {name} is known: {where_to_put(name)}")
    homes = [home for home in HOMES[name] if home.file in missing or Path(home.file).stem in missing]
    fetched = [fetch(home, folder, progress=progress) for home in homes]
    try:
        rows = _known(name, Reading())[0].rows
        if rows != known.rows:
            raise DataError(f"{known.rows:,} rows are published, got {rows:,}")
    except DataError as error:
        for path in fetched:
            path.unlink(missing_ok=True)
        raise DataError(
            f"{name}: what {' and '.join(home.url for home in homes)} served is not the published set ({error}); "
            f"nothing was kept. {where_to_put(name)}"
        ) from error


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long for the file system, or with a zero byte
        return False


def _covtype_of_libsvm(table: Table, path: Path) -> Table:
    """The binary task of LIBSVM's covtype, whose class 2 is told by its number of rows."""
    counts = np.bincount(table.y).tolist()
    if sorted(counts) != list(COVTYPE_LIBSVM_COUNTS):
        wanted = " and ".join(f"{count:,}" for count in COVTYPE_LIBSVM_COUNTS)
        raise DataError(f"{path}: the two classes of covtype must have {wanted} rows, got {counts}")
    y = (table.y == counts.index(COVTYPE_LIBSVM_COUNTS[0])).astype(np.int64)
    return replace(table, y=y, label_names=("rest", "2"))


def _against_rest(table: Table, positive: str | None) -> Table:
    """The binary task "this class (1) against all others (0)"."""
    if positive is None:
        return table
    if positive not in table.label_names:
        raise DataError(f"class {positive} must occur, the classes are {', '.join(table.label_names[:10])}")
    y = (table.y == table.label_names.index(positive)).astype(np.int64)
    return replace(table, y=y, label_names=("rest", positive))


def _task(known: KnownSet) -> str:
    return "" if known.positive is None else f", class {known.positive} against the rest"
