"""What `run.json`, `resolved.json` and `study.json` must hold for what reads them; further keys are left alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hetsgd.models.edge import problems

# JSON has no number that is not finite: such a one is null. Whole numbers stand for floats as well.
_Number = float | None
_Count = Annotated[int, Field(ge=0)]


class _Stored(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Named(_Stored):
    name: str


class _Staleness(_Stored):
    mean: _Number


class _Point(_Stored):
    t_s: _Number
    epoch: _Number
    update: _Number
    train: _Number
    test: _Number


class _Record(_Stored):
    engine: Literal["sim", "real"]
    machine: _Named
    workload: _Named
    policy: _Named
    run: dict[str, Any]
    seed: _Count
    learner: str
    elapsed_s: _Number
    wall_s: _Number
    status: str
    stop_reason: str
    examples: _Count
    epochs: _Number
    epoch_s: list[_Number]
    updates: dict[str, _Number]
    update_share: dict[str, _Number]
    utilization: dict[str, _Number]
    batch: dict[str, _Number]
    staleness: dict[str, _Staleness]
    loss: list[_Point]
    time_to_loss_s: dict[str, _Number] | None


class _Resolved(_Stored):
    engine: Literal["sim", "real"]
    learner: str
    machine: _Named
    workload: _Named
    policy: _Named
    run: dict[str, Any]
    machine_set: list[str] = []
    versions: dict[str, str]


class _Study(_Stored):
    study: _Named
    versions: dict[str, str]
    results: dict[str, Any]


def record_problem(record: Mapping[str, Any], origin: str) -> str | None:
    """What is wrong with a `run.json`, all of it in one line with its file (`origin`); None where nothing is."""
    return _problem(_Record, record, origin)


def resolved_problem(resolved: Mapping[str, Any], origin: str) -> str | None:
    """What is wrong with a `resolved.json`."""
    return _problem(_Resolved, resolved, origin)


def study_problem(study: Mapping[str, Any], origin: str) -> str | None:
    """What is wrong with a `study.json`, as far as two of them are compared."""
    return _problem(_Study, study, origin)


def _problem(kind: type[_Stored], value: Mapping[str, Any], origin: str) -> str | None:
    try:
        kind.model_validate(value)
    except ValidationError as error:
        return problems(error, origin=origin, given=value, known=kind.model_fields)
    return None
