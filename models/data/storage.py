"""The cache of parsed data files."""

import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hetsgd.models.data.folders import cache_folder
from hetsgd.models.data.table import SparseRows, Table

_FORMAT = 1
_SMALLEST_CACHED_BYTES = 65_536
"""A smaller file is parsed faster than a cache of it is kept."""


def cached_table(path: Path, options: dict[str, Any], parse: Callable[[], Table]) -> Table:
    """The table of a file under the given reader options, parsed once and kept.

    The cache holds one entry per file and options; it counts only while the file's size and time of change
    are the same. A cache that cannot be read is rewritten, one that cannot be written is done without.
    """
    try:
        state = path.stat()
    except OSError:
        return parse()  # which says what is wrong with the file
    if state.st_size < _SMALLEST_CACHED_BYTES:
        return parse()
    stamp = (_FORMAT, state.st_size, state.st_mtime_ns)
    key = hashlib.sha256(json.dumps([str(path.resolve()), options], sort_keys=True).encode()).hexdigest()
    entry = cache_folder() / "parsed" / f"{path.name.split('.')[0]}-{key[:16]}.npz"
    kept = _read(entry, stamp)
    if kept is not None:
        return kept
    table = parse()
    _write(entry, table, stamp)
    return table


def _read(entry: Path, stamp: tuple[int, ...]) -> Table | None:
    try:
        with np.load(entry, allow_pickle=False) as kept:
            if tuple(kept["stamp"].tolist()) != stamp:
                return None
            x: Any
            if "x" in kept:
                x = kept["x"]
            else:
                x = SparseRows(
                    values=kept["values"],
                    columns=kept["columns"],
                    starts=kept["starts"],
                    features=int(kept["features"]),
                )
            return Table(x=x, y=kept["y"], label_names=tuple(kept["label_names"].tolist()))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _write(entry: Path, table: Table, stamp: tuple[int, ...]) -> None:
    x = table.x
    arrays: dict[str, Any] = {
        "stamp": np.array(stamp, dtype=np.int64),
        "y": table.y,
        "label_names": np.array(table.label_names),
    }
    if isinstance(x, SparseRows):
        arrays |= {"values": x.values, "columns": x.columns, "starts": x.starts, "features": np.int64(x.features)}
    else:
        arrays["x"] = x
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=entry.parent, prefix=entry.stem, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(file, **arrays)
            Path(temporary).replace(entry)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError:
        return  # a full or read-only disk costs the next load a few seconds, nothing else
