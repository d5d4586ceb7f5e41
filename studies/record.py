"""What a run leaves behind: `run.json` (one object, `hetsgd.run/1`), `resolved.json` and the trace.

JSON here is strict: a number that is not finite is null.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Literal

from hetsgd.models.edge import shown_value
from hetsgd.models.machine import Machine
from hetsgd.models.metrics import Metrics
from hetsgd.models.plan import Plan
from hetsgd.models.trace import Trace
from hetsgd.studies.spending import spent_keys

RUN_SCHEMA: Final = "hetsgd.run/1"
RESOLVED_SCHEMA: Final = "hetsgd.resolved/1"
MODEL: Final = "model.pt"

EngineName = Literal["sim", "real"]


class OutputError(ValueError):
    """A folder cannot be written or read as one of a run; the message names it, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """One run on disk. `record` is `run.json`, `resolved` are all its inputs; `trace` is read when it is asked for."""

    folder: Path
    record: Mapping[str, Any]
    resolved: Mapping[str, Any]

    @property
    def trace(self) -> Trace:
        """The whole trace, read anew each time (keep it); OutputError where it is missing or damaged."""
        from hetsgd.studies.trace_store import TraceStoreError, read_trace

        try:
            return read_trace(self.folder / "trace")
        except TraceStoreError as error:
            raise OutputError(str(error)) from error


# -- the object --------------------------------------------------------------------------------------------------


def run_record(
    plan: Plan, metrics: Metrics, *, engine: EngineName, learner: str, wall_s: float, device: str = ""
) -> dict[str, Any]:
    """The `hetsgd.run/1` object of a run: plain JSON values, times in seconds, sizes in bytes.

    `wall_s` is what producing the run took, `device` the hardware in words (real runs). `time_to_loss_s` is null
    unless the metrics were computed with a loss reference. `loss[].epoch` counts epochs of rows processed.
    """
    levels = {f"{level:g}": seconds for level, seconds in metrics.time_to_loss_s.items()}
    record: dict[str, Any] = {
        "schema": RUN_SCHEMA,
        "engine": engine,
        "machine": described(_without_tables(plan.machine), leave_out=("sources",)),
        "workload": {**described(plan.workload), "parameters": plan.workload.parameters},
        "policy": policy_of(plan),
        "run": described(plan.run),
        "seed": plan.run.seed,
        "learner": learner,
        "device": device,
        "elapsed_s": metrics.elapsed_s,
        "wall_s": wall_s,
        "status": metrics.status,
        "stop_reason": metrics.stop_reason,
        "notes": list(metrics.notes),
        "examples": metrics.examples,
        "epochs": metrics.epochs,
        "epoch_s": list(metrics.epoch_s),
        "rows": dict(metrics.rows),
        "updates": {kind: _whole(count) for kind, count in metrics.updates.items()},
        "update_share": dict(metrics.update_share),
        "updates_overwritten": metrics.overwritten,
        "steps": dict(metrics.steps),
        "utilization": {**metrics.utilization, "accelerator_driver": metrics.accelerator_driver},
        "cpu_of_machine": metrics.cpu_of_machine,
        "busy": {item.place: {**item.share, "busy": item.busy} for item in metrics.busy},
        "cpu_s": dict(metrics.cpu_s),
        "flops": dict(metrics.flops),
        "flops_of_peak": dict(metrics.flops_of_peak),
        "bytes": dict(metrics.bytes),
        "memory": dict(metrics.memory),
        "batch": dict(metrics.batch),
        "staleness": {kind: dataclasses.asdict(found) for kind, found in metrics.staleness.items()},
        "loss": [
            {
                "t_s": point.t_s, "epoch": point.epochs, "update": point.update, "train": point.train,
                "test": point.test, "train_score": point.train_score, "test_score": point.test_score,
            }
            for point in metrics.loss
        ],
        "time_to_loss_s": levels or None,
        "events": metrics.events,
        "faults": [dataclasses.asdict(fault) for fault in metrics.faults],
        "hetsgd": version("hetsgd"),
    }  # fmt: skip
    return dict(strict({**record, **spent_keys(metrics.spent)}))


def resolved_inputs(plan: Plan, *, engine: EngineName, learner: str, machine_set: Sequence[str] = ()) -> dict[str, Any]:
    """All that went into a run, and the versions that made it; `machine_set`: the `machine.KEY`s that were set."""
    return dict(
        strict(
            {
                "schema": RESOLVED_SCHEMA,
                "engine": engine,
                "learner": learner,
                "machine": described(plan.machine),
                "machine_set": list(machine_set),
                "workload": described(plan.workload),
                "policy": policy_of(plan),
                "run": described(plan.run),
                "versions": versions(),
            }
        )
    )


def versions() -> dict[str, str]:
    """Versions that a run may depend on: torch only where this process has loaded it."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in ("hetsgd", "numpy", "simpy", "torch"):
        if package == "torch" and "torch" not in sys.modules:
            continue
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def policy_of(plan: Plan) -> dict[str, Any]:
    """The policy of a plan: the name it was asked for under, its class and its parameters (`keys`)."""
    recipe = plan.recipe
    kind = type(recipe)
    keys: dict[str, Any] = described(recipe) if dataclasses.is_dataclass(recipe) else {}
    return {"name": plan.policy, "object": f"{kind.__module__}:{kind.__qualname__}", "keys": keys}


def _without_tables(machine: Machine) -> Machine:
    """The machine without its measured step times, which would be most of a record; `resolved.json` has them."""
    return dataclasses.replace(
        machine,
        sockets=tuple(dataclasses.replace(socket, calibration=None) for socket in machine.sockets),
        accelerators=tuple(dataclasses.replace(acc, calibration=None) for acc in machine.accelerators),
    )


def described(value: Any, *, leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of a value as plain JSON values; a value inside that is no dataclass or number becomes its text."""
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {name: strict(item) for name, item in fields.items() if name not in leave_out}


def strict(value: Any) -> Any:
    """The value in JSON's own types: tuples as lists, keys as texts, numbers that are not finite as None.

    >>> strict({"a": (1, float("nan")), 0.5: "x"})
    {'a': [1, None], '0.5': 'x'}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [strict(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return described(value)
    return strict(value.item()) if hasattr(value, "item") else str(value)


def _whole(count: float) -> float | int:
    return int(count) if float(count).is_integer() else count


# -- on disk -----------------------------------------------------------------------------------------------------


def check_folder(folder: str | Path) -> Path:
    """Make the folder, or make sure that it can be written: before a run, not after it. OutputError if it cannot."""
    path = Path(folder)
    with_fix = "name another one with --out"
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except FileExistsError as error:
        raise OutputError(f"{path}: must be a folder, it is a file; {with_fix}") from error
    except OSError as error:
        raise OutputError(f"{path}: must be a folder that can be written: {error.strerror}; {with_fix}") from error


def write_run(
    folder: str | Path, *, record: Mapping[str, Any], resolved: Mapping[str, Any], trace: Trace,
    extra: Callable[[Path], None] | None = None,
) -> Path:  # fmt: skip
    """Write `run.json`, `resolved.json` and `trace/` into a folder; other files in it stay.

    Everything is written beside first and moved in at the end, `run.json` last: a folder with a `run.json` is a
    whole run. `extra` writes more files into the folder it is given (such as a trained model). OutputError where
    the folder cannot be written. What an older run left there and this one does not have (a model) is removed.
    """
    from hetsgd.studies.trace_store import write_trace

    path = check_folder(folder)
    part: Path | None = None
    try:
        part = Path(tempfile.mkdtemp(dir=path, prefix=".part-"))
        (part / "trace").mkdir()
        write_trace(trace, part / "trace")
        _write_json(part / "resolved.json", resolved)
        if extra is not None:
            extra(part)
        _write_json(part / "run.json", record)
        _move_in(part, path)
    except OSError as error:
        raise OutputError(unwritten(error, part, path)) from error
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)
        with suppress(OSError):
            path.rmdir()  # nothing came to be in it
    return path


def read_run(folder: str | Path) -> StoredRun:
    """The run in a folder; OutputError where there is none or its files are damaged."""
    from hetsgd.studies.record_file import record_problem, resolved_problem

    if not isinstance(folder, str | Path):
        raise OutputError(f"folder: must be a path, got {shown_value(folder)}")
    path = Path(folder)
    record = _read_json(path / "run.json", RUN_SCHEMA)
    resolved = _read_json(path / "resolved.json", RESOLVED_SCHEMA)
    problem = record_problem(record, f"{path / 'run.json'}") or resolved_problem(resolved, f"{path / 'resolved.json'}")
    if problem:
        raise OutputError(problem)
    return StoredRun(folder=path, record=record, resolved=resolved)


def to_json(value: Mapping[str, Any]) -> str:
    """The text of an object, as `--json` prints it and files hold it: strict, indented, ending without a newline."""
    return json.dumps(strict(value), indent=2, allow_nan=False, ensure_ascii=False)


def unwritten(error: OSError, part: Path | None, path: Path) -> str:
    """What could not be written, by the name that it would have had, and why."""
    file = path
    if part is not None and isinstance(error.filename, str) and Path(error.filename).is_relative_to(part):
        file = path / Path(error.filename).relative_to(part)
    reason = os.strerror(error.errno) if error.errno else str(error)
    return f"{file}: cannot be written: {reason}; free space or name another folder with --out"


def _move_in(part: Path, path: Path) -> None:
    """Move what was written into its place; the old `run.json` goes first, the new one comes last."""
    (path / "run.json").unlink(missing_ok=True)
    if not (part / MODEL).exists():
        (path / MODEL).unlink(missing_ok=True)
    for item in sorted(part.iterdir(), key=lambda item: item.name == "run.json"):
        target = path / item.name
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        item.replace(target)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(to_json(value) + "\n", encoding="utf-8")


def _read_json(path: Path, schema: str) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise OutputError(f"{path}: no such file; a run's folder is what simulate or train wrote with --out") from error
    except OSError as error:
        raise OutputError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise OutputError(f"{path}: must be JSON: {error}") from error
    if not isinstance(value, dict):
        raise OutputError(f"{path}: must hold one object, got {type(value).__name__}")
    if value.get("schema") != schema:
        raise OutputError(f"{path}: schema must be {schema}, got {shown_value(value.get('schema'))}")
    return value
