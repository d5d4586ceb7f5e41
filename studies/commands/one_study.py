"""What `study run`, `study report` and `validate` share: the folder before the runs, and what is written after them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hetsgd.models.words import counted, few
from hetsgd.studies.failure import Interrupted, NotSaved
from hetsgd.studies.interrupts import Held
from hetsgd.studies.screen import results_only, say

if TYPE_CHECKING:
    from hetsgd.studies.campaign import StudyResult
    from hetsgd.studies.out_folder import Owner, OwnerKind
    from hetsgd.studies.runner import Runner
    from hetsgd.studies.study import Study

# What may change between two starts of one validation: more repeats are more of the same.
_MAY_GROW: Final = ("seeds", "validation")


@contextmanager
def study_folder(
    folder: Path, study: Study, kind: OwnerKind, *, force: bool, source: Path | None = None
) -> Iterator[Path]:
    """Take the folder for a study, and say what is kept there when a signal ends it."""
    from hetsgd.studies.out_folder import Owner, start, study_words, taken

    inputs = asdict(study)
    owner = Owner(kind=kind, words=study_words(inputs), inputs=inputs)
    with taken(folder, owner, force=force, differs=_differs, source=source):
        start(folder, owner)
        try:
            yield folder
        except KeyboardInterrupt:
            runs = len(list(folder.glob("runs/*/run.json")))
            raise Interrupted(f"{counted(runs, 'run is')} kept in {folder}; the same command goes on there") from None


def _differs(there: Owner, wanted: Owner) -> str:
    """In what a study differs from what is there: it may change and keep its name, a validation may only grow."""
    from hetsgd.studies.record import strict

    ours = strict(dict(wanted.inputs))
    if wanted.kind == "study":
        return "" if there.inputs.get("name") == ours["name"] else "its name"
    return few(key for key, value in ours.items() if key not in _MAY_GROW and there.inputs.get(key) != value)


def run_study(study: Study, runner: Runner) -> StudyResult:
    """Run what is not there yet; what foreign code prints goes to stderr."""
    from hetsgd.studies.campaign import run_campaign

    with results_only():
        return run_campaign(study, runner)


def store_study(folder: Path, runner: Runner, write: Callable[[Path], object]) -> NotSaved | None:
    """Write the study's files; the fault comes back, so that the answer can be shown before it is told."""
    from hetsgd.studies.out_folder import finish

    with Held():
        fault = written(folder, write)
        lost = list(runner.unsaved.values())
        if lost:
            return NotSaved(f"{counted(len(lost), 'run was')} not stored: {lost[0].reason}")
        if fault is None:
            finish(folder)
        return fault


def written(folder: Path, write: Callable[[Path], object]) -> NotSaved | None:
    """Let `write` fill a folder beside, and move what it wrote in when it is whole."""
    part: Path | None = None
    try:
        part = Path(tempfile.mkdtemp(dir=folder, prefix=".part-"))
        write(part)
        _move_in(part, folder)
    except OSError as error:
        from hetsgd.studies.record import unwritten

        return NotSaved(unwritten(error, part, folder))
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)
    return None


def draw_report(folder: Path, result: StudyResult) -> NotSaved | None:
    """Write the report and its figures into the folder of a study."""
    from hetsgd.studies.report import write_report

    say("report: drawing the figures")
    return written(folder, lambda part: write_report(part, result))


def _move_in(part: Path, folder: Path) -> None:
    for path in sorted(part.rglob("*")):
        target = folder / path.relative_to(part)
        if path.is_dir():
            target.mkdir(exist_ok=True)
        else:
            path.replace(target)
