"""`hetsgd calibrate`: measure this machine, or check how well a calibrated machine file predicts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsgd.studies.commands.options import JsonOption, help_of
from hetsgd.studies.failure import BadInput
from hetsgd.studies.failure import Interrupted as Ended
from hetsgd.studies.screen import showing


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("calibrate", help=help_of(command))(command)


def command(
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The machine file to write; it ends with .toml.")
    ] = None,
    minutes: Annotated[float, typer.Option("--minutes", metavar="M", help="How long to measure.")] = 3.0,
    workloads: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            metavar="W",
            help="A network that gets tables of its own, beside the usual ones; may be repeated.",
        ),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option("--check", metavar="FILE", help="Measure anew, and compare with what this machine file predicts."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Calibrate this machine: step times, memory, copies, messages and noise, and a model fitted to them.

    Needs no rights beyond the user's own. Interrupted, it goes on where it was with the same command. Leave the
    machine to itself meanwhile.

    Example:

    \b
      hetsgd calibrate --out machine.toml
      hetsgd calibrate --check machine.toml
      hetsgd simulate --machine machine.toml --policy hogbatch
    """
    from hetsgd.studies.calibration import Interrupted, calibrate_here, check_out, print_calibration
    from hetsgd.studies.calibration_check import check_here, print_check

    if (out is None) == (check is None):
        raise BadInput("calibrate: give --out FILE to calibrate, or --check FILE to check a calibrated machine")
    try:
        if out is not None:
            check_out(out)
            machine = calibrate_here(out, minutes, workloads or ())
            with showing(kept=True):
                print_calibration(machine, out, as_json=as_json)
        elif check is not None:
            found = check_here(check)
            with showing():
                print_check(found, as_json=as_json)
    except Interrupted as error:
        raise Ended(str(error)) from error
