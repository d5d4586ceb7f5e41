"""docs/machines.md and the reader of machine files say the same."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from hetsgd.models.machine import Accelerator, Link, Machine, Noise, Socket
from hetsgd.models.machine_bounds import BOUNDS
from hetsgd.models.machine_file import machine_keys

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "machines.md").read_text(encoding="utf-8")


def documented(title: str) -> dict[str, tuple[str, str]]:
    """Key -> (unit, default) of the table under a heading."""
    part = DOCUMENT.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", part, flags=re.MULTILINE)
    assert len({key for key, *_ in rows}) == len(rows)
    return {key: (unit.strip(), default.strip()) for key, unit, default in rows}


def default_of(owner: type[Any], key: str) -> str:
    item = next(item for item in fields(owner) if item.name == key)
    if item.default is MISSING:
        return "required"
    if item.default is None:
        return "none"
    if isinstance(item.default, bool):
        return str(item.default).lower()
    return f"`{item.default}`" if isinstance(item.default, str) else f"{item.default:g}"


@pytest.mark.parametrize(
    ("title", "kind", "owner"),
    [
        ("`[socket.NAME]`", "socket", Socket),
        ("`[accelerator.NAME]`", "accelerator", Accelerator),
        ("`[link.NAME]`", "link", Link),
    ],
)
def test_every_key_of_a_part_is_documented_with_its_unit_and_default(title: str, kind: str, owner: type[Any]) -> None:
    found = documented(title)
    assert {f"{kind}.{key}" for key in found} == {key for key in machine_keys() if key.startswith(f"{kind}.")}
    for key, (unit, default) in found.items():
        assert default == default_of(owner, key), key
        if key in BOUNDS:
            assert unit.replace("share", "of the peak") == BOUNDS[key].unit, key


def test_every_setting_of_a_machine_is_documented() -> None:
    found = documented("`[machine]` and `[noise]`")
    assert set(found) == {key for key in machine_keys() if "." not in key}
    for key, (_, default) in found.items():
        if key != "accelerators":
            assert default == default_of(Noise if key.endswith("sigma") else Machine, key), key


def test_every_figure_has_bounds() -> None:
    plain = {"accelerators", "cpu_lanes", "pinned", "weights_on", "device", "ends"}
    assert {key.rpartition(".")[2] for key in machine_keys()} - plain == set(BOUNDS)
