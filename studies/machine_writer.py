"""Write a machine as a machine file, so that what was detected once can be named, read and edited."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from hetsgd.models.calibration import RawSamples
from hetsgd.models.calibration_file import calibration_text, toml_value
from hetsgd.models.machine import Machine

_PLAIN = frozenset({"device", "ends"})
_TOP = ("cpu_lanes", "message_s", "decision_s", "pinned", "weights_on", "price_usd_per_hour")


def machine_text(machine: Machine, *, origin: str, raw: Sequence[RawSamples] = ()) -> str:
    """The machine in the format of machine files; `load_machine` reads the same machine back.

    Each figure keeps its source; one whose source is given for its whole table has that, one without has `origin`.
    `raw`: samples to write beside a calibration.
    """
    text = "\n".join(_lines(machine, origin)) + "\n"
    if machine.calibrated is None:
        return text
    return f"{text}\n{calibration_text(replace(machine.calibrated, raw=tuple(raw)), machine.calibrations)}"


def _lines(machine: Machine, origin: str) -> Iterator[str]:
    sources = {"": origin, **dict.fromkeys(machine.assumed, f"assumed: {origin}"), **dict(machine.sources)}
    yield f"name = {toml_value(machine.name)}"
    yield f"description = {toml_value(machine.description)}"
    yield "\n[machine]"
    for key in _TOP:
        if getattr(machine, key) is not None:
            yield _figure("machine", key, getattr(machine, key), sources)
    yield "\n[noise]"
    for field in fields(machine.noise):
        yield _figure("noise", field.name, getattr(machine.noise, field.name), sources)
    groups = (("socket", machine.sockets), ("accelerator", machine.accelerators), ("link", machine.links))
    for group, entries in groups:
        for entry in entries:
            yield f"\n[{group}.{toml_value(entry.name)}]"
            for field in fields(entry):
                if field.name not in ("name", "calibration") and getattr(entry, field.name) is not None:
                    yield _figure(f"{group}.{entry.name}", field.name, getattr(entry, field.name), sources)


def _figure(owner: str, key: str, value: Any, sources: dict[str, str]) -> str:
    if key in _PLAIN:
        return f"{key} = {toml_value(value)}"
    source = sources.get(f"{owner}.{key}") or sources.get(owner) or sources[""]
    word, text = ("assumed", source.removeprefix("assumed: ")) if source.startswith("assumed: ") else ("source", source)
    return f"{key} = {{ value = {toml_value(value)}, {word} = {toml_value(text)} }}"
