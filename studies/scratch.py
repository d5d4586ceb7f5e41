"""A folder for what is not kept: gone when its process ends, and, where that was killed, at the next start."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hetsgd.studies.failure import checking

_PREFIX = "hetsgd-"


@contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """An empty folder in the system's place for temporary files; BadInput where there is none to be had."""
    prefix = f"{_PREFIX}{purpose}-"
    with checking("TMPDIR"):
        _clear(Path(tempfile.gettempdir()), prefix)
        folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _clear(place: Path, prefix: str) -> None:
    """Remove what processes of this user that are no more have left there."""
    for path in place.glob(f"{prefix}*-*"):
        number = path.name.removeprefix(prefix).partition("-")[0]
        if number.isdigit() and path.stat().st_uid == os.getuid() and not _lives(int(number)):
            shutil.rmtree(path, ignore_errors=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
