"""Two runs, or two studies, side by side: first where their inputs differ, then what came out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hetsgd.models.edge import shown_value
from hetsgd.models.machine_names import LOCAL
from hetsgd.studies.failure import BadInput, checking
from hetsgd.studies.record import StoredRun, read_run

_ENTRY: Final = "present"
# Where a value comes from is no difference of inputs, and shows in neither result.
_LEFT_OUT: Final = ("sources", "assumed", "machine_set", "schema")
# What is measured each time that the machine at hand is detected: it differs between any two runs.
_DETECTED: Final = (
    "core_flops_float32", "core_flops_float64", "half_batch", "core_bandwidth_bytes_per_s",
    "core_l3_bandwidth_bytes_per_s", "dram_bandwidth_bytes_per_s", "flops_float32", "flops_float64",
    "memory_bandwidth_bytes_per_s", "pinned_bytes_per_s", "pageable_bytes_per_s",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing in which the two differ; `change` is b / a - 1 where both are numbers and a is not 0."""

    name: str
    a: Any
    b: Any

    @property
    def change(self) -> float | None:
        """Relative change from a to b, where that means something."""
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (self.a, self.b))
        return self.b / self.a - 1.0 if numbers and self.a else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Differences of inputs (an absent value is None): `chosen`, and figures `measured` anew with the same machine.

    `same`: the inputs that both have alike.
    """

    chosen: tuple[Difference, ...]
    measured: tuple[Difference, ...] = ()
    same: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Differences of inputs, and metrics with both values."""

    inputs: Inputs
    metrics: tuple[Difference, ...]

    def as_json(self) -> dict[str, Any]:
        """The object that `compare --json` prints."""
        return {
            "schema": "hetsgd.comparison/1",
            "inputs": [{"name": item.name, "a": item.a, "b": item.b} for item in self.inputs.chosen],
            "measured_anew": [{"name": m.name, "a": m.a, "b": m.b, "change": m.change} for m in self.inputs.measured],
            "metrics": [{"name": m.name, "a": m.a, "b": m.b, "change": m.change} for m in self.metrics],
        }


def compare_folders(a: Path, b: Path) -> Comparison:
    """Compare two folders that a run or a study wrote; BadInput where they are not of one kind."""
    kinds = {folder: _kind(folder) for folder in (a, b)}
    if kinds[a] != kinds[b]:
        raise BadInput(f"compare: {a} holds a {kinds[a]}, {b} a {kinds[b]}; compare like with like")
    if kinds[a] == "study":
        return _studies(a, b)
    with checking():
        return compare_runs(read_run(a), read_run(b))


def compare_runs(a: StoredRun, b: StoredRun) -> Comparison:
    """Compare two runs."""
    inputs = input_differences(a.resolved, b.resolved)
    ours, theirs = run_figures(a.record), run_figures(b.record)
    metrics = [Difference(name=name, a=ours.get(name), b=theirs.get(name)) for name in dict.fromkeys([*ours, *theirs])]
    return Comparison(inputs=inputs, metrics=tuple(metrics))


def input_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> Inputs:
    """Compare the resolved inputs of two runs (`resolved.json`): versions last, figures measured anew apart."""
    first, second = ({**{k: v for k, v in side.items() if k != "versions"}, **_versions_of(side)} for side in (a, b))
    ours, theirs = _flat(first), _flat(second)
    found = _differences(ours, theirs)
    measured = [item for item in found if _detected_anew(item.name, a, b)]
    return Inputs(
        chosen=tuple(item for item in found if item not in measured),
        measured=tuple(measured),
        same=_same(ours, theirs),
    )


def _versions_of(resolved: Mapping[str, Any]) -> dict[str, Any]:
    return {"versions": resolved["versions"]} if "versions" in resolved else {}


def _detected_anew(name: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether an input is a figure of the machine at hand that was measured in both runs, and set in neither."""
    for side in (a, b):
        machine = side.get("machine")
        if not isinstance(machine, Mapping) or machine.get("name") != LOCAL:
            return False
        if any(name.endswith(f".{key}") for key in side.get("machine_set", ())):
            return False
    return name.startswith("machine.") and name.rpartition(".")[2] in _DETECTED


def _same(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> tuple[Difference, ...]:
    return tuple(
        Difference(name=name, a=value, b=value)
        for name, value in ours.items()
        if name in theirs and theirs[name] == value and value not in (_ENTRY, None, [])
    )


def run_figures(record: Mapping[str, Any]) -> dict[str, Any]:
    """The single numbers of a run, by name with its unit."""
    figures: dict[str, Any] = {name: record[name] for name in ("status", "elapsed_s", "wall_s", "examples", "epochs")}
    epochs_s = record["epoch_s"]
    figures["epoch_s (mean)"] = sum(epochs_s) / len(epochs_s) if epochs_s else None
    figures["examples_per_s"] = record["examples"] / record["elapsed_s"] if record["elapsed_s"] else None
    for group in ("updates", "update_share", "utilization"):
        figures |= {f"{group}.{kind}": value for kind, value in record[group].items()}
    for kind, found in record["staleness"].items():
        figures[f"staleness.{kind} (mean)"] = found["mean"]
    figures |= {f"batch.{worker}": size for worker, size in record["batch"].items()}
    curve = record["loss"]
    figures["loss (last, train)"] = curve[-1]["train"] if curve else None
    figures["loss (last, test)"] = curve[-1]["test"] if curve else None
    for level, time_s in (record["time_to_loss_s"] or {}).items():
        figures[f"time_to_loss_s.{level}"] = time_s
    return figures


def _kind(folder: Path) -> str:
    if (folder / "study.json").is_file():
        return "study"
    if (folder / "run.json").is_file():
        return "run"
    raise BadInput(f"{folder}: holds neither run.json nor study.json; name a folder that --out made")


def _studies(a: Path, b: Path) -> Comparison:
    """Studies are compared by their inputs and the mean of every metric of every case that both have."""
    first, second = (_read(folder / "study.json") for folder in (a, b))
    a_inputs, b_inputs = (_flat({**part["study"], "versions": part["versions"]}) for part in (first, second))
    inputs = Inputs(chosen=tuple(_differences(a_inputs, b_inputs)), same=_same(a_inputs, b_inputs))
    ours, theirs = _flat(first["results"]), _flat(second["results"])
    metrics = [Difference(name=name, a=ours.get(name), b=theirs.get(name)) for name in dict.fromkeys([*ours, *theirs])]
    return Comparison(inputs=inputs, metrics=tuple(metrics))


def _read(path: Path) -> dict[str, Any]:
    from hetsgd.studies.record_file import study_problem

    with checking(str(path)):
        try:
            value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except RecursionError as error:
            raise BadInput("must be JSON that is nested less deeply") from error
        if not isinstance(value, dict):
            raise BadInput(f"must hold one object, got {shown_value(value)}")
        if problem := study_problem(value, str(path)):
            raise BadInput(problem)
        return value


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    names = [name for name in dict.fromkeys([*a, *b]) if a.get(name) != b.get(name)]
    # Of an entry that only one of them has (a socket, a link), that is all that matters.
    alone = tuple(f"{name}." for name in names if _ENTRY in (a.get(name), b.get(name)))
    return [Difference(name=name, a=a.get(name), b=b.get(name)) for name in names if not name.startswith(alone)]


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested objects as dotted names, entries of a list by their own name; lists of plain values stay whole."""
    return dict(_walk(value, prefix))


def _walk(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key not in _LEFT_OUT:
                yield from _walk(item, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) and "name" in item for item in value):
        for item in value:
            yield f"{prefix}.{item['name']}", _ENTRY
            yield from _walk({key: part for key, part in item.items() if key != "name"}, f"{prefix}.{item['name']}")
    elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        for index, item in enumerate(value):
            yield from _walk(item, f"{prefix}[{index}]")
    else:
        yield prefix, value
