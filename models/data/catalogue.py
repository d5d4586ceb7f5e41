"""Load a data set by its name or from a file, split and scaled, ready for training."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.data.covtype_sample import read_sample
from hetsgd.models.data.dataset import DataError, Dataset, MissingDataError
from hetsgd.models.data.delimited import parse_delimited
from hetsgd.models.data.libsvm import looks_like_libsvm, parse_libsvm
from hetsgd.models.data.names import DESCRIPTIONS
from hetsgd.models.data.preparation import Scaling, fit_scaler, split_rows
from hetsgd.models.data.source_file import COMPRESSIONS, bare_suffix, read_bytes
from hetsgd.models.data.storage import cached_table, data_folders
from hetsgd.models.data.table import Table, dense, join

DEFAULT_TEST_FRACTION = 0.2

_SCALING_WORDS: dict[Scaling, str] = {
    "none": "features as read",
    "unit": "features scaled to [0, 1] by their training range",
    "standard": "features scaled to mean 0 and deviation 1 on the training rows",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """Files of one known data set, in the folder of its name; the first that exists is read."""

    files: tuple[str, ...]
    test_files: tuple[str, ...] = ()
    features: int | None = None
    multilabel: bool = False
    positive: str | None = None


_COVTYPE = _Entry(files=("covtype.csv", "covtype.data"), features=54, positive="2")

_ENTRIES: dict[str, _Entry] = {
    "covtype": _COVTYPE,
    "w8a": _Entry(files=("w8a", "w8a.txt"), features=300),
    "a9a": _Entry(files=("a9a", "a9a.txt"), test_files=("a9a.t",), features=123),
    "letter": _Entry(files=("letter.svm",), features=16),
    "mnist10k": _Entry(files=("mnist10k.svm",), features=784),
    "tmc2007_500": _Entry(files=("tmc2007_500.svm",), features=500, multilabel=True),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Source:
    """All rows of a data set before split and scaling; from row `test_start` on they are its own test part."""

    name: str
    table: Table
    words: str
    test_start: int | None = None


def load(
    name_or_path: str | Path,
    *,
    label: str | Sequence[str] | None = None,
    multilabel: bool | None = None,
    test_fraction: float | None = None,
    scaling: Scaling = "unit",
    seed: int = 0,
    dtype: Literal["float32", "float64"] = "float32",
) -> Dataset:
    """A data set of the catalogue (`describe()` in names.py lists them) or of a LIBSVM or delimited file.

    `label` names the label column of a delimited file (default: the last; several for multi-label).
    `multilabel` says that rows of a file may carry several labels; known sets know it themselves.
    `test_fraction` is the share kept for testing, stratified over the classes and drawn by `seed`. Without it
    a published test part is used where there is one, else a fifth of the rows; given, all rows are split;
    0 trains on all. Rows keep their file order in both parts. `scaling` is fitted on the training part.

    Raises DataError, or MissingDataError where a file is not there.
    """
    if dtype not in ("float32", "float64"):
        raise DataError(f"dtype must be float32 or float64, got {dtype!r}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise DataError(f"seed must be a whole number >= 0, got {seed!r}")
    name = str(name_or_path)
    if name in DESCRIPTIONS and not isinstance(name_or_path, Path):
        source = _known(name, label, multilabel)
    else:
        source = _file(Path(name_or_path), label, bool(multilabel))
    return _prepare(source, test_fraction, scaling, seed, np.dtype(dtype))


def _known(name: str, label: str | Sequence[str] | None, multilabel: bool | None) -> _Source:
    entry = _ENTRIES.get(name, _COVTYPE)
    if label is not None:
        raise DataError(f"label must be left out for the known data set {name}, got {label!r}; give a file's path")
    if multilabel is not None and multilabel != entry.multilabel:
        raise DataError(f"multilabel must be left out or {entry.multilabel} for {name}, got {multilabel}")
    path = _find(name, entry.files) if name in _ENTRIES else None
    if path is None and entry is _COVTYPE:
        missing = "" if name == "covtype-sample" else f"the full set is not at hand ({_place(name, entry)}), instead "
        words = f"{missing}the embedded 10 % sample of covtype, stratified"
        return _Source(name=name, table=_against_rest(read_sample(), entry.positive), words=words + _task(entry))
    if path is None:
        raise MissingDataError(f"data set {name} is not on this machine: {_place(name, entry)}")
    table = _table(path, None, multilabel=entry.multilabel, features=entry.features)
    if entry.features is not None and table.features != entry.features:
        raise DataError(f"{path}: {name} must have {entry.features} features, got {table.features}")
    test_path = _find(name, entry.test_files)
    if test_path is not None:
        test = _table(test_path, None, multilabel=entry.multilabel, features=entry.features)
        words = f"{path.name} and {test_path.name}"
        return _Source(name=name, table=join(table, test), words=words, test_start=table.rows)
    return _Source(name=name, table=_against_rest(table, entry.positive), words=path.name + _task(entry))


def _file(path: Path, label: str | Sequence[str] | None, multilabel: bool) -> _Source:
    if not path.exists():
        raise MissingDataError(f"{path}: neither a file nor a known data set ({', '.join(DESCRIPTIONS)})")
    table = _table(path, label, multilabel=multilabel, features=None)
    return _Source(name=path.name.split(".")[0] or path.name, table=table, words=path.name)


def _find(name: str, files: tuple[str, ...]) -> Path | None:
    candidates = (
        folder / name / f"{file}{compression}"
        for folder in data_folders()
        for file in files
        for compression in COMPRESSIONS
    )
    return next((path for path in candidates if path.is_file()), None)


def _place(name: str, entry: _Entry) -> str:
    folders = " or ".join(str(folder / name) for folder in data_folders())
    return f"put {entry.files[0]} (plain, .xz, .bz2 or .gz) into {folders}; HETSGD_DATA names the folder above"


def _table(path: Path, label: str | Sequence[str] | None, *, multilabel: bool, features: int | None) -> Table:
    names = label if label is None or isinstance(label, str) else list(label)
    options = {"label": names, "multilabel": multilabel, "features": features}
    return cached_table(path, options, lambda: _parse(path, names, multilabel=multilabel, features=features))


def _parse(path: Path, label: str | list[str] | None, *, multilabel: bool, features: int | None) -> Table:
    raw = read_bytes(path)
    if bare_suffix(path) in (".csv", ".tsv") or not looks_like_libsvm(raw):
        return parse_delimited(raw, origin=str(path), label=label, multilabel=multilabel)
    if label is not None:
        raise DataError(f"{path}: label must be left out for LIBSVM text, whose lines start with it, got {label!r}")
    return parse_libsvm(raw, origin=str(path), features=features, multilabel=multilabel)


def _against_rest(table: Table, positive: str | None) -> Table:
    """The binary task "this class (1) against all others (0)"."""
    if positive is None:
        return table
    if positive not in table.label_names:
        raise DataError(f"class {positive} must occur, the classes are {', '.join(table.label_names[:10])}")
    y = (table.y == table.label_names.index(positive)).astype(np.int64)
    return Table(x=table.x, y=y, label_names=("rest", positive))


def _task(entry: _Entry) -> str:
    return "" if entry.positive is None else f", class {entry.positive} against the rest"


def _prepare(
    source: _Source, test_fraction: float | None, scaling: Scaling, seed: int, dtype: np.dtype[Any]
) -> Dataset:
    table = source.table
    train, test, split = _split(source, test_fraction, seed)
    train_x = dense(table.x, train, dtype)
    scaler = fit_scaler(train_x, scaling)
    test_x = dense(table.x, test, dtype)
    if scaler is not None:
        scaler.apply(train_x)
        scaler.apply(test_x)
    y = table.y.astype(np.float32 if table.multilabel else np.int64, copy=False)
    return Dataset(
        name=source.name,
        train_x=train_x,
        train_y=y[train],
        test_x=test_x,
        test_y=y[test],
        classes=len(table.label_names),
        multilabel=table.multilabel,
        source=(
            f"{source.words}: {table.rows:,} rows x {table.features} features, {len(table.label_names)} "
            f"{'labels' if table.multilabel else 'classes'}; {len(train):,} rows for training and {len(test):,} "
            f"for testing ({split}); {_SCALING_WORDS[scaling]}"
        ),
    )


def _split(source: _Source, test_fraction: float | None, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64], str]:
    table = source.table
    if test_fraction is None and source.test_start is not None:
        rows = np.arange(table.rows, dtype=np.int64)
        return rows[: source.test_start], rows[source.test_start :], "the published parts"
    share = DEFAULT_TEST_FRACTION if test_fraction is None else test_fraction
    train, test = split_rows(table.y, share, np.random.default_rng(seed))
    drawn = "drawn at random" if table.multilabel else "stratified over the classes"
    return train, test, f"{drawn}, seed {seed}" if share else "no test part asked for"
