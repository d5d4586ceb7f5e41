"""What the readers of files and command-line values share: one message for what is wrong with an input."""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import inspect
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from hetsgd.models.foreign import by_signal, told, words_of

if TYPE_CHECKING:
    from pydantic import ValidationError


def nearest(name: str, known: Iterable[str]) -> str:
    """What to say about an unknown name: the nearest known one, and all of them.

    >>> nearest("hiden", ["hidden", "loss"])
    "did you mean 'hidden'? known: hidden, loss"
    """
    names = list(known)
    close = difflib.get_close_matches(name.lower(), names, n=1) or [
        other for other in names if len(name) > 2 and (name.lower() in other or other in name.lower())
    ]
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
    names = list(known)
    rules: dict[str, list[str]] = {}
    values: dict[str, Any] = {}
    for item in error.errors(include_url=False):
        path = [str(part) for part in item["loc"]]
        field = prefix + path[0] if path else prefix.rstrip(".")
        if item["type"] == "extra_forbidden":
            rules.setdefault(field, []).append(f"no such key, {nearest(path[-1], names)}")
        elif item["type"] == "missing":
            rules.setdefault(field, []).append("must be given")
        else:
            rules.setdefault(field, []).append(rule_of(item))
            values[field] = given.get(path[0], item["input"]) if path else item["input"]
    found = [
        f"{field}: {any_rule(own)}" + (f", got {shown_value(values[field])}" if field in values else "")
        for field, own in rules.items()
    ]
    return f"{origin}: {'; '.join(found)}"


_KINDS: Final[dict[str, str]] = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "a text",
    "list": "a list",
    "tuple": "a list",
    "dict": "a table",
    "model": "a table",
    "dataclass": "a table",
    "finite": "a finite number",
}
"""What a value must be, by the first word of pydantic's name of the fault (`int_parsing`, `float_type`)."""

_BOUNDS: Final = (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))


def rule_of(item: Mapping[str, Any]) -> str:
    """The rule that a value breaks, in the words of all other messages; `item` is one of pydantic's errors.

    >>> rule_of({"type": "greater_than_equal", "ctx": {"ge": 1}, "msg": "Input should be ..."})
    'must be >= 1'
    """
    kind, context = str(item["type"]), item.get("ctx", {})
    if str(item.get("input")).strip().lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return "must be a finite number"
    for name, sign in _BOUNDS:
        if name in context:
            return f"must be {sign} {context[name]:g}"
    if kind == "int_parsing_size":
        return "must be a whole number of at most 64 bits"
    if kind in ("too_short", "too_long"):
        least = kind == "too_short"
        count = context["min_length"] if least else context["max_length"]
        return f"must have at {'least' if least else 'most'} {count} {'entry' if count == 1 else 'entries'}"
    if kind == "string_too_short":
        return "must not be empty"
    if kind == "literal_error":
        return f"must be {context['expected']}"
    words = _KINDS.get(kind.split("_")[0])
    if words is not None and kind.split("_")[-1] in ("type", "parsing", "float", "number"):
        return f"must be {words}"
    return str(item["msg"]).removeprefix("Value error, ").removeprefix("Input ").replace("should be", "must be")


def any_rule(rules: Iterable[str]) -> str:
    """The rules of which one must hold: a value that may be of several kinds breaks one for each.

    >>> any_rule(["must be a text", "must be a list"])
    'must be a text or a list'
    """
    first, *others = dict.fromkeys(rules)
    return " or ".join([first, *(rule.removeprefix("must be ") for rule in others)])


def shown_value(value: object) -> str:
    """A value for a message, cut where it is long; whole numbers of thousands of digits cannot be printed.

    >>> shown_value(2**70), shown_value("x" * 100)[-5:]
    ('a whole number of 71 bits', "x...'")
    """
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a whole number of {value.bit_length()} bits"
    if isinstance(value, str) and len(value) > 80:
        return repr(value[:80] + "...")
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a huge number, or nesting without end, inside a list or table
        return f"a {type(value).__name__}"
    return text if len(text) <= 200 else text[:200] + "..."


def own_path(text: str | Path) -> Path:
    """The path of a person's file, with a leading ~ resolved where there is such a home.

    >>> own_path("~no such person/x.toml").name
    'x.toml'
    """
    path = Path(text)
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def read_text(path: Path) -> str:
    """The text of a file; ValueError names the file and what is wrong with it.

    Only regular files are opened: a pipe or a device would be waited for without end.
    """
    try:
        if path.exists() and not path.is_file():
            raise ValueError(f"{path}: must be a regular file, and is a folder, pipe or device")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: must be text in UTF-8: {error}") from error


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; ValueError as for `read_text` and `parse_toml`."""
    return parse_toml(read_text(path), str(path))


def parse_toml(text: str, origin: str) -> dict[str, Any]:
    """The content of TOML text; ValueError names `origin` where it is none, or holds a number beyond 64 bits."""
    try:
        table = tomllib.loads(text)
        deepest = _depth(table)
    except RecursionError:
        deepest = _DEEPEST + 1
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{origin}: must be TOML: {error}") from error
    except ValueError as error:  # int() refuses thousands of digits
        line, digits = _longest_number(text)
        raise ValueError(
            f"{origin}: line {line}: must be a whole number of at most 64 bits, got one of {digits} digits"
        ) from error
    if deepest > _DEEPEST:
        raise ValueError(f"{origin}: must be TOML with at most {_DEEPEST} tables and lists inside each other, got more")
    _check_whole_numbers(table, origin, "")
    return table


_DEEPEST: Final = 100
"""No file that is read here has more than a handful; what reads it goes down by calls of itself."""


def _depth(value: object) -> int:
    """How many tables and lists lie inside each other, counted as far as it matters."""
    deepest, level = 0, [value]
    while level and deepest <= _DEEPEST:
        level = [
            item
            for part in level
            if isinstance(part, dict | list)
            for item in (part.values() if isinstance(part, dict) else part)
        ]
        deepest += 1
    return deepest


def _longest_number(text: str) -> tuple[int, int]:
    """The line and the digits of the longest run of digits."""
    longest = max(re.finditer(r"[0-9][0-9_]*", text), key=lambda found: len(found[0]))
    return text.count("\n", 0, longest.start()) + 1, len(longest[0].replace("_", ""))


def _check_whole_numbers(value: object, origin: str, field: str) -> None:
    """TOML's whole numbers have 64 bits, and so have those of every file that is written."""
    if isinstance(value, dict):
        for key, item in value.items():
            _check_whole_numbers(item, origin, f"{field}.{key}" if field else key)
    elif isinstance(value, list):
        for item in value:
            _check_whole_numbers(item, origin, field)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"{origin}: {field}: must be a whole number of at most 64 bits, got {shown_value(value)}")


def _prints_to_stderr() -> contextlib.redirect_stdout[TextIO]:
    """What a module of somebody's own prints is no result of ours."""
    return contextlib.redirect_stdout(sys.stderr)


def load_object(text: str) -> Any:
    """The object `package.module:object`; ValueError says why there is none, whatever its module raises."""
    module, _, path = text.partition(":")
    if not module or not path:
        raise ValueError(f"{text!r}: an object is named package.module:object")
    if module.startswith("."):
        raise ValueError(f"{text!r}: a module is named in full, package.module:object, not by a name that is relative")
    if module.endswith(".py"):
        name = Path(module).stem
        raise ValueError(
            f"{text!r}: a module is named without .py and without its folder: {name}:{path}, called in the folder of "
            f"{Path(module).name} or with that on PYTHONPATH"
        )
    try:
        with _prints_to_stderr():
            found: Any = importlib.import_module(module)
            for part in path.split("."):
                found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{text!r}: cannot be imported: {words_of(error)}") from error
    except BaseException as error:
        if by_signal(error):
            raise
        raise ValueError(f"{text!r}: cannot be imported: it raised {told(error)}") from error
    return found


def call_object(text: str, found: Any) -> Any:
    """What the function `found`, named `text`, returns without arguments; ValueError when it raises.

    Anything that is no function comes back as it is: calling an object (a network, say) would do something else.
    """
    if not inspect.isroutine(found) and not isinstance(found, functools.partial):
        return found
    try:
        with _prints_to_stderr():
            return found()
    except BaseException as error:
        if by_signal(error):
            raise
        raise ValueError(f"{text!r}: calling it raised {told(error)}") from error
