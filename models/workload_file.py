"""Workloads from files: built-in TOML files, one's own, or an object of a Python module.

A workload file describes a network, its data and (optionally) the shape of the data, so that a run that needs no
data need not load them. Classes, labels and, where data are loaded, the shape come from the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from hetsgd.models.edge import call_object, load_object, nearest, own_path, problems, read_toml, shown_value
from hetsgd.models.run_file import RunError, run_table
from hetsgd.models.workload import LossName, Workload
from hetsgd.models.workload_names import WORKLOAD_FOLDER, workload_names
from hetsgd.models.workload_table import WORKLOAD_KEYS, WorkloadTable

if TYPE_CHECKING:
    from hetsgd.models.data.dataset import Dataset

_SHAPE: Final = ("rows", "test_rows", "features", "outputs", "density")
_DATA: Final = ("dataset", "label", "multilabel", "format", "first_index", "classes", "test_fraction")
_PREPARED: Final = (*_DATA, "split_seed", "scaling", "sparse", "precision", "download")


class WorkloadError(ValueError):
    """A workload's file, its overrides or its data break a rule; the message names file, field, rule and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedWorkload:
    """A workload, the defaults it gives to `run` settings, and the way to its data.

    `data()` loads the data once and keeps it; WorkloadError where the workload has none or they cannot be read.
    `notice`: what a person should be told about the data, empty where there is nothing to tell.
    """

    workload: Workload
    data: Callable[[], Dataset]
    run: Mapping[str, Any] = field(default_factory=dict)
    notice: str = ""


def load_workload(
    name_or_path: str | Path, overrides: Mapping[str, Any] | None = None, *, data: bool = True
) -> LoadedWorkload:
    """A built-in workload, a TOML file or `package.module:object`, with `workload.KEY=V` overrides (text or typed).

    `data` says whether the run needs the data: then they are loaded and their shape counts. Without, the shape is
    the file's where it gives rows, features and outputs; else the data are loaded for it. An override of what the
    rows are taken from (data set, label, test fraction) makes the file's shape void. The object of a module is a
    Workload, a LoadedWorkload or a function without parameters that returns one.

    Raises WorkloadError, which names file, field, rule and value.
    """
    if not isinstance(name_or_path, str | Path):
        raise WorkloadError(f"workload: must be a name or a path, got {shown_value(name_or_path)}")
    given = dict(overrides or {})
    text = str(name_or_path)
    if ":" in text and not text.endswith(".toml") and not Path(text).exists():
        return _from_module(text, given, data=data)
    path, name = _find(name_or_path)
    content = _read(path)
    run = _run_defaults(content, str(path))
    table = _table(content, given, path)
    folder = Path.cwd() if "dataset" in given else path.parent
    if data and (fixed := [key for key in _SHAPE if key in given]):
        raise WorkloadError(
            f"--set: workload.{fixed[0]}: comes from the data in this run, got {shown_value(given[fixed[0]])}; leave "
            "it out, or use a learner that needs no data"
        )
    if any(key in given for key in _DATA):
        table = table.model_copy(update={key: None for key in _SHAPE if key not in given})
    asked = _Asked(table=table, given=given, path=path, folder=folder)

    @lru_cache(maxsize=1)
    def load() -> Dataset:
        return _dataset(asked)

    known = table.rows is not None and table.features is not None and table.outputs is not None
    shaped = _from_data(asked, load()) if data or not known else _from_shape(table)
    workload = _build(asked, table.name or name, shaped)
    return LoadedWorkload(workload=workload, data=load, run=run, notice=_notice(table, workload))


def _find(name_or_path: str | Path) -> tuple[Path, str]:
    """Where a workload's file lies, and the name it goes by."""
    text = str(name_or_path)
    if text in workload_names():
        return WORKLOAD_FOLDER / f"{text}.toml", text
    path = own_path(name_or_path)
    if path.suffix == ".toml" or path.is_file():
        return path, path.stem
    raise WorkloadError(
        f"workload {text!r}: neither a built-in workload nor a .toml file nor package.module:object, "
        f"{nearest(text, workload_names())}"
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path)
    except ValueError as error:
        raise WorkloadError(str(error)) from error


def _run_defaults(content: dict[str, Any], origin: str) -> dict[str, Any]:
    values = content.pop("run", {})
    if not isinstance(values, dict):
        raise WorkloadError(f"{origin}: run: must be a table, got {shown_value(values)}")
    try:
        return run_table(values, origin=origin)
    except RunError as error:
        raise WorkloadError(str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A parsed workload file: its keys with the overrides (`given`) over them, and where data files are looked for."""

    table: WorkloadTable
    given: Mapping[str, Any]
    path: Path
    folder: Path

    def where(self, key: str) -> str:
        """The place that gives a key, for messages."""
        return f"--set: workload.{key}" if key in self.given else f"{self.path}: {key}"

    def where_data(self) -> str:
        """The place that says which data to take and how: overrides, where there are any, since they are new."""
        keys = [key for key in _PREPARED if key in self.given]
        return f"--set: {', '.join(f'workload.{key}' for key in keys)}" if keys else f"{self.path}: dataset"


def _table(content: dict[str, Any], overrides: dict[str, Any], path: Path) -> WorkloadTable:
    """The file's keys with the overrides over them; each is told of by where it comes from."""
    try:
        table = WorkloadTable.model_validate(content)
    except ValidationError as error:
        raise WorkloadError(problems(error, origin=str(path), given=content, known=WORKLOAD_KEYS)) from error
    if not overrides:
        return table
    try:
        return WorkloadTable.model_validate({**content, **overrides})
    except ValidationError as error:
        message = problems(error, origin="--set", prefix="workload.", given=overrides, known=WORKLOAD_KEYS)
        raise WorkloadError(message) from error


def _dataset(asked: _Asked) -> Dataset:
    """Load the data of a workload."""
    from hetsgd.models.data.catalogue import load
    from hetsgd.models.data.dataset import DataError
    from hetsgd.models.data.names import DESCRIPTIONS

    table = asked.table
    if table.dataset is None:
        raise WorkloadError(
            f"{asked.path}: dataset: must be given for a run that needs data (a known data set or a file)"
        )
    known = table.dataset in DESCRIPTIONS
    try:
        return load(
            table.dataset if known else asked.folder / own_path(table.dataset),
            label=table.label,
            multilabel=table.multilabel,
            format=table.format,
            first_index=table.first_index,
            classes=table.classes,
            features=None if known else table.features,
            download=table.download,
            test_fraction=table.test_fraction,
            scaling=table.scaling,
            seed=table.split_seed,
            dtype=table.precision,
            sparse=table.sparse,
        )
    except DataError as error:
        raise WorkloadError(f"{asked.where_data()}: {error}") from error


def _from_data(asked: _Asked, data: Dataset) -> dict[str, Any]:
    """Shape, loss and origin as the loaded data have them, where the file does not say otherwise."""
    table = asked.table
    loss: LossName = "sigmoid" if data.multilabel else "softmax"
    if table.loss not in (None, loss):
        kind = "several labels a row" if data.multilabel else "one class a row"
        raise WorkloadError(f"{asked.where('loss')}: must be {loss} for data with {kind}, got {table.loss!r}")
    # covtype's own shape is that of the full set, for which the embedded sample may stand.
    names = ("features", "outputs") if _sampled(table, data.name) else ("rows", "test_rows", "features", "outputs")
    for name in names:
        written, found = getattr(table, name), getattr(data, name)
        if written not in (None, found):
            raise WorkloadError(
                f"{asked.where(name)}: must be that of the data, {found}, got {written}; mend it or leave it out"
            )
    return {
        "dataset": data.name if _sampled(table, data.name) else table.dataset,
        "rows": data.rows,
        "test_rows": data.test_rows,
        "features": data.features,
        "outputs": data.outputs,
        "density": max(data.density, 1.0 / data.features),
        "sparse": data.sparse,
        "loss": loss,
        "source": "; ".join(part for part in (table.source, f"data: {data.source}") if part),
    }


def _sampled(table: WorkloadTable, dataset: str) -> bool:
    """Whether the embedded sample stands for the full covtype."""
    return table.dataset == "covtype" and dataset == "covtype-sample"


def _notice(table: WorkloadTable, workload: Workload) -> str:
    """What a person should know about the data of a workload."""
    if not _sampled(table, workload.dataset):
        return ""
    from hetsgd.models.data.known import fetch_words, where_to_put

    return (
        f"the full covtype is not at hand: {workload.rows + workload.test_rows:,} rows of its embedded sample, "
        f"covtype-sample, stand for it (timing alone takes the shape of the full set). For the full set "
        f"{where_to_put('covtype')}; or {fetch_words('covtype')}"
    )


def _from_shape(table: WorkloadTable) -> dict[str, Any]:
    """Shape and loss as the file gives them."""
    return {
        "dataset": table.dataset or "none",
        "rows": table.rows,
        "test_rows": table.test_rows or 0,
        "features": table.features,
        "outputs": table.outputs,
        "density": 1.0 if table.density is None else table.density,
        "sparse": bool(table.sparse),
        "loss": table.loss or ("sigmoid" if table.multilabel else "softmax"),
        "source": "; ".join(part for part in (table.source, "data not loaded, the shape is given") if part),
    }


def _build(asked: _Asked, name: str, shaped: Mapping[str, Any]) -> Workload:
    table = asked.table
    try:
        return Workload(
            name=name,
            description=table.description,
            hidden=table.hidden,
            activation=table.activation,
            bias=table.bias,
            precision=table.precision,
            initial=table.initial,
            initial_scale=table.initial_scale,
            **shaped,
        )
    except ValueError as error:
        field = str(error).partition("workload.")[2].split(" ")[0].rstrip(":")
        origin = "--set" if field in asked.given else str(asked.path)
        raise WorkloadError(f"{origin}: {error}") from error


def _from_module(text: str, overrides: dict[str, Any], *, data: bool) -> LoadedWorkload:
    """The workload object `package.module:object`."""
    if overrides:
        keys = ", ".join(f"workload.{key}" for key in overrides)
        raise WorkloadError(f"--set: {keys}: a workload object is taken as it is; change it in {text}")
    try:
        found = load_object(text)
        value = call_object(text, found) if callable(found) and not isinstance(found, type) else found
    except ValueError as error:
        raise WorkloadError(f"workload {error}") from error
    if isinstance(value, Workload):

        def load() -> Dataset:
            raise WorkloadError(f"workload {text!r}: has no data; make it a LoadedWorkload")

        value = LoadedWorkload(workload=value, data=load)
    if not isinstance(value, LoadedWorkload):
        raise WorkloadError(f"workload {text!r}: must be a Workload or LoadedWorkload, got {type(value).__name__}")
    if data:
        _check_shape(value.workload, value.data(), text)
    return value


def _check_shape(workload: Workload, data: Dataset, text: str) -> None:
    """A workload built in code must have the shape of the data it comes with."""
    for name in ("rows", "test_rows", "features", "outputs"):
        given, found = getattr(workload, name), getattr(data, name)
        if given != found:
            raise WorkloadError(f"workload {text!r}: {name}: must be that of its data, {found}, got {given}")
