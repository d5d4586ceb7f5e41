"""The folder of `--out`: looked at and taken before anything runs, so that nothing is lost or overwritten after it.

A folder belongs to what hetsgd wrote into it: a run, a study, a validation or a reproduction. The same thing again
goes on there; anything else needs another folder, or `--force`, which puts the old results aside first and removes
them once there are new ones. Among a person's own files nothing is written without `--force`. One process at a time
writes into a folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from hetsgd.models.words import few
from hetsgd.studies.failure import BadInput

OwnerKind = Literal["run", "study", "validation", "reproduction of the paper"]

STARTED: Final = "started.json"
STARTED_SCHEMA: Final = "hetsgd.started/1"
_PART: Final = ".part-"
_ASIDE: Final = ".replaced-"
_FIX: Final = "name another folder with --out"
_PROBE: Final = b"\0" * 4096

# Files and folders (with a slash) that each kind writes.
_NAMES: Final[dict[OwnerKind, tuple[str, ...]]] = {
    "run": ("run.json", "resolved.json", "model.pt", "trace/"),
    "study": (
        STARTED, "study.json", "study.toml", "runs.parquet", "report.html", "report.md", "runs/", "machines/",
        "figures/",
    ),
    "validation": (
        STARTED, "study.json", "validation.json", "runs.parquet", "report.html", "report.md", "runs/", "machines/",
        "figures/",
    ),
    "reproduction of the paper": ("paper.csv", "paper.json", "report.html", "report.md", "figures/"),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """What a folder holds: its kind, a few words about it, and the inputs that tell it from others of its kind."""

    kind: OwnerKind
    words: str
    inputs: Mapping[str, Any]


@contextmanager
def taken(
    folder: Path, owner: Owner, *, force: bool = False, differs: Callable[[Owner, Owner], str] | None = None,
    source: Path | None = None,
) -> Iterator[Path]:  # fmt: skip
    """Take the folder for `owner` while the context lasts; made where it is missing.

    `differs` says in a few words in what that which is there differs from `owner` ('' where it is the same); without
    it any inputs that are not equal differ. `source`: a file of the user's that may lie in the folder.

    Raises BadInput, before anything is written, where the folder cannot be written, is in use, holds something else
    (unless `force`), or a file stands where a folder is needed. A folder that was made here and in which nothing came
    to be is gone afterwards.
    """
    made = _make(folder)
    try:
        with _alone(folder):
            _clear_leftovers(folder)
            _check_names(folder, owner.kind)
            if not force:
                _check_owner(folder, owner, differs or _differs, source)
            elif (there := owner_of(folder)) is not None and (
                there.kind != owner.kind or (differs or _differs)(there, owner)
            ):
                _put_aside(folder, there.kind)
            before = _present(folder, owner.kind)
            try:
                yield folder
            except BadInput:
                _remove(path for path in _present(folder, owner.kind) if path not in before)
                raise
            finally:
                _settle(folder)
    finally:
        for path in made:
            with suppress(OSError):
                path.rmdir()


def _check_owner(folder: Path, owner: Owner, differs: Callable[[Owner, Owner], str], source: Path | None) -> None:
    """Refuse to write over anything but the same thing."""
    there = owner_of(folder)
    fix = f"{_FIX}, or replace it with --force"
    if there is None:
        for path in _present(folder, owner.kind):
            if path.is_file() and not (source is not None and path.samefile(source)):
                raise BadInput(f"--out: {path} is there already, and would be overwritten; {fix}")
        others = [path for path in folder.iterdir() if not (source is not None and path.samefile(source))]
        if others:
            raise BadInput(
                f"--out: {folder}: must be a new or empty folder, or one that hetsgd wrote, got one that holds "
                f"{few(sorted(path.name for path in others))}; {_FIX}, or write among them with --force"
            )
        return
    what = differs(there, owner) if there.kind == owner.kind else ""
    if there.kind != owner.kind:
        raise BadInput(f"--out: {folder} holds a {there.kind}, {there.words}; {fix}")
    if what:
        raise BadInput(f"--out: {folder} holds another {there.kind}, {there.words}, which differs in {what}; {fix}")


def start(folder: Path, owner: Owner) -> None:
    """Mark the folder as that of a study or validation under way; `finish` takes the mark away.

    Raises BadInput where it cannot be written.
    """
    content = {"schema": STARTED_SCHEMA, "kind": owner.kind, "words": owner.words, "inputs": owner.inputs}
    path = folder / STARTED
    try:
        part = path.with_suffix(".part")
        part.write_text(json.dumps(content, indent=2, default=list) + "\n", encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise BadInput(f"--out: {path}: cannot be written: {error.strerror or error}; free space or {_FIX}") from error


def finish(folder: Path) -> None:
    """The study is whole: `study.json` says now what the folder holds."""
    (folder / STARTED).unlink(missing_ok=True)


def owner_of(folder: Path) -> Owner | None:
    """What the folder holds; None where it is nothing of ours."""
    run = _json(folder / "run.json")
    if run.get("schema") == "hetsgd.run/1" or (folder / "run.json").is_file():
        return Owner(kind="run", words=run_words(run), inputs=_resolved(folder))
    if _json(folder / "resolved.json").get("schema") == "hetsgd.resolved/1":  # it was killed while it was moved in
        return Owner(kind="run", words="not whole", inputs=_resolved(folder))
    started = _json(folder / STARTED)
    if started.get("schema") == STARTED_SCHEMA:
        # Which kind it was may be lost with a damaged file; then nothing goes on there.
        kind, inputs = next((kind for kind in _NAMES if kind == started.get("kind")), None), started.get("inputs")
        whole = kind is not None and isinstance(inputs, Mapping)
        return Owner(
            kind=kind or "study",
            words=str(started.get("words", "")) if whole else f"whose {STARTED} is damaged",
            inputs=inputs if isinstance(inputs, Mapping) else {},
        )
    study = _json(folder / "study.json").get("study")
    if isinstance(study, Mapping):
        named: OwnerKind = "validation" if (folder / "validation.json").is_file() else "study"
        return Owner(kind=named, words=study_words(study), inputs=study)
    if (folder / "paper.json").is_file() or "tried" in _json(folder / "search.json"):
        return Owner(kind="reproduction of the paper", words="written by hetsgd paper", inputs={})
    return None


def run_words(record: Mapping[str, Any]) -> str:
    """A run in a few words, from its `run.json`."""
    try:
        engine = "simulated" if record["engine"] == "sim" else "real"
        policy, machine, workload = (record[name]["name"] for name in ("policy", "machine", "workload"))
    except (KeyError, TypeError):
        return "whose run.json is damaged"
    return f"{policy} on {machine} ({engine}, workload {workload}, seed {record.get('seed')})"


def study_words(study: Mapping[str, Any]) -> str:
    """A study in a few words, from its values."""
    return f"{study.get('name')!r} ({study.get('question')})"


# -- before it is taken ------------------------------------------------------------------------------------------


def _make(folder: Path) -> list[Path]:
    """Make the folder and its parents, and try to write a file there; returns those that were made, innermost first."""
    made: list[Path] = []
    try:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in reversed(missing):
            path.mkdir(exist_ok=True)
            made.insert(0, path)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(_PROBE)
            probe.flush()
        return made
    except OSError as error:
        for path in made:
            with suppress(OSError):
                path.rmdir()
        if isinstance(error, FileExistsError | NotADirectoryError):
            file = next((path for path in (folder, *folder.parents) if path.is_symlink() or path.is_file()), folder)
            raise BadInput(f"--out: {file}: must be a folder, it is a file; {_FIX}") from error
        raise BadInput(
            f"--out: {folder}: must be a folder that can be written: {error.strerror or error}; {_FIX}"
        ) from error


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; it is gone with the process, however that ends."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput(f"--out: {folder}: another hetsgd is writing there; wait for it, or {_FIX}") from error
        except OSError:
            pass  # a network file system without locks: nothing to be had
        yield
    finally:
        os.close(handle)


def _check_names(folder: Path, kind: OwnerKind) -> None:
    """Refuse what stands in the way of a name that will be written, or cannot be replaced."""
    for name in _NAMES[kind]:
        path = folder / name.rstrip("/")
        if not path.exists() and not path.is_symlink():
            continue
        if name.endswith("/") and not path.is_dir():
            raise BadInput(f"--out: {path}: must be a folder, a file is in the way; move it, or {_FIX}")
        if not name.endswith("/") and not path.is_file():
            raise BadInput(f"--out: {path}: must be a file, something else is in the way; move it, or {_FIX}")
        if name.endswith("/") and not os.access(path, os.W_OK | os.X_OK):
            raise BadInput(f"--out: {path}: must be a folder that can be written; {_FIX}")
    trace = folder / "trace"
    if kind == "run" and trace.is_dir() and any(trace.iterdir()) and not (trace / "totals.json").is_file():
        raise BadInput(f"--out: {trace}: holds files that are no trace, and would be replaced; move it, or {_FIX}")


def _differs(there: Owner, wanted: Owner) -> str:
    ours, theirs = json.dumps(wanted.inputs, sort_keys=True, default=list), json.dumps(there.inputs, sort_keys=True)
    return "" if ours == theirs else "its inputs"


# -- what is replaced --------------------------------------------------------------------------------------------


def _put_aside(folder: Path, kind: OwnerKind) -> None:
    aside = Path(tempfile.mkdtemp(dir=folder, prefix=_ASIDE))
    for path in _present(folder, kind):
        path.rename(aside / path.name)


def _settle(folder: Path) -> None:
    """Remove what was put aside where there are new results, and bring it back where there are none."""
    for aside in folder.glob(f"{_ASIDE}*"):
        if owner_of(folder) is None:
            for path in aside.iterdir():
                with suppress(OSError):
                    path.rename(folder / path.name)
        shutil.rmtree(aside, ignore_errors=True)


def _clear_leftovers(folder: Path) -> None:
    """What a process that was killed left half-written; nobody else writes here now."""
    for part in folder.glob(f"{_PART}*"):
        shutil.rmtree(part, ignore_errors=True)
    _settle(folder)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _present(folder: Path, kind: OwnerKind) -> list[Path]:
    paths = [folder / name.rstrip("/") for name in _NAMES[kind]]
    return [path for path in paths if path.exists()]


def _resolved(folder: Path) -> Mapping[str, Any]:
    """The inputs of the run that is there; none where they are damaged, so that any other differs."""
    from hetsgd.studies.record_file import resolved_problem

    resolved = _json(folder / "resolved.json")
    return {} if resolved_problem(resolved, "") else resolved


def _json(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, Mapping) else {}
