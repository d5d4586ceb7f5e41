"""Where full data sets lie and what their files may be called; imports nothing heavy, so that listing stays instant."""

import os
from collections.abc import Iterator
from pathlib import Path

COMPRESSIONS = ("", ".xz", ".bz2", ".gz")
"""Suffixes that are understood, the empty one being a plain file."""


def cache_folder() -> Path:
    """`$HETSGD_CACHE` where set, else the user's cache folder of this program."""
    folder = os.environ.get("HETSGD_CACHE")
    if folder:
        return Path(folder).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("hetsgd")


def data_folders() -> Iterator[Path]:
    """The folders that may hold full data sets, each in a folder of its name, first found first used."""
    folder = os.environ.get("HETSGD_DATA")
    if folder:
        yield Path(folder).expanduser()
    yield cache_folder() / "data"
