"""What the readers of files and command-line values share: one message for what is wrong with an input."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
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
