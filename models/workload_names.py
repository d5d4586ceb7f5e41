"""Names of the built-in workloads; imports nothing heavy, so that listing stays instant."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

WORKLOAD_FOLDER: Final = Path(__file__).with_name("workloads")


def workload_names() -> tuple[str, ...]:
    """The built-in workloads, in the order of their names.

    >>> "quickstart" in workload_names()
    True
    """
    return tuple(sorted(path.stem for path in WORKLOAD_FOLDER.glob("*.toml")))


def describe_workloads() -> list[tuple[str, str]]:
    """The built-in workloads as (name, description)."""
    return [(name, _text(name, "description")) for name in workload_names()]


def workload_dataset(name: str) -> str:
    """The data set of a built-in workload."""
    return _text(name, "dataset")


def _text(name: str, key: str) -> str:
    return str(tomllib.loads((WORKLOAD_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))[key])
