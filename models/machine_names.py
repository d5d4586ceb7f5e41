"""Names of the built-in machines; imports nothing heavy, so that listing stays instant."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

MACHINE_FOLDER: Final = Path(__file__).with_name("machines")
LOCAL: Final = "local"
_LOCAL_DESCRIPTION: Final = "this machine, detected at run time; without a GPU a core stands in for an accelerator"


def machine_names() -> tuple[str, ...]:
    """The built-in machines: those with a file in the order of their names, then `local`.

    >>> machine_names()[-1]
    'local'
    """
    return (*sorted(path.stem for path in MACHINE_FOLDER.glob("*.toml")), LOCAL)


def describe_machines() -> list[tuple[str, str]]:
    """The built-in machines as (name, description)."""
    return [(name, _description(name)) for name in machine_names()]


def _description(name: str) -> str:
    if name == LOCAL:
        return _LOCAL_DESCRIPTION
    text = (MACHINE_FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    return str(tomllib.loads(text)["description"])
