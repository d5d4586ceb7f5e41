"""Run settings from text: `run.KEY=V` of the command line and the `[run]` tables of files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from hetsgd.models.edge import problems
from hetsgd.models.policy import LaneMode
from hetsgd.models.run import Evaluation, Order, RunSettings, StopRule, TraceLevel


class RunError(ValueError):
    """A run setting breaks a rule; the message names origin, field, rule and value."""


def _number(value: object) -> object:
    """A number, or the text of one as it is written everywhere: neither a flag nor Python's own 1_000."""
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):
        raise ValueError("must be a number")
    return value


def _whole(value: object) -> object:
    """A whole number, or its text; 1e3 is none."""
    if isinstance(value, bool | float) or (isinstance(value, str) and not _DIGITS.fullmatch(value.strip())):
        raise ValueError("must be a whole number")
    return value


def _or_none(check: Callable[[object], object]) -> Callable[[object], object]:
    """The check of a value that may be left empty."""

    def checked(value: object) -> object:
        return None if value is None or str(value).strip().lower() in ("none", "") else check(value)

    return checked


_DIGITS: Final = re.compile("[+-]?[0-9]+")
_Float = Annotated[float, BeforeValidator(_number)]
_Int = Annotated[int, BeforeValidator(_whole)]
_Seconds = Annotated[float | None, BeforeValidator(_or_none(_number))]
_Count = Annotated[int | None, BeforeValidator(_or_none(_whole))]


class _RunTable(BaseModel):
    """Keys of `run`: those of RunSettings and of its stop rule. Ranges are checked by these values themselves."""

    model_config = ConfigDict(extra="forbid")

    seed: _Int = 0
    learning_rate: _Float = 0.01
    momentum: _Float = 0.0
    weight_decay: _Float = 0.0
    order: Order = "shuffled"
    lanes: LaneMode = "barrier"
    lookahead: _Int = 0
    evaluation: Evaluation = "blocking"
    evaluate_every_s: _Seconds = None
    gradient_stats: _Int = 0
    trace: TraceLevel = "full"
    seconds: _Seconds = None
    epochs: _Count = None
    updates: _Count = None
    target_loss: _Seconds = None


RUN_KEYS: tuple[str, ...] = tuple(_RunTable.model_fields)
_STOP_KEYS = tuple(field.name for field in fields(StopRule))


def run_table(values: Mapping[str, Any], *, origin: str) -> dict[str, Any]:
    """The values of a `[run]` table or of `run.KEY=V`, each in its type: only the keys that were given.

    Raises RunError for unknown keys and for values of a wrong type or out of range, with `origin` in front.
    """
    try:
        table = _RunTable.model_validate(dict(values))
    except ValidationError as error:
        message = problems(error, origin=origin, prefix="run.", given=values, known=RUN_KEYS)
        raise RunError(message) from error
    given = table.model_dump(exclude_unset=True)
    for key, value in given.items():
        # One by one, so that a bad value is told of by where it stands and not by what it is combined with.
        try:
            if key not in _STOP_KEYS:
                RunSettings(stop=StopRule(epochs=1), **{key: value})
            elif value is not None:
                StopRule(**{"epochs": 1, key: value})
        except ValueError as error:
            raise RunError(f"{origin}: {str(error).replace('stop rule: ', 'run.')}") from error
    return given


def run_settings(
    overrides: Mapping[str, Any],
    *,
    defaults: Mapping[str, Any] | None = None,
    stop: StopRule | None = None,
    origin: str = "--set",
) -> RunSettings:
    """Run settings from `run.KEY=V` values (text or typed) over defaults (such as a workload's own).

    `none` empties a key that may be empty (`evaluate_every_s`). The stop keys `seconds`, `epochs`, `updates` and
    `target_loss` are added to `stop`; where overrides or `stop` name a stop, that of the defaults is left out.

    Raises RunError for an unknown key, naming the nearest one, for a value outside its range, and for a stop key that
    `stop` has with another value: neither may win in silence.
    """
    given = run_table(overrides, origin=origin)
    base = run_table(defaults or {}, origin="defaults")
    rule = {} if stop is None else {key: getattr(stop, key) for key in _STOP_KEYS}
    for key, value in rule.items():
        if value is not None and given.get(key, value) != value:
            raise RunError(f"{origin}: run.{key}: is {value} by the stop rule, got {given[key]}; give it in one place")
    if stop is not None or any(key in given for key in _STOP_KEYS):
        base = {key: value for key, value in base.items() if key not in _STOP_KEYS}
    merged = {**base, **{key: value for key, value in rule.items() if value is not None}, **given}
    stop_values = {key: merged.pop(key) for key in _STOP_KEYS if key in merged}
    try:
        return RunSettings(stop=StopRule(**stop_values), **merged)
    except ValueError as error:
        raise RunError(f"{origin}: {error}") from error
