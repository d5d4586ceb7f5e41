"""Tables of what went into a study: its own settings, the workloads, the machines with their assumptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from hetsgd.studies.campaign import StudyResult
from hetsgd.studies.disturbance import disturbed_words
from hetsgd.studies.interval import cache_size, number, seconds, share
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
    for name, run in runs.items():
        machine = run.resolved["machine"]
        tables.append(machine_table(name, machine))
        if any(entry.get("calibration") for entry in (*machine["sockets"], *machine["accelerators"])):
            tables.append(calibration_table(name, machine))
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


def calibration_table(name: str, machine: Mapping[str, Any]) -> Table:
    """How well the measured step times of a machine are known, a row per device, precision and number of lanes."""
    record = machine["calibrated"]
    disturbed = record and disturbed_words(record["disturbed"])
    when = f"Measured {record['date']} for {seconds(record['duration_s'])} on {record['host']}. " if record else ""
    disturbed = f"{disturbed[0].upper()}{disturbed[1:]}. " if disturbed else ""
    return Table(
        title=f"Calibration of {name}",
        note=f"{when}{disturbed}Fit error: mean absolute error of the fitted model at what it was fitted to; "
        "held out: that of a prediction at batch sizes that were left out; repeats: spread of repeated measurements. "
        "The measured times themselves are in the machine's file and in resolved.json of each run.",
        headings=("device", "precision", "lanes", "fit error", "held out", "repeats", "batches", "parameters"),
        rows=tuple(
            (
                entry["name"], fit["precision"], str(fit["lanes"]), share(fit["fit_error"]),
                share(fit["held_out_error"]), share(fit["spread"]), _range(fit["batches"]), _range(fit["parameters"]),
            )
            for entry in (*machine["sockets"], *machine["accelerators"])
            for fit in (entry.get("calibration") or {"fits": ()})["fits"]
        ),
    )  # fmt: skip


def _range(ends: Sequence[int]) -> str:
    return f"{ends[0]:,} to {ends[1]:,}"


def _machine_rows(machine: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    sources = dict(machine["sources"])
    for key in ("cpu_lanes", "message_s", "decision_s", "pinned", "weights_on", "price_usd_per_hour"):
        if machine.get(key) is None:
            continue
        yield f"machine.{key}", quantity(key, machine[key]), _source(sources, "machine", key)
    for key, value in machine["noise"].items():
        yield f"noise.{key}", quantity(key, value), _source(sources, "noise", key)
    for group in ("sockets", "accelerators", "links"):
        yield from _group_rows(group.removesuffix("s"), machine[group], sources)


def _group_rows(
    kind: str, entries: Sequence[Mapping[str, Any]], sources: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """The figures of sockets, accelerators or links; one that is like an earlier one has a row that says so."""
    for place, entry in enumerate(entries):
        owner = f"{kind}.{entry['name']}"
        like = next((other for other in entries[:place] if _figures(other) == _figures(entry)), None)
        if like is not None:
            own = f"{_list(entry['ends'])}, " if "ends" in entry else ""
            yield owner, f"{own}as {like['name']}", _source(sources, owner, "")
            continue
        for key, value in entry.items():
            if key not in ("name", "calibration") and value is not None:
                yield f"{owner}.{key}", quantity(key, value), _source(sources, owner, key)


def _figures(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What makes two of a kind the same: everything but which one it is and where it is plugged in."""
    return {key: value for key, value in entry.items() if key not in ("name", "ends", "device", "calibration")}


def _source(sources: Mapping[str, str], owner: str, key: str) -> str:
    return sources.get(f"{owner}.{key}") or sources.get(owner, "-")


def quantity(key: str, value: Any) -> str:
    """A figure of a machine in the unit that its key says, for a person.

    >>> quantity("core_flops_float32", 7.36e10), quantity("dram_bytes", 244_000_000_000), quantity("message_s", 1e-05)
    ('73.6 GFLOP/s', '244 GB', '10 µs')
    >>> quantity("dram_bandwidth_bytes_per_s", 6.6e10), quantity("l2_bytes", 1 << 20), quantity("cores", 16)
    ('66 GB/s', '1 MiB', '16')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return _list(value) if isinstance(value, list | tuple) else str(value)
    if "flops" in key:
        return f"{_scaled(value)}FLOP/s"
    if key.endswith("_bytes_per_s"):
        return f"{_scaled(value)}B/s"
    if key.endswith("_bytes"):
        return cache_size(value) if key.startswith(("l2", "l3")) else f"{_scaled(value)}B"
    for end, words in _ENDINGS:
        if key.endswith(end):
            return words(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


_ENDINGS: Final[tuple[tuple[str, Callable[[float], str]], ...]] = (
    ("_usd_per_hour", lambda value: f"{value:,.2f} USD an hour"),
    ("_watts", lambda value: f"{value:g} W"),
    ("_w", lambda value: f"{value:g} W"),
    ("_s", lambda value: seconds(value)),
)


def _scaled(value: float) -> str:
    if value == 0:
        return "0 "
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {prefix}"
    return f"{value:.3g} "
