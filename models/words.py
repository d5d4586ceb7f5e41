"""Numbers and names in sentences: one place for plurals, so that no message says "1 epochs"."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_IRREGULAR: Final = {"is": "are", "was": "were", "has": "have"}
_MOST: Final = 4


def counted(count: float, noun: str) -> str:
    """A count with its noun, in the plural unless it is exactly one; a verb may follow the noun.

    >>> counted(1, "CPU lane"), counted(2, "CPU lane"), counted(1500, "update"), counted(0.5, "second")
    ('1 CPU lane', '2 CPU lanes', '1,500 updates', '0.5 seconds')
    >>> counted(1, "second is"), counted(3, "second is"), counted(2, "policy")
    ('1 second is', '3 seconds are', '2 policies')
    >>> counted(2, "epoch"), counted(2, "batch")
    ('2 epochs', '2 batches')
    """
    number = f"{count:,}" if isinstance(count, int) else f"{count:,.4g}"
    if count == 1:
        return f"{number} {noun}"
    name, space, verb = noun, "", ""
    head, _, tail = noun.rpartition(" ")
    if tail in _IRREGULAR:
        name, space, verb = head, " ", _IRREGULAR[tail]
    return f"{number} {_plural(name)}{space}{verb}"


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "batch", "sh")) else f"{noun}s"


def few(names: Iterable[str]) -> str:
    """The first names, joined by commas, and how many there are beyond.

    >>> few(["a", "b"]), few("abcdefg")
    ('a, b', 'a, b, c, d and 3 more')
    """
    found = list(names)
    rest = len(found) - _MOST
    return ", ".join(found[:_MOST]) + (f" and {rest} more" if rest > 0 else "")
