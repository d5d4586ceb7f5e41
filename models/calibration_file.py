"""The `[calibration]` part of a machine file: fits, step-time tables and raw samples, written by `hetsgd calibrate`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hetsgd.models.calibration import Calibration, CalibrationRecord, RawSamples
from hetsgd.models.edge import nearest
from hetsgd.models.policy import Write
from hetsgd.models.step_fit import StepCosts, StepFit
from hetsgd.models.step_table import Shape, StepCurve
from hetsgd.models.workload import Activation, LossName, Precision

_COSTS: Final = tuple(field.name for field in fields(StepCosts))
_SHAPE: Final = tuple(field.name for field in fields(Shape))


class CalibrationError(ValueError):
    """The `[calibration]` part of a file breaks a rule; the message names field, rule and value."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Fit(_Table):
    device: str
    precision: Precision
    lanes: int
    fused: bool
    overlaps: bool
    l2_bytes: int
    l3_bytes: int
    batches: tuple[int, int]
    parameters: tuple[int, int]
    overhead_s: float
    layer_s: float
    l2_bytes_per_s: float
    l3_bytes_per_s: float
    dram_bytes_per_s: float
    flops_per_s: float
    half_batch: float
    element_s: float
    row_s: float
    gradient_passes: float
    gradient_s: float
    forward_share: float
    fit_error: float | None = None
    held_out_error: float | None = None
    spread: float | None = None

    def value(self) -> StepFit:
        values = self.model_dump(exclude={"device", *_COSTS})
        return StepFit(**values, costs=StepCosts(**self.model_dump(include=set(_COSTS))))


class _Curve(_Table):
    device: str
    features: int
    hidden: tuple[int, ...]
    outputs: int
    activation: Activation
    bias: bool
    loss: LossName
    precision: Precision
    lanes: int
    write: Write
    batches: tuple[int, ...]
    seconds: tuple[float, ...]
    spreads: tuple[float, ...]
    held_out: bool = False

    def value(self) -> StepCurve:
        values = self.model_dump(exclude={"device", *_SHAPE})
        return StepCurve(**values, shape=Shape(**self.model_dump(include=set(_SHAPE))))


class _Raw(_Table):
    what: str
    unit: str
    values: tuple[float, ...]
    means: tuple[float, ...] = ()
    disturbed: tuple[bool, ...] = ()


class _Calibration(_Table):
    date: str
    duration_s: float
    host: str
    disturbed: float
    versions: dict[str, str]
    slowdown: dict[str, float] = {}
    fit: list[_Fit] = Field(min_length=1)
    curve: list[_Curve] = []
    raw: list[_Raw] = []


_TABLES: Final[dict[str, type[_Table]]] = {"fit": _Fit, "curve": _Curve, "raw": _Raw}


def read_calibration(
    content: Mapping[str, Any], devices: Sequence[str]
) -> tuple[CalibrationRecord, dict[str, Calibration]]:
    """The record, and the calibration of each device, from the parsed `[calibration]` table.

    `devices`: names of the sockets and accelerators of the file. Raises CalibrationError.
    """
    try:
        table = _Calibration.model_validate(dict(content))
    except ValidationError as error:
        raise CalibrationError("; ".join(_problem(item) for item in error.errors(include_url=False))) from error
    found: dict[str, Calibration] = {}
    entries: list[_Fit | _Curve] = [*table.fit, *table.curve]
    for entry in entries:
        if entry.device not in devices:
            kind = "fit" if isinstance(entry, _Fit) else "curve"
            raise CalibrationError(f"calibration.{kind}.device: must be one of {list(devices)}, got {entry.device!r}")
    for device in dict.fromkeys(entry.device for entry in entries):
        try:
            found[device] = Calibration(
                fits=tuple(entry.value() for entry in table.fit if entry.device == device),
                curves=tuple(entry.value() for entry in table.curve if entry.device == device),
                slowdown=table.slowdown.get(device, 1.0),
            )
        except ValueError as error:
            raise CalibrationError(f"{error} (device {device})") from error
    record = CalibrationRecord(
        date=table.date,
        duration_s=table.duration_s,
        host=table.host,
        versions=tuple(table.versions.items()),
        disturbed=table.disturbed,
        raw=tuple(RawSamples(**raw.model_dump()) for raw in table.raw),
    )
    return record, found


def _problem(item: Mapping[str, Any]) -> str:
    """One problem that pydantic found: field, rule and value; entries of a list by their number from 0."""
    *owner, key = item["loc"]
    field = ".".join(["calibration", *(str(part) for part in item["loc"])])
    if item["type"] == "missing":
        return f"{field}: must be given"
    if item["type"] == "extra_forbidden":
        table = _TABLES.get(str(owner[0]) if owner else "", _Calibration)
        return f"{field}: no such key, {nearest(str(key), table.model_fields)}"
    rule = item["msg"].removeprefix("Input ").replace("should be", "must be")
    return f"{field}: {rule}, got {item['input']!r}"


def calibration_text(record: CalibrationRecord, found: Mapping[str, Calibration]) -> str:
    """The `[calibration]` part of a machine file, which `read_calibration` reads back."""
    return "\n".join(_lines(record, found)) + "\n"


def _lines(record: CalibrationRecord, found: Mapping[str, Calibration]) -> Iterator[str]:
    yield "[calibration]"
    for key in ("date", "duration_s", "host", "disturbed"):
        yield f"{key} = {toml_value(getattr(record, key))}"
    yield "\n[calibration.versions]"
    for package, version in record.versions:
        yield f"{toml_value(package)} = {toml_value(version)}"
    yield "\n[calibration.slowdown]"
    for device, calibration in found.items():
        yield f"{toml_value(device)} = {toml_value(calibration.slowdown)}"
    for device, calibration in found.items():
        for fit in calibration.fits:
            yield "\n[[calibration.fit]]"
            yield from _pairs(device, fit, leave_out=("costs",))
            yield from _pairs(None, fit.costs)
        for curve in calibration.curves:
            yield "\n[[calibration.curve]]"
            yield from _pairs(device, curve, leave_out=("shape",))
            yield from _pairs(None, curve.shape)
    for raw in record.raw:
        yield "\n[[calibration.raw]]"
        yield from _pairs(None, raw)


def _pairs(device: str | None, value: Any, *, leave_out: tuple[str, ...] = ()) -> Iterator[str]:
    if device is not None:
        yield f"device = {toml_value(device)}"
    for field in fields(value):
        item = getattr(value, field.name)
        if field.name not in leave_out and item is not None and item != ():
            yield f"{field.name} = {toml_value(item)}"


def toml_value(value: Any) -> str:
    """A text, truth value, number or list of them as TOML writes it."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    return repr(value)
