"""`hetsgd trace`: a stored trace for a timeline viewer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("trace")(command)


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run (simulate or train with --out).")],
    perfetto: Annotated[
        Path, typer.Option("--perfetto", metavar="FILE", help="Write a timeline that ui.perfetto.dev opens.")
    ],
) -> None:
    """Write the trace of a run as a timeline: who computed, copied, merged and waited when.

    Example:

    \b
      hetsgd trace out/first --perfetto first.json
    """
    from hetsgd.studies.failure import checking
    from hetsgd.studies.perfetto import write_perfetto
    from hetsgd.studies.record import read_run

    with checking():
        trace = read_run(folder).trace()
    count = write_perfetto(trace, perfetto)
    print(f"{count:,} events in {perfetto}; open it at ui.perfetto.dev")
