"""Tables of what went into a study: its own settings, the workloads, the machines with their assumptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hetsgd.studies.campaign import StudyResult
from hetsgd.studies.interval import number
from hetsgd.studies.record import StoredRun
from hetsgd.studies.tables import Table


def input_tables(result: StudyResult) -> list[Table]:
    """The resolved inputs: run settings, workloads, machines with their assumptions."""
    tables = [_study_table(result)]
    runs = _one_per_machine(result)
    seen: set[str] = set()
    for run in runs.values():
        workload = run.resolved["workload"]
        if workload["name"] not in seen:
            seen.add(workload["name"])
            tables.append(workload_table(workload))
    tables += [machine_table(machine, run.resolved["machine"]) for machine, run in runs.items()]
    return tables


def _study_table(result: StudyResult) -> Table:
    study = result.study
    rows = [
        ("machines", ", ".join(study.machines)),
        ("workloads", ", ".join(study.workloads)),
        ("policies", ", ".join(variant.label for variant in study.variants)),
        ("seeds", ", ".join(map(str, study.seeds))),
        ("learner", study.learner),
        ("stop", _stop(study.stop)),
    ]
    rows += [(key, str(value)) for key, value in study.settings]
    for on in study.on:
        parts = [f"stop {_stop(on.stop)}"] if on.stop is not None else []
        parts += [f"pilot stop {_stop(on.pilot_stop)}"] if on.pilot_stop is not None else []
        rows.append((f"on {on.machine}", "; ".join([*parts, *(f"{key} {value}" for key, value in on.settings)])))
    if study.pilot is not None:
        rows.append(("pilot", f"stop {_stop(study.pilot.stop)}, seed {study.pilot.seed}"))
        rows += [
            (f"grid of {variant.label}", "; ".join(f"{key} {_list(values)}" for key, values in variant.grid))
            for variant in study.variants
        ]
    if study.validation is not None:
        stop = study.validation.stop or study.stop_on(study.validation.machine)
        rows.append(("real runs", f"{study.validation.repeats} of each policy, stop {_stop(stop)}"))
    return Table(title="Study", note="What was asked.", headings=("field", "value"), rows=tuple(rows))


def _stop(stop: Any) -> str:
    names = ("seconds", "epochs", "updates", "target_loss")
    return " or ".join(f"{getattr(stop, name)} {name}" for name in names if getattr(stop, name) is not None)


def _list(values: Sequence[Any]) -> str:
    return ", ".join(str(value) for value in values)


def _one_per_machine(result: StudyResult) -> dict[str, StoredRun]:
    """The first run on each machine: all have the same inputs but for policy, seed and rate."""
    found: dict[str, StoredRun] = {}
    for case, run in result.found.items():
        if case.role == "run":
            found.setdefault(case.machine, run)
    return found


def workload_table(workload: Mapping[str, Any]) -> Table:
    """What a workload is, from its resolved inputs."""
    widths = "-".join(str(width) for width in (workload["features"], *workload["hidden"], workload["outputs"]))
    network = f"{widths}, {workload['activation']}, {'with' if workload['bias'] else 'without'} bias"
    loss, initial = f"{workload['loss']} cross-entropy", f"{workload['initial']}, scale {workload['initial_scale']}"
    if "traced" in workload:
        operators = ", ".join(str(operator["name"]) for operator in workload["traced"])
        network, loss, initial = f"{workload['description']}: {operators}", "of the module", "of the module"
    rows = (
        ("network", network),
        ("loss", f"{loss}, mean over rows"),
        ("precision", workload["precision"]),
        ("initial model", initial),
        ("rows", f"{workload['rows']:,} for training, {workload['test_rows']:,} for testing"),
        ("density of the features", number(workload["density"])),
        ("source", workload["source"]),
    )
    return Table(title=f"Workload {workload['name']}", note=workload["description"], headings=("field", "value"),
                 rows=rows)  # fmt: skip


def machine_table(name: str, machine: Mapping[str, Any]) -> Table:
    """Every figure of a machine with its source, from its resolved inputs."""
    return Table(
        title=f"Machine {name}",
        note=f"{machine['description']}. Assumed, since no source gives them: "
        f"{_list(machine['assumed']) or 'nothing'}.",
        headings=("field", "value", "source"),
        rows=tuple(_machine_rows(machine)),
    )


def _machine_rows(machine: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    sources = dict(machine["sources"])
    for key in ("cpu_lanes", "message_s", "decision_s", "pinned", "weights_on", "price_usd_per_hour"):
        if machine.get(key) is None:
            continue
        yield f"machine.{key}", _plain(machine[key]), _source(sources, "machine", key)
    for key, value in machine["noise"].items():
        yield f"noise.{key}", _plain(value), _source(sources, "noise", key)
    for group in ("sockets", "accelerators", "links"):
        for entry in machine[group]:
            owner = f"{group.removesuffix('s')}.{entry['name']}"
            for key, value in entry.items():
                if key != "name" and value is not None:
                    yield f"{owner}.{key}", _plain(value), _source(sources, owner, key)


def _source(sources: Mapping[str, str], owner: str, key: str) -> str:
    return sources.get(f"{owner}.{key}") or sources.get(owner, "-")


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return _list(value) if isinstance(value, list) else str(value)
