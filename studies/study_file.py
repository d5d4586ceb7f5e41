"""Read a study from its TOML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, ValidationError

from hetsgd.models.edge import any_rule, nearest, own_path, parse_toml, read_text, rule_of, shown_value
from hetsgd.models.machine_names import LOCAL
from hetsgd.models.run import StopRule
from hetsgd.studies.failure import BadInput, checking
from hetsgd.studies.resolve import check_learner
from hetsgd.studies.study import (
    CALIBRATE_MINUTES,
    METRICS,
    MOST_SEEDS,
    On,
    Pilot,
    Settings,
    Study,
    Validation,
    Value,
    Variant,
)

Scalar = StrictBool | StrictInt | StrictFloat | StrictStr
Item = Scalar | list[Scalar]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class _Stop(_Table):
    seconds: float | None = None
    epochs: StrictInt | None = None
    updates: StrictInt | None = None
    target_loss: float | None = None


class _Policy(_Table):
    name: StrictStr
    label: StrictStr | None = None
    set: dict[str, Item] = {}
    grid: dict[str, Annotated[list[Item], Field(min_length=1)]] = {}


class _Pilot(_Table):
    stop: _Stop
    seed: StrictInt = 1000


class _Validate(_Table):
    machine: StrictStr = "local"
    repeats: StrictInt = 3
    stop: _Stop | None = None


class _Calibrate(_Table):
    minutes: float = CALIBRATE_MINUTES


class _On(_Table):
    stop: _Stop | None = None
    pilot_stop: _Stop | None = None
    run: dict[str, Item] = {}


class _Study(_Table):
    # Without --out it names the folder of the results below out/.
    name: Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9 _.-]{0,99}$")] | None = None
    question: Annotated[StrictStr, Field(min_length=1)]
    machines: list[StrictStr]
    workloads: list[StrictStr]
    policies: list[StrictStr | _Policy]
    seeds: StrictInt | list[StrictInt] = 3
    learner: StrictStr = "replay"
    level: float = 0.9
    metrics: list[StrictStr] = list(METRICS)
    stop: _Stop
    run: dict[str, Item] = {}
    on: dict[str, _On] = {}
    pilot: _Pilot | None = None
    calibrate: _Calibrate | None = None
    validate_: Annotated[_Validate | None, Field(alias="validate")] = None


def load_study(path: Path) -> Study:
    """The study in a TOML file.

    A name without a file of that name is a built-in study. Raises BadInput that names the file, the field, the rule
    and the value.
    """
    path = find_study(path)
    with checking():
        text = read_text(path)
    return parse_study(text, str(path), path.stem)


def find_study(path: Path) -> Path:
    """The file of a study: the path itself, or that of the built-in study of this name."""
    own = own_path(path)
    with checking(str(path)):
        if own.exists():
            return own
    built_in = {file.stem: file for file in Path(__file__).parent.glob("*.toml")}
    if str(path) in built_in:
        return built_in[str(path)]
    raise BadInput(f"{path}: no such file, nor a built-in study; {nearest(str(path), built_in)}")


def parse_study(text: str, origin: str, name: str) -> Study:
    """The study written in `text`; `origin` is named in errors, `name` is the study's unless it has its own."""
    with checking():
        table = parse_toml(text.removeprefix("\ufeff"), origin)
    try:
        parsed = _Study.model_validate(table)
    except ValidationError as error:
        raise BadInput(f"{origin}: {_first(error)}") from error
    with checking(origin):
        return _study(parsed, name)


def _first(error: ValidationError) -> str:
    """The first complaint in words: field, rule, value, and the nearest field where one is unknown."""
    problems = error.errors(include_url=False)
    # A list entry may be a name or a table; where it is a table, complaints about the table say more.
    problem = max(problems, key=_weight)
    field = _field(problem["loc"])
    if problem["type"] == "extra_forbidden":
        owner = _owner(problem["loc"])
        names = [info.alias or name for name, info in owner.model_fields.items()]
        return f"{field}: unknown field; {nearest(str(problem['loc'][-1]), names)}"
    if problem["type"] == "missing":
        return f"{field}: must be given"
    rules = [rule_of(other) for other in problems if _field(other["loc"]) == field]
    return f"{field}: {any_rule(rules)}, got {shown_value(problem['input'])}"


def _field(loc: tuple[int | str, ...]) -> str:
    """The field by its name in the file: without pydantic's names of the kinds that it tried."""
    tried = ("_", "constrained", "function", "list[")
    where = [str(part) for part in loc if not str(part).startswith(tried)]
    return ".".join(part for part in where if part not in ("str", "int", "float", "bool"))


def _weight(problem: Any) -> tuple[int, int]:
    """How much a complaint says: a deep one more than a shallow one, a misspelt field more than one that is missing."""
    kinds = {"extra_forbidden": 2, "missing": 1, "string_type": -1}
    return len(problem["loc"]), kinds.get(problem["type"], 0)


def _owner(loc: tuple[int | str, ...]) -> type[_Table]:
    """The table that an unknown field was given to."""
    if any(part in ("stop", "pilot_stop") for part in loc[:-1]):
        return _Stop
    tables: dict[str, type[_Table]] = {"policies": _Policy, "pilot": _Pilot, "validate": _Validate, "on": _On,
                                      "calibrate": _Calibrate}  # fmt: skip
    return tables.get(str(loc[0]), _Study) if len(loc) > 1 else _Study


def _study(parsed: _Study, name: str) -> Study:
    for metric in parsed.metrics:
        if metric not in METRICS:
            raise BadInput(f"metrics: unknown metric {metric!r}; {nearest(metric, METRICS)}")
    check_learner(parsed.learner, "learner")
    if isinstance(parsed.seeds, int) and not 1 <= parsed.seeds <= MOST_SEEDS:
        raise BadInput(f"seeds: their number must be in 1..{MOST_SEEDS}, got {parsed.seeds}")
    seeds = tuple(range(parsed.seeds)) if isinstance(parsed.seeds, int) else tuple(parsed.seeds)
    return Study(
        name=parsed.name or name,
        question=parsed.question,
        machines=tuple(parsed.machines),
        workloads=tuple(parsed.workloads),
        variants=tuple(_variant(entry) for entry in parsed.policies),
        seeds=seeds,
        stop=_stop("stop", parsed.stop),
        settings=_run_settings(parsed.run),
        learner=parsed.learner,
        level=parsed.level,
        metrics=tuple(parsed.metrics),
        pilot=None if parsed.pilot is None else _pilot(parsed.pilot),
        on=tuple(_on(machine, entry) for machine, entry in parsed.on.items()),
        calibrate_minutes=_minutes(parsed.calibrate),
        validation=None if parsed.validate_ is None else _validation(parsed.validate_),
    )


def _minutes(table: _Calibrate | None) -> float:
    if table is None:
        return 0.0
    if table.minutes <= 0.0:
        raise BadInput(
            f"calibrate.minutes: must be > 0, got {table.minutes:g}; leave the table out to use {LOCAL} as it is"
        )
    return table.minutes


def _variant(entry: str | _Policy) -> Variant:
    if isinstance(entry, str):
        return Variant(label=entry, policy=entry)
    both = set(entry.set) & set(entry.grid)
    if both:
        raise BadInput(f"policies.{entry.name}: {', '.join(sorted(both))} is in both set and grid; keep one")
    return Variant(
        label=entry.label or entry.name,
        policy=entry.name,
        settings=_settings(entry.set),
        grid=tuple((key, tuple(_value(item) for item in values)) for key, values in entry.grid.items()),
    )


def _on(machine: str, on: _On) -> On:
    return On(
        machine=machine,
        stop=None if on.stop is None else _stop(f"on.{machine}.stop", on.stop),
        pilot_stop=None if on.pilot_stop is None else _stop(f"on.{machine}.pilot_stop", on.pilot_stop),
        settings=_run_settings(on.run),
    )


def _run_settings(table: dict[str, Any]) -> Settings:
    return tuple((f"run.{key}", _value(value)) for key, value in table.items())


def _settings(table: dict[str, Any]) -> Settings:
    return tuple((key, _value(value)) for key, value in table.items())


def _value(value: Any) -> Value:
    return tuple(_value(item) for item in value) if isinstance(value, list) else value


def _stop(field: str, stop: _Stop) -> StopRule:
    try:
        return StopRule(
            seconds=stop.seconds, epochs=stop.epochs, updates=stop.updates, target_loss=stop.target_loss
        )  # fmt: skip
    except ValueError as error:
        rule = str(error).removeprefix("stop rule: ")
        raise BadInput(f"{field}: {rule}" if rule.startswith("give") else f"{field}.{rule}") from error


def _pilot(pilot: _Pilot) -> Pilot:
    return Pilot(stop=_stop("pilot.stop", pilot.stop), seed=pilot.seed)


def _validation(validate: _Validate) -> Validation:
    stop = None if validate.stop is None else _stop("validate.stop", validate.stop)
    return Validation(machine=validate.machine, repeats=validate.repeats, stop=stop)
