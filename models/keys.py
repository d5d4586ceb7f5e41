"""Parameters of a policy: dataclass fields that carry their range and meaning, checked and listed from one place."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Final

from hetsgd.models.edge import shown_value
from hetsgd.models.policy import PolicyError

_TYPES: Final[dict[str, tuple[Any, str]]] = {
    "int": (int, "an integer"),
    "float": (int | float, "a number"),
    "bool": (bool, "true or false"),
    "str": (str, "a text"),
}


MOST_WHOLE: Final = 10**15
"""Whole numbers of policies are rows, steps or updates: more than any machine has done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One parameter: its name, type, default, meaning and range (inclusive; None: open) or choices."""

    name: str
    type: str
    default: Any
    meaning: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()


def key(
    default: Any, meaning: str, *, low: float | None = None, high: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:  # fmt: skip
    """A dataclass field of a recipe with a range and a meaning; see `check_keys`."""
    metadata = {"meaning": meaning, "low": low, "high": high, "choices": choices}
    return dataclasses.field(default=default, metadata=metadata)


def keys_of(recipe: type) -> tuple[Key, ...]:
    """The parameters of a recipe class, in order."""
    return tuple(
        Key(
            name=field.name,
            type=_type_name(field),
            default=field.default,
            meaning=field.metadata.get("meaning", ""),
            low=field.metadata.get("low"),
            high=field.metadata.get("high"),
            choices=field.metadata.get("choices", ()),
        )
        for field in dataclasses.fields(recipe)
    )


def check_keys(recipe: Any) -> None:
    """Raise PolicyError when a parameter has a wrong type or is out of its range; for a recipe's `__post_init__`."""
    for item in keys_of(type(recipe)):
        value = getattr(recipe, item.name)
        if item.choices and value not in item.choices:
            raise PolicyError(f"policy.{item.name} must be one of {', '.join(item.choices)}, got {value!r}")
        _check_type(item, value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if isinstance(value, int) and abs(value) > MOST_WHOLE:
            raise PolicyError(f"policy.{item.name} must be at most {MOST_WHOLE}, got {shown_value(value)}")
        if not math.isfinite(value):
            raise PolicyError(f"policy.{item.name} must be finite, got {value}")
        if item.low is not None and value < item.low:
            raise PolicyError(f"policy.{item.name} must be >= {item.low:g}, got {_shown(value)}")
        if item.high is not None and value > item.high:
            raise PolicyError(f"policy.{item.name} must be <= {_shown(item.high)}, got {_shown(value)}")


def _shown(value: float) -> str:
    """A number for a message: whole ones with all their digits."""
    return str(value) if isinstance(value, int) else f"{value:g}"


def _type_name(field: dataclasses.Field[Any]) -> str:
    if field.metadata.get("choices"):
        return "str"
    return field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))


def _check_type(item: Key, value: Any) -> None:
    """Types of the four kinds that files and the command line can hold; others are the recipe's own business."""
    allowed, words = _TYPES.get(item.type, (object, ""))
    if not isinstance(value, allowed) or (isinstance(value, bool) and item.type in ("int", "float")):
        raise PolicyError(f"policy.{item.name} must be {words}, got {value!r}")
