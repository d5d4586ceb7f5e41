"""`hetsgd calibrate` behind its command line: measure this machine, write its file, say how well it fits."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hetsgd.models.words import counted
from hetsgd.studies.disturbance import disturbed_words
from hetsgd.studies.failure import BadInput, RunFailed, checking
from hetsgd.studies.interval import percent, seconds, share
from hetsgd.studies.record import described, to_json
from hetsgd.studies.screen import Meter, say

if TYPE_CHECKING:
    from hetsgd.models.calibration_scope import Scope
    from hetsgd.models.machine import Machine
    from hetsgd.models.sample_store import SampleStore
    from hetsgd.models.step_fit import StepFit
    from hetsgd.models.step_table import Shape

PARTIAL: Final = ".partial"
_PACKAGES: Final = ("hetsgd", "numpy", "scipy", "torch")


class Interrupted(Exception):
    """A calibration was interrupted; what was measured is on disk."""


def calibrate_here(out: Path, minutes: float, workloads: Sequence[str]) -> Machine:
    """Measure this machine for so many minutes and write its file; returns the machine as it was written.

    What was measured by an interrupted calibration of the same things counts. Raises BadInput, Interrupted, RunFailed.
    """
    from hetsgd.models.calibrated_machine import calibrated_machine, raw_samples

    scope = _scope(minutes, workloads)
    partial = out.with_name(f"{out.name}{PARTIAL}")
    with _store(partial, scope) as store:
        _measure(scope, store, out)
        say("calibrate: fitting")
        try:
            machine = calibrated_machine(scope, store, _record(scope, store), name=out.stem)
        except ValueError as error:
            raise RunFailed(str(error)) from error
        _write(out, machine, raw_samples(store))
    store.remove()
    return machine


def check_out(out: Path) -> None:
    """Refuse, before anything is measured, what cannot be written or would not be read as a machine."""
    if out.suffix != ".toml":
        raise BadInput(f"--out: must be a file that ends with .toml, got {str(out)!r}")
    with checking("--out"):
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.is_dir() or not os.access(out.parent, os.W_OK):
            raise BadInput(f"--out: must be a file that can be written, got {str(out)!r}")


def _scope(minutes: float, workloads: Sequence[str]) -> Scope:
    from hetsgd.models.calibration_scope import scope_of
    from hetsgd.studies.resolve import machine_here

    shapes = [_shape(name) for name in workloads]
    with checking("--minutes"):
        return scope_of(machine_here(), minutes, shapes)


def _shape(name: str) -> Shape:
    from hetsgd.models.step_table import Shape
    from hetsgd.models.workload_file import load_workload

    with checking("--workload"):
        workload = load_workload(name, data=False).workload
    if workload.multiplies_sparse:
        raise BadInput(f"--workload: {name} leaves out the zeros of its rows; only dense features are calibrated")
    return Shape.of(workload)


def dense_of(workloads: Sequence[str]) -> list[str]:
    """Those of the workloads that can have tables of their own: only dense features are calibrated."""
    from hetsgd.models.workload_file import load_workload

    with checking("--workload"):
        return [name for name in workloads if not load_workload(name, data=False).workload.multiplies_sparse]


def error_words(machine: Machine) -> list[str]:
    """How well a calibration knows this machine, in a line or two."""
    fits = [fit for _, fit in fits_of(machine)]
    held_out = [fit.held_out_error for fit in fits if fit.held_out_error is not None]
    if not held_out:
        return _disturbed(machine)
    spreads = [fit.spread for fit in fits if fit.spread is not None]
    repeats = f"repeats differ by {percent(max(spreads))}" if spreads else "nothing was measured twice"
    return [
        f"calibrate: steps at batch sizes that were held out are predicted within {percent(max(held_out))} on average "
        f"({repeats})",
        *_disturbed(machine),
    ]


def _disturbed(machine: Machine) -> list[str]:
    record = machine.calibrated
    words = disturbed_words(None if record is None else record.disturbed)
    return [f"calibrate: {words}; calibrate again when the machine is quiet"] if words else []


@contextmanager
def _store(path: Path, scope: Scope) -> Iterator[SampleStore]:
    """The measurements on disk, resumed where they are of the same things on the same machine."""
    from hetsgd.models.sample_store import SampleStore

    with checking("--out"):
        store = SampleStore(path, _identity(scope))
        store.__enter__()
    try:
        if store.set_aside:
            say(f"calibrate: {path.name} is of other hardware, versions or networks, and is begun anew")
        if store.resumed:
            say(f"calibrate: goes on after {counted(store.resumed, 'measurement')} in {seconds(store.elapsed_s)}")
        yield store
    finally:
        store.__exit__(None, None, None)


def _identity(scope: Scope) -> dict[str, Any]:
    """What must be the same for measurements to count together."""
    return {
        "host": _host(scope),
        "versions": dict(_versions()),
        "shapes": [str(shape) for shape in scope.shapes],
        "lanes": list(scope.lane_counts),
        "accelerators": [acc.name for acc in scope.machine.accelerators],
        "short": scope.short,
    }


def _host(scope: Scope) -> str:
    from hetsgd.models.machine_local import available_cores
    from hetsgd.real.host import describe_host

    devices = ", ".join(acc.device for acc in scope.machine.accelerators if not acc.stand_in)
    return describe_host(available_cores()) + (f", accelerators {devices}" if devices else ", no accelerator")


def _versions() -> list[tuple[str, str]]:
    import platform
    from importlib.metadata import version

    return [("python", platform.python_version()), *((package, version(package)) for package in _PACKAGES)]


def _measure(scope: Scope, store: SampleStore, out: Path) -> None:
    from hetsgd.real.calibrate import calibrate
    from hetsgd.real.interrupts import Interrupts
    from hetsgd.real.workforce import ChildLost
    from hetsgd.real.workforce import Interrupted as Stopped

    left_s = max(60.0 * scope.minutes, scope.least_s) - store.elapsed_s
    duration = f"for about {seconds(left_s)}" if left_s > 1.0 else "until all was measured once"
    say(
        f"calibrate: measures this machine {duration}: {_host(scope)}; leave it to itself meanwhile, it takes longer "
        f"on a busy machine. Ctrl-C keeps what was measured, and the same command goes on from there"
    )
    began_s = time.perf_counter()
    try:
        with Interrupts() as interrupts, Meter("calibrate", 1.0) as meter:
            calibrate(scope, store, interrupts, meter.at)
    except Stopped as error:
        name = f"{out.name}{PARTIAL}"
        raise Interrupted(f"{len(store.measured())} things were measured; they are kept in {name}") from error
    except (ChildLost, OSError) as error:
        raise RunFailed(f"calibrate: {error}") from error
    say(f"calibrate: measured for {seconds(time.perf_counter() - began_s)}")


def _record(scope: Scope, store: SampleStore) -> Any:
    from hetsgd.models.calibration import CalibrationRecord

    return CalibrationRecord(
        date=datetime.now(UTC).isoformat(timespec="seconds"), duration_s=store.elapsed_s, host=_host(scope),
        versions=tuple(_versions()), disturbed=0.0,
    )  # fmt: skip


def _write(out: Path, machine: Machine, raw: Any) -> None:
    from hetsgd.models.calibrated_machine import MEASURED
    from hetsgd.studies.machine_writer import machine_text

    date = machine.calibrated.date if machine.calibrated is not None else ""
    text = machine_text(machine, origin=f"{MEASURED}, {date}", raw=raw)
    part = out.with_name(f"{out.name}.new")
    with checking("--out"):
        part.write_text(text, encoding="utf-8")
        os.replace(part, out)


def print_calibration(machine: Machine, out: Path, *, as_json: bool) -> None:
    """What was found, to stdout: one JSON object, or tables."""
    for line in _disturbed(machine):
        say(line)
    if as_json:
        print(to_json(calibration_json(machine, out)))
        return
    socket = machine.sockets[0]
    rows = [
        ("file", str(out)),
        (
            "core",
            f"{socket.core_flops_float32 / 1e9:.0f} GFLOP/s float32, {socket.core_flops_float64 / 1e9:.0f} float64",
        ),
        (
            "memory",
            f"{socket.core_bandwidth_bytes_per_s / 1e9:.1f} GB/s by one lane, "
            f"{socket.dram_bandwidth_bytes_per_s / 1e9:.1f} by all",
        ),
        ("messages", f"{seconds(machine.message_s)} one way, {seconds(machine.decision_s)} a decision"),
        (
            "noise",
            f"{share(machine.noise.cpu_sigma)} on lanes, {share(machine.noise.accelerator_sigma)} on accelerators",
        ),
    ]
    rows += [
        (link.name, f"{link.pinned_bytes_per_s / 1e9:.1f} GB/s, {seconds(link.latency_s)}") for link in machine.links
    ]
    for name, what in rows:
        print(f"{name:<10}  {what}")
    print(f"\n{'device':<10}  {'precision':<9}  {'lanes':>5}  {'fit error':>9}  {'held out':>8}  {'repeats':>7}")
    for device, fit in fits_of(machine):
        print(
            f"{device:<10}  {fit.precision:<9}  {fit.lanes:>5}  {share(fit.fit_error):>9}  "
            f"{share(fit.held_out_error):>8}  {share(fit.spread):>7}"
        )
    print(
        "fit error: mean absolute error of the fitted model at what it was fitted to; held out: that of a prediction "
        "at batch sizes that were left out; repeats: spread of repeated measurements"
    )


def calibration_json(machine: Machine, out: Path) -> dict[str, Any]:
    """The `hetsgd.calibration/1` object: how it was calibrated, and the errors of each fit as shares."""
    record = machine.calibrated
    return {
        "schema": "hetsgd.calibration/1",
        "machine": str(out),
        "calibrated": None if record is None else described(record, leave_out=("raw",)),
        "message_s": machine.message_s,
        "decision_s": machine.decision_s,
        "noise": described(machine.noise),
        "fits": [{"device": device, **described(fit)} for device, fit in fits_of(machine)],
    }


def fits_of(machine: Machine) -> list[tuple[str, StepFit]]:
    """The fits of a machine with the names of their devices."""
    return [(name, fit) for name, calibration in machine.calibrations.items() for fit in calibration.fits]
