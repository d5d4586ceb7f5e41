"""The header of an ARFF file: its attributes, where the rows begin, and what MEKA says about the labels."""

import math
import re
from dataclasses import dataclass
from functools import cached_property

from hetsgd.models.data.dataset import DataError
from hetsgd.models.data.labels import LabelChoice
from hetsgd.models.data.text import shown

NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
TOKEN = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s,{}'"][^\s,{}]*"""
"""One name or value: quoted, with backslash escapes, or plain."""

_ATTRIBUTE = re.compile(rf"@attribute\s+({TOKEN})\s+(.*)", re.IGNORECASE)
_NUMERIC = frozenset({"numeric", "real", "integer"})
_VALUES = re.compile(rf"\{{\s*((?:{TOKEN})(?:\s*,\s*(?:{TOKEN}))*)\s*,?\s*\}}")
_VALUE = re.compile(TOKEN)
_NUMBER = re.compile(NUMBER)
_MEKA = re.compile(r"-C\s+(-?[0-9]{1,6})\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Attribute:
    """One column: numeric (no `values`) or nominal with its declared values."""

    name: str
    values: tuple[str, ...] = ()

    @cached_property
    def numbers(self) -> tuple[float, ...] | None:
        """The values of a nominal attribute as numbers, None where one of them is a word or there are none."""
        if not self.values or not all(_NUMBER.fullmatch(value) for value in self.values):
            return None
        return tuple(float(value) for value in self.values)

    @property
    def words(self) -> bool:
        """Whether the values are words: read as their place among the declared ones."""
        return bool(self.values) and self.numbers is None

    @property
    def absent(self) -> float:
        """What a sparse row means that leaves the attribute out: 0, or the first declared value."""
        return self.numbers[0] if self.numbers else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The attributes, the number of the first line below `@data`, and MEKA's label columns where it gives them."""

    attributes: tuple[Attribute, ...]
    data_line: int
    meka: LabelChoice | None


def parse_header(lines: list[str], origin: str) -> Header:
    """The header at the head of `lines`.

    Raises DataError with file, line, rule and value for what is none, and for text, date and relational attributes.
    """
    attributes: list[Attribute] = []
    meka: LabelChoice | None = None
    for number, line in enumerate(lines, start=1):
        content = line.strip()
        if not content or content.startswith("%"):
            continue
        keyword = content.split(None, 1)[0].lower()
        if keyword == "@data":
            if not attributes:
                raise DataError(f"{origin}, line {number}: @attribute lines must come before @data, found none")
            return Header(attributes=tuple(attributes), data_line=number + 1, meka=meka)
        if keyword == "@relation":
            meka = _meka(content)
        elif keyword == "@attribute":
            attributes.append(_attribute(content, f"{origin}, line {number}"))
        else:
            raise DataError(
                f"{origin}, line {number}: must be @relation, @attribute, @data or a % comment, got {shown(content)}"
            )
    raise DataError(f"{origin}: must hold a line @data with rows below it, found none")


def _attribute(content: str, where: str) -> Attribute:
    match = _ATTRIBUTE.fullmatch(content)
    if match is None:
        raise DataError(f"{where}: must be '@attribute NAME TYPE', got {shown(content)}")
    name, kind = unquoted(match.group(1)), match.group(2).strip()
    if kind.lower() in _NUMERIC:
        return Attribute(name=name)
    listed = _VALUES.fullmatch(kind)
    if listed is None:
        raise DataError(
            f"{where}: the type of {name} must be numeric, real, integer or a list {{a, b, ...}}, got {shown(kind)}"
        )
    values = tuple(unquoted(value) for value in _VALUE.findall(listed.group(1)))
    if len(set(values)) != len(values):
        raise DataError(f"{where}: the values of {name} must differ, got {shown(kind)}")
    return Attribute(name=name, values=values)


def _meka(relation: str) -> LabelChoice | None:
    """MEKA states in the relation's name that the first n (`-C n`) or last n (`-C -n`) attributes are labels."""
    match = _MEKA.search(relation)
    count = int(match.group(1)) if match else 0
    return LabelChoice(first=max(count, 0), last=max(-count, 0), several=True) if count else None


def unquoted(token: str) -> str:
    """A name or value without its quotes; escapes stay, so that names compare with those of XML files."""
    return token[1:-1] if token[:1] in "'\"" and len(token) > 1 else token


def cell_fault(field: str, attribute: Attribute) -> str | None:
    """The rule that a cell of this attribute breaks, None where it breaks none."""
    value = unquoted(field)
    if value == "?":
        return "value missing"
    if attribute.words:
        return None if value in attribute.values else f"must be one of {', '.join(attribute.values[:10])}"
    if not _NUMBER.fullmatch(value) or not math.isfinite(float(value)):
        return "must be a finite number"
    if attribute.numbers and float(value) not in attribute.numbers:
        return f"must be one of {', '.join(attribute.values[:10])}"
    return None
