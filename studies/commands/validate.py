"""`hetsgd validate`: predicted against measured on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hetsgd.models.machine_names import LOCAL
from hetsgd.models.words import counted, few
from hetsgd.studies.commands.options import (
    EpochsOption,
    ForceOption,
    JsonOption,
    MachineOption,
    OutOption,
    SecondsOption,
    SetOption,
    UpdatesOption,
    WorkloadOption,
    help_of,
    settings_of,
    stop_of,
)
from hetsgd.studies.failure import BadInput, Interrupted, RunFailed, checking

if TYPE_CHECKING:
    from hetsgd.models.run import StopRule
    from hetsgd.studies.study import Study

_LOSSES: Final = 40
"""Losses of one run that ends after some seconds."""


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("validate", help=help_of(command))(command)


def command(
    machine: MachineOption = "local",
    workload: WorkloadOption = "quickstart",
    policies: Annotated[
        str, typer.Option("--policies", metavar="P1,P2,...", help="The policies, with commas between.")
    ] = "hogwild,minibatch,synchronous,hogbatch,adaptive-hogbatch",
    repeats: Annotated[int, typer.Option("--repeats", metavar="R", help="Real runs of each policy, at least 2.")] = 3,
    calibrate: Annotated[
        float | None,
        typer.Option(
            "--calibrate",
            metavar="MINUTES",
            help="How long machine local is calibrated before, default 0.4; 0: a look of half a second.",
        ),
    ] = None,
    settings: SetOption = None,
    seconds: SecondsOption = None,
    epochs: EpochsOption = None,
    updates: UpdatesOption = None,
    out: OutOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run policies in the simulator and for real, and tabulate predicted against measured.

    MACHINE describes this machine: local is calibrated first, a file of hetsgd calibrate knows it better. Repeat r has
    seed r in both engines; real runs are interleaved. Without a stop rule each run ends after 5 seconds.

    Takes 24 s to calibrate, then the real runs (policies x repeats x seconds, and a few seconds each to start), and
    about as long again to compute the same runs in virtual time: two minutes for the example on two cores.

    Example:

    \b
      hetsgd validate --policies hogwild,hogbatch --repeats 3 --seconds 3
    """
    from hetsgd.studies.commands.one_study import draw_report, run_study, store_study
    from hetsgd.studies.record import to_json
    from hetsgd.studies.resolve import DEFAULT_STOP
    from hetsgd.studies.runner import Runner, check_workers
    from hetsgd.studies.screen import showing
    from hetsgd.studies.study_folder import write_study
    from hetsgd.studies.validation_table import print_validation

    stop = stop_of(seconds, epochs, updates, None) or DEFAULT_STOP
    minutes = _minutes(calibrate, machine)
    study = _study(machine, workload, policies, repeats, _with_losses(settings_of(settings), stop), stop, minutes)
    with _folder(out, study, force) as folder:
        runner = Runner(folder=folder, learner="replay", workers=check_workers(None))
        result = run_study(study, runner)
        if not result.validations:
            raise RunFailed(few(result.failures) or "no run came to an end")
        validation = result.validations[0]

        def write(part: Path) -> None:
            write_study(part, result, "")
            (part / "validation.json").write_text(to_json(validation.as_json()) + "\n", encoding="utf-8")

        fault = None if out is None else store_study(folder, runner, write)
        with showing(kept=out is not None):
            if as_json:
                print(to_json(validation.as_json()))
            else:
                print_validation(validation)
        if out is not None:
            fault = fault or draw_report(folder, result)
        if fault is not None:
            raise fault
    if result.failures:
        raise RunFailed(f"{counted(len(result.failures), 'run')} failed: {few(result.failures)}")


def _minutes(calibrate: float | None, machine: str) -> float:
    """How long to calibrate; a machine file says all there is to know."""
    if machine != LOCAL:
        if calibrate:
            raise BadInput(f"--calibrate: is for machine {LOCAL}, got --machine {machine}")
        return 0.0
    from hetsgd.models.calibration_scope import LEAST_MINUTES, MOST_MINUTES
    from hetsgd.studies.study import CALIBRATE_MINUTES

    if calibrate is None:
        return CALIBRATE_MINUTES
    if calibrate and not LEAST_MINUTES <= calibrate <= MOST_MINUTES:
        raise BadInput(f"--calibrate: must be 0 or {LEAST_MINUTES} to {MOST_MINUTES} minutes, got {calibrate:g}")
    return calibrate


def _with_losses(settings: tuple[tuple[str, str], ...], stop: StopRule) -> tuple[tuple[str, str], ...]:
    """Losses read often enough to time, from snapshots that do not disturb, unless the settings say otherwise."""
    if stop.seconds is None or any(key.startswith("run.evaluat") for key, _ in settings):
        return settings
    every_s = f"{stop.seconds / _LOSSES:g}"
    return (*settings, ("run.evaluation", "deferred"), ("run.evaluate_every_s", every_s))


def _study(
    machine: str, workload: str, policies: str, repeats: int, settings: tuple[tuple[str, str], ...], stop: StopRule,
    minutes: float,
) -> Study:  # fmt: skip
    from hetsgd.studies.study import Study, Validation, Variant

    names = [name.strip() for name in policies.split(",")]
    if not all(names):
        raise BadInput(f"--policies: must name policies with single commas between, got {policies!r}")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInput(f"--policies: each may be named once, got {', '.join(twice)} more than once")
    if repeats < 2:
        raise BadInput(f"--repeats: must be >= 2, or there is no spread to compare with, got {repeats}")
    with checking("--policies"):
        return Study(
            name="validation",
            question=f"Does the prediction hold on {machine}?",
            machines=(machine,),
            workloads=(workload,),
            variants=tuple(Variant(label=name, policy=name) for name in names),
            seeds=tuple(range(repeats)),
            stop=stop,
            settings=settings,
            validation=Validation(machine=machine, repeats=repeats),
            calibrate_minutes=minutes,
        )


@contextmanager
def _folder(out: Path | None, study: Study, force: bool) -> Iterator[Path]:
    """The folder of --out, or one that is gone afterwards."""
    if out is not None:
        from hetsgd.studies.commands.one_study import study_folder

        with study_folder(out, study, "validation", force=force) as folder:
            yield folder
        return
    from hetsgd.studies.scratch import scratch_folder

    with scratch_folder("validate") as folder:
        try:
            yield folder
        except KeyboardInterrupt:
            raise Interrupted("nothing is kept; with --out DIR what was done is, and goes on there") from None
