"""`hetsgd trace`: a stored trace for a timeline viewer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsgd.models.words import counted
from hetsgd.studies.commands.options import help_of, path_of


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("trace", help=help_of(command))(command)


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", parser=path_of, help="Folder of a run (simulate or train with --out).")
    ],
    perfetto: Annotated[
        Path,
        typer.Option("--perfetto", metavar="FILE", parser=path_of, help="Write a timeline that ui.perfetto.dev opens."),
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace FILE where it exists.")] = False,
) -> None:
    """Write the trace of a run as a timeline: who computed, copied, merged and waited when.

    Example:

    \b
      hetsgd trace out/first --perfetto first.json
    """
    from hetsgd.studies.failure import checking
    from hetsgd.studies.perfetto import check_target, write_perfetto
    from hetsgd.studies.record import read_run
    from hetsgd.studies.screen import showing

    check_target(perfetto, force=force)
    with checking():
        trace = read_run(folder).trace
    count = write_perfetto(trace, perfetto)
    with showing(kept=True):
        print(f"{counted(count, 'event')} in {perfetto}; open it at ui.perfetto.dev")
