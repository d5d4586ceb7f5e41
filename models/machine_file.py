"""Machines from files: built-in TOML files, one's own, the machine at hand, or an object of a Python module.

A figure of a machine file is written `key = { value = 76.8e9, source = "where it is from" }`, or with `assumed = "why"`
where no source gives it; a figure without either is refused. Units are in the keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar, cast, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from hetsgd.models.calibration import MEASURED_FIELDS
from hetsgd.models.calibration_file import CalibrationError, read_calibration
from hetsgd.models.edge import (
    call_object,
    load_object,
    nearest,
    problems,
    read_toml,
    rule_of,
    shown_value,
    unknown_key,
)
from hetsgd.models.machine import Accelerator, Link, Machine, Noise, Placement, Socket
from hetsgd.models.machine_bounds import BOUNDS, hardware_problem, unit_hint
from hetsgd.models.machine_knobs import without_effect
from hetsgd.models.machine_local import available_cores, known_rates, local_machine
from hetsgd.models.machine_names import LOCAL, MACHINE_FOLDER, machine_names

_Value = TypeVar("_Value")
_ENTRIES: Final[dict[str, type]] = {"socket": Socket, "accelerator": Accelerator, "link": Link}
_PLAIN: Final = frozenset({"like", "device", "ends"})
_TOP: Final = ("name", "description", "machine", "noise", "calibration", *_ENTRIES)
_SETTINGS: Final = ("cpu_lanes", "message_s", "decision_s", "pinned", "weights_on", "price_usd_per_hour")
_WATTS: Final = ("idle_watts", "busy_watts")


def machine_keys() -> tuple[str, ...]:
    """The keys of a machine file: those of `[machine]` and `[noise]` alone, those of parts as `KIND.KEY`."""
    parts = [f"{kind}.{key}" for kind, entry in _ENTRIES.items() for key in _figures_of(entry) if key != "name"]
    return (*_SETTINGS, "accelerators", *(item.name for item in fields(Noise)), *parts)


class MachineError(ValueError):
    """A machine's file or overrides break a rule; the message names file, field, rule and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _MachineTable:
    """The keys of `[machine]`; `accelerators`: how many of those listed are used (None: all)."""

    cpu_lanes: int
    message_s: float
    decision_s: float
    accelerators: int | None = None
    pinned: bool = True
    weights_on: Placement = "one_socket"
    price_usd_per_hour: float | None = None


def load_machine(
    name_or_path: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    accelerators: Sequence[Accelerator] = (),
    links: Sequence[Link] = (),
) -> Machine:
    """A built-in machine, a TOML file, `local` or `package.module:object`, with `machine.KEY=V` overrides.

    Keys are those of the machine (`cpu_lanes`, `accelerators`: how many are used, `message_s`, ...), of its noise
    (`cpu_sigma`), or `ENTRY.KEY` of one socket, accelerator or link (`pcie0.latency_s`); values may be text or typed.
    `accelerators` and `links` describe the devices that were found at hand, for `local` only; so does the key
    `fresh`: the machine is measured anew instead of taken as it was kept.

    Raises MachineError, which names file, field, rule and value.
    """
    given = dict(overrides or {})
    text = str(name_or_path)
    used = _count(given.pop("accelerators", None))
    if text == LOCAL:
        fresh = _typed_flag(given.pop("fresh", False))
        machine = local_machine(accelerators, links, used=used, fresh=fresh)
    elif ":" in text and not text.endswith(".toml") and not Path(text).exists():
        machine = _using(_from_module(text), used, "--set")
    else:
        path = _find(text)
        machine = _read_machine(path, used)
    return _override(machine, given)


def local_words(overrides: Mapping[str, Any]) -> str:
    """One line on the rates of `local` under these overrides: from when they are, where kept, how renewed."""
    return known_rates(available_cores(), _typed_flag(overrides.get("fresh", False))).words()


def _count(value: object) -> int | None:
    if value is None:
        return None
    try:
        count = TypeAdapter(int).validate_python(value)
    except ValidationError:
        count = -1
    if count < 0:
        raise MachineError(f"--set: machine.accelerators: must be a whole number >= 0, got {shown_value(value)}")
    return count


def _typed_flag(value: object) -> bool:
    try:
        return TypeAdapter(bool).validate_python(value)
    except ValidationError as error:
        raise MachineError(f"--set: machine.fresh: must be true or false, got {shown_value(value)}") from error


def _find(text: str) -> Path:
    if text in machine_names():
        return MACHINE_FOLDER / f"{text}.toml"
    path = Path(text).expanduser()
    if path.suffix == ".toml" or path.is_file():
        return path
    raise MachineError(
        f"machine {text!r}: neither a built-in machine nor a .toml file nor package.module:object, "
        f"{nearest(text, machine_names())}"
    )


# -- files -------------------------------------------------------------------------------------------------------


class _Origins:
    """Where each figure comes from, collected while a file is read."""

    def __init__(self) -> None:
        self.sources: list[tuple[str, str]] = []
        self.assumed: list[str] = []

    def figures(self, table: Mapping[str, Any], owner: str, path: Path) -> dict[str, Any]:
        """The bare values of a table whose figures carry their source."""
        return {key: self._figure(f"{owner}.{key}", key, value, path) for key, value in table.items()}

    def _figure(self, field: str, key: str, value: Any, path: Path) -> Any:
        if key in _PLAIN:
            return value
        if not isinstance(value, dict) or "value" not in value or len(value) != 2:
            raise MachineError(f'{path}: {field}: must be {{ value = ..., source = "..." }}, got {shown_value(value)}')
        word = next((word for word in ("source", "assumed") if word in value), "")
        text = value.get(word)
        if not isinstance(text, str) or not text.strip():
            raise MachineError(
                f"{path}: {field}: must name its `source`, or say why it is `assumed`, got {shown_value(value)}"
            )
        self.sources.append((field, text if word == "source" else f"assumed: {text}"))
        if word == "assumed":
            self.assumed.append(field)
        return value["value"]


def _read_machine(path: Path, used: int | None) -> Machine:
    try:
        content = read_toml(path)
    except ValueError as error:
        raise MachineError(str(error)) from error
    for key in content:
        if key not in _TOP:
            raise MachineError(unknown_key(str(path), "", key, _TOP))
    origins = _Origins()
    table = _parse(_MachineTable, origins.figures(_section(content, "machine", path), "machine", path), "machine", path)
    noise = _parse(Noise, origins.figures(_section(content, "noise", path, {}), "noise", path), "noise", path)
    entries = {kind: _entries(content, kind, origins, path) for kind in _ENTRIES}
    try:
        machine = Machine(
            name=_text(content, "name", path.stem, path),
            description=_text(content, "description", "", path),
            sockets=tuple(entries["socket"]),
            accelerators=tuple(entries["accelerator"]),
            links=tuple(entries["link"]),
            noise=noise,
            sources=tuple(origins.sources),
            assumed=tuple(origins.assumed),
            **{key: getattr(table, key) for key in _SETTINGS},
        )
    except MachineError:
        raise
    except ValueError as error:
        raise MachineError(f"{path}: {error}") from error
    if "calibration" in content:
        machine = _calibrated(machine, _section(content, "calibration", path), path)
    if used is not None:
        return _using(machine, used, "--set")
    return _using(machine, table.accelerators, str(path))


def _text(content: Mapping[str, Any], key: str, default: str, path: Path) -> str:
    value = content.get(key, default)
    if not isinstance(value, str):
        raise MachineError(f"{path}: {key}: must be text, got {shown_value(value)}")
    return value


def _section(content: Mapping[str, Any], key: str, path: Path, default: dict[str, Any] | None = None) -> dict[str, Any]:
    value = content.get(key, default)
    if value is None:
        raise MachineError(f"{path}: {key}: must be given")
    if not isinstance(value, dict):
        raise MachineError(f"{path}: {key}: must be a table, got {shown_value(value)}")
    return value


def _entries(content: Mapping[str, Any], kind: str, origins: _Origins, path: Path) -> list[Any]:
    """The sockets, accelerators or links of a file; `like` takes over the values of an earlier one."""
    read: dict[str, dict[str, Any]] = {}
    for name in (tables := _section(content, kind, path, {})):
        owner = f"{kind}.{name}"
        values = origins.figures(_section(tables, name, path), owner, path)
        like = values.pop("like", None)
        if like is not None and not (isinstance(like, str) and like in read):
            known = ", ".join(read) or "none"
            raise MachineError(
                f"{path}: {owner}.like: must name an earlier {kind} (there: {known}), got {shown_value(like)}"
            )
        read[name] = values if like is None else {**read[like], **values}
    return [_parse(_ENTRIES[kind], {"name": name, **values}, f"{kind}.{name}", path) for name, values in read.items()]


def _calibrated(machine: Machine, content: Mapping[str, Any], path: Path) -> Machine:
    """The machine with the measured step times of a file."""
    names = [*(socket.name for socket in machine.sockets), *(acc.name for acc in machine.accelerators)]
    try:
        record, found = read_calibration(content, names)
    except CalibrationError as error:
        raise MachineError(f"{path}: {error}") from error
    return replace(
        machine,
        sockets=tuple(replace(socket, calibration=found.get(socket.name)) for socket in machine.sockets),
        accelerators=tuple(replace(acc, calibration=found.get(acc.name)) for acc in machine.accelerators),
        calibrated=replace(record, raw=()),
    )


def _figures_of(kind: object) -> list[str]:
    """The figures of a socket, accelerator or link, by name: what a file gives and `--set` may change."""
    if not is_dataclass(kind):
        return []
    return [field.name for field in fields(kind) if field.name != "calibration"]


def _parse(kind: type[_Value], values: Mapping[str, Any], owner: str, path: Path) -> _Value:
    """A value of a dataclass from a table; MachineError for unknown, missing and wrong keys."""
    known = _figures_of(kind)
    for key in values:
        if key not in known:
            raise MachineError(unknown_key(str(path), f"{owner}.", key, known))
    for key, value in values.items():
        problem = _not_a_figure(key, value) or hardware_problem(key, value)
        if problem:
            raise MachineError(f"{path}: {owner}.{key}: {problem}")
    given = [key for key in _WATTS if key in values]
    if len(given) == 1:
        other = next(key for key in _WATTS if key not in given)
        raise MachineError(f"{path}: {owner}.{given[0]}: must be given together with {other}: energy needs both")
    try:
        return cast(_Value, _adapter(cast(Any, kind)).validate_python(dict(values)))
    except ValidationError as error:
        message = problems(error, origin=str(path), prefix=f"{owner}.", given=values, known=known)
        raise MachineError(message) from error


@lru_cache(maxsize=8)
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """The reader of a table; making one takes longer than reading with it."""
    return TypeAdapter(kind)


def _not_a_figure(key: str, value: Any) -> str | None:
    """What is wrong with a value that stands where a number with a unit is wanted; None where nothing is."""
    if key not in BOUNDS or (isinstance(value, int | float) and not isinstance(value, bool)):
        return None
    return f"must be a number, got {shown_value(value)}; {unit_hint(key)}"


def _using(machine: Machine, used: int | None, origin: str) -> Machine:
    """The machine with its first `used` accelerators and the links that still join something."""
    if used is None:
        return machine
    if not 0 <= used <= len(machine.accelerators):
        raise MachineError(
            f"{origin}: machine.accelerators: must be 0 to {len(machine.accelerators)}, as many as there are, got "
            f"{shown_value(used)}"
        )
    gone = {accelerator.name for accelerator in machine.accelerators[used:]}
    links = tuple(link for link in machine.links if not gone & set(link.ends))
    return replace(machine, accelerators=machine.accelerators[:used], links=links)


# -- overrides and objects ---------------------------------------------------------------------------------------


def _override(machine: Machine, overrides: Mapping[str, Any]) -> Machine:
    """The machine with `machine.KEY=V` applied, one after the other."""
    for key, value in overrides.items():
        try:
            machine = _override_one(machine, key, value)
        except MachineError:
            raise
        except ValueError as error:
            raise MachineError(f"--set: machine.{key}: {error}") from error
    for key in overrides:
        owner, _, figure = key.rpartition(".")
        why = without_effect(machine, owner, figure)
        if why:
            raise MachineError(f"--set: machine.{key}: changes nothing on machine {machine.name}: {why}")
    return machine


def _override_one(machine: Machine, key: str, value: Any) -> Machine:
    owner, dot, field = key.rpartition(".")
    if not dot and key in _SETTINGS:
        return replace(machine, **{key: _typed(Machine, key, value, key)})
    noise = [item.name for item in fields(Noise)]
    if not dot and key in noise:
        return replace(machine, noise=replace(machine.noise, **{key: _typed(Noise, key, value, key)}))
    for entry in _entries_of(machine):
        if entry.name == owner and field != "name" and field in _figures_of(entry):
            changed = replace(entry, **{field: _typed(type(entry), field, value, key)})
            if not isinstance(changed, Link) and changed.calibration is not None and field in MEASURED_FIELDS:
                # What is set must count: measured times would go before it.
                changed = replace(changed, calibration=None)
                about = f"{machine.description}; calibration of {owner} set aside, since {field} is set"
                machine = replace(machine, description=about)
            return _exchange(machine, entry, changed)
    raise MachineError(
        unknown_key("--set", "machine.", key, [*_SETTINGS, "accelerators", *noise, *_entry_keys(machine)])
    )


def _entries_of(machine: Machine) -> tuple[Socket | Accelerator | Link, ...]:
    return (*machine.sockets, *machine.accelerators, *machine.links)


def _exchange(machine: Machine, old: object, new: object) -> Machine:
    """The machine with one socket, accelerator or link in the place of another."""

    def exchanged(entries: tuple[_Value, ...]) -> tuple[_Value, ...]:
        return tuple(cast(_Value, new) if entry is old else entry for entry in entries)

    return replace(
        machine,
        sockets=exchanged(machine.sockets),
        accelerators=exchanged(machine.accelerators),
        links=exchanged(machine.links),
    )


def _entry_keys(machine: Machine) -> Iterable[str]:
    for entry in _entries_of(machine):
        yield from (f"{entry.name}.{name}" for name in _figures_of(entry) if name != "name")


def _typed(owner: type, field: str, value: Any, key: str) -> Any:
    hints = get_type_hints(owner)
    try:
        found = TypeAdapter(hints[field], config=ConfigDict(strict=False)).validate_python(value)
    except ValidationError as error:
        rule = rule_of(error.errors()[0])
        hint = f"; {unit_hint(field)}" if field in BOUNDS else ""
        raise MachineError(f"--set: machine.{key}: {rule}, got {shown_value(value)}{hint}") from error
    problem = hardware_problem(field, found)
    if problem:
        raise MachineError(f"--set: machine.{key}: {problem}")
    return found


def _from_module(text: str) -> Machine:
    """The machine object `package.module:object`: a Machine, or a function without parameters that returns one."""
    try:
        found = load_object(text)
        value = call_object(text, found) if callable(found) and not isinstance(found, type) else found
    except ValueError as error:
        raise MachineError(f"machine {error}") from error
    if not isinstance(value, Machine):
        raise MachineError(f"machine {text!r}: must be a Machine, got {type(value).__name__}")
    return value
