"""`hetsgd pilots`: fit the surrogates of a workload to pilot runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsgd.studies.commands.options import SetOption, WorkloadOption, help_of, settings_of
from hetsgd.studies.failure import BadInput, checking
from hetsgd.studies.screen import say


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("pilots", help=help_of(command))(command)


def command(
    workload: WorkloadOption = "quickstart",
    settings: SetOption = None,
    updates: Annotated[
        int,
        typer.Option("--updates", metavar="N", min=50, help="Length: batch 16 takes N updates, batch 1 twice that."),
    ] = 2000,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", min=1, help="Runs of each pilot.")] = 3,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The file to write; left out: the user's cache, where it is used."),
    ] = None,
) -> None:
    """Fit surrogates of a workload's training to short replays, for `simulate --learner surrogate`.

    Serial and asynchronous pilots at learning rates that the curvature of the network allows. Takes minutes for a
    small net. How far each surrogate is off on pilots it was not fitted to is printed, and kept in the file.

    Example:

    \b
      hetsgd pilots --workload quickstart --set workload.hidden=32
      hetsgd simulate --workload quickstart --set workload.hidden=32 \\
        --learner surrogate
    """
    from hetsgd.models.surrogates.calibration_file import own_path, save_calibration
    from hetsgd.studies.pilots import calibrate, print_calibration, run_pilots

    pairs = settings_of(settings)
    wrong = [key for key, _ in pairs if not key.startswith("workload.")]
    if wrong:
        raise BadInput(
            f"--set: {wrong[0]}: pilots choose machine, policy and run themselves; only workload.KEY is read"
        )
    runs = run_pilots(workload, updates=updates, seeds=seeds, say=say, settings=pairs)
    say("fitting")
    with checking("pilots"):
        found = calibrate(runs)
        path = out or own_path(runs.ready.plan.workload)
        save_calibration(path, found)
    print_calibration(found)
    say(f"saved as {path}")
