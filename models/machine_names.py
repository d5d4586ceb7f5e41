"""Names of the built-in machines; imports nothing heavy, so that listing stays instant."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hetsgd.models.words import counted

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
    content = tomllib.loads((MACHINE_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    return f"{content['description']}. {'; '.join(main_figures(content))}"


def main_figures(content: Mapping[str, Any]) -> list[str]:
    """The main figures of a machine file in words: its sockets, accelerators and the link to the first of them."""
    machine, sockets, links = content["machine"], content["socket"], content.get("link", {})
    cards = content.get("accelerator", {})
    socket = next(iter(sockets.values()))
    cores, lanes = _value(socket, "cores"), _value(machine, "cpu_lanes")
    rate, size = _value(socket, "dram_bandwidth_bytes_per_s"), _value(socket, "dram_bytes")
    each = "each " if len(sockets) > 1 else ""
    found = [
        f"{counted(len(sockets), 'socket')}, {each}{cores} cores with {size / 1e9:.0f} GB at {rate / 1e9:.0f} GB/s; "
        f"{counted(lanes, 'lane')}"
    ]
    used = _value(machine, "accelerators") if "accelerators" in machine else len(cards)
    if not used:
        return found
    name, card = next(iter(cards.items()))
    single, double = (_value(card, f"flops_{precision}") / 1e12 for precision in ("float32", "float64"))
    rate, size = _value(card, "memory_bandwidth_bytes_per_s"), _value(card, "memory_bytes")
    found.append(
        f"{counted(used, 'accelerator')}, {'each ' if used > 1 else ''}{single:.3g}/{double:.3g} TFLOP/s (32/64 bit) "
        f"with {size / 1e9:.0f} GB at {rate / 1e9:.0f} GB/s"
    )
    key = "pinned_bytes_per_s" if "pinned" not in machine or _value(machine, "pinned") else "pageable_bytes_per_s"
    for link in links.values():
        if name in link["ends"] and key in link:
            found.append(f"{_value(link, key) / 1e9:.3g} GB/s to {'each' if used > 1 else 'it'}")
            break
    return found


def _value(table: Mapping[str, Any], key: str) -> Any:
    return table[key]["value"]
