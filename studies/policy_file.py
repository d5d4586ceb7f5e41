"""A policy from its name, its file or a Python object, with keys whose values may be text.

A policy file is a TOML file with `policy = "NAME"` (a built-in policy or package.module:object) and its keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hetsgd.models.edge import own_path, read_toml, shown_value
from hetsgd.models.keys import Key, keys_of
from hetsgd.models.policies import recipe
from hetsgd.models.policy import Recipe
from hetsgd.studies.failure import BadInput, checking


def load_policy(name: str, overrides: Mapping[str, Any]) -> Recipe:
    """The recipe called `name` with the keys of `overrides` over those of its file.

    Raises BadInput that names file, key, rule and value.
    """
    path = own_path(name)
    if path.suffix != ".toml":
        return _recipe(name, overrides, "--set")
    base, keys = _read(path)
    with checking(str(path)):
        _recipe(base, keys, str(path))
    return _recipe(base, {**keys, **overrides}, "--set")


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    with checking():
        table = read_toml(path)
    base = table.pop("policy", None)
    if not isinstance(base, str):
        raise BadInput(f'{path}: policy: must name a policy, such as "hogbatch", got {shown_value(base)}')
    return base, table


def _recipe(name: str, values: Mapping[str, Any], origin: str) -> Recipe:
    with checking():
        made = recipe(name)
        known = {item.name: item for item in keys_of(type(made))} if values else {}
    with checking(origin):
        typed = {key: _typed(known[key], value, origin) if key in known else value for key, value in values.items()}
        return recipe(name, **typed) if typed else made


def _typed(item: Key, value: Any, origin: str) -> Any:
    """The value in the type of its key; text is read as that type."""
    if isinstance(value, str) and item.type in ("int", "float", "bool"):
        value = _read_text(item, value, origin)
    elif isinstance(value, str) and not any(word in item.type for word in ("str", "Literal", "Any")):
        raise BadInput(
            f"{origin}: policy.{item.name} is of type {item.type}, which text cannot give: make the recipe in Python "
            f"and name it as package.module:object, got {shown_value(value)}"
        )
    if item.type == "int" and (isinstance(value, bool) or not isinstance(value, int)):
        raise BadInput(f"{origin}: policy.{item.name} must be a whole number, got {shown_value(value)}")
    if item.type == "float":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadInput(f"{origin}: policy.{item.name} must be a number, got {shown_value(value)}")
        return float(value)
    if item.type == "bool" and not isinstance(value, bool):
        raise BadInput(f"{origin}: policy.{item.name} must be true or false, got {shown_value(value)}")
    return value


def _read_text(item: Key, text: str, origin: str) -> Any:
    if item.type == "bool":
        return {"true": True, "false": False}.get(text.lower(), text)
    try:
        if "_" in text or text != text.strip():  # Python would take 1_000
            raise ValueError("written as nowhere else")
        return int(text) if item.type == "int" else float(text)
    except ValueError as error:
        kind = "a whole number" if item.type == "int" else "a number"
        raise BadInput(f"{origin}: policy.{item.name} must be {kind}, got {shown_value(text)}") from error
