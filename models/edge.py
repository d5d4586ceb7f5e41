"""What the readers of files and command-line values share: one message for what is wrong with an input."""

from __future__ import annotations

import difflib
import importlib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError


def nearest(name: str, known: Iterable[str]) -> str:
    """What to say about an unknown name: the nearest known one, and all of them.

    >>> nearest("hiden", ["hidden", "loss"])
    "did you mean 'hidden'? known: hidden, loss"
    """
    names = list(known)
    close = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}known: {', '.join(names)}"


def unknown_key(origin: str, prefix: str, key: str, known: Iterable[str]) -> str:
    """The message for a key that a file or a `--set` gives and nothing reads."""
    return f"{origin}: {prefix}{key}: no such key, {nearest(key, known)}"


def problems(
    error: ValidationError, *, origin: str, prefix: str = "", given: Mapping[str, Any], known: Iterable[str] = ()
) -> str:
    """All that pydantic found wrong, in one line: origin, field, rule and value of each.

    `given` is what was validated: it has the value of a field as it was written.
    """
    found, names = [], list(known)
    for item in error.errors(include_url=False, include_context=False):
        path = [str(part) for part in item["loc"]]
        field = prefix + path[0] if path else prefix.rstrip(".")
        if item["type"] == "extra_forbidden":
            found.append(f"{field}: no such key, {nearest(path[-1], names)}")
        elif item["type"] == "missing":
            found.append(f"{field}: must be given")
        else:
            rule = item["msg"].removeprefix("Value error, ").removeprefix("Input ").replace("should be", "must be")
            value = given.get(path[0], item["input"]) if path else item["input"]
            found.append(f"{field}: {rule}, got {value!r}")
    return f"{origin}: {'; '.join(dict.fromkeys(found))}"


def read_text(path: Path) -> str:
    """The text of a file; ValueError names the file and what is wrong with it.

    Only regular files are opened: a pipe or a device would be waited for without end.
    """
    try:
        if path.exists() and not path.is_file():
            raise ValueError(f"{path}: must be a regular file, and is a folder, pipe or device")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: must be text in UTF-8: {error}") from error


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; ValueError as for `read_text`, and for text that is not TOML."""
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: must be TOML: {error}") from error


def load_object(text: str) -> Any:
    """The object `package.module:object`; ValueError says why there is none, whatever its module raises."""
    module, _, path = text.partition(":")
    if not module or not path:
        raise ValueError(f"{text!r}: an object is named package.module:object")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{text!r}: cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise ValueError(f"{text!r}: cannot be imported: it raised {type(error).__name__}: {error}") from error
    return found


def call_object(text: str, found: Any) -> Any:
    """What the function `found`, named `text`, returns without arguments; ValueError when it raises."""
    try:
        return found()
    except (Exception, SystemExit) as error:
        raise ValueError(f"{text!r}: calling it raised {type(error).__name__}: {error}") from error
