"""`hetsgd compare`: two folders side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsgd.studies.commands.options import JsonOption, help_of, path_of


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("compare", help=help_of(command))(command)


def command(
    a: Annotated[Path, typer.Argument(metavar="DIR_A", parser=path_of, help="Folder of a run or of a study.")],
    b: Annotated[Path, typer.Argument(metavar="DIR_B", parser=path_of, help="Another one of the same kind.")],
    everything: Annotated[
        bool, typer.Option("--all", help="Also show inputs that are the same, and figures measured anew.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare two runs or two studies: first where their inputs differ, then the results.

    Example:

    \b
      hetsgd compare out/hogwild out/hogbatch
    """
    from hetsgd.studies.comparison import compare_folders
    from hetsgd.studies.comparison_table import print_comparison
    from hetsgd.studies.record import to_json
    from hetsgd.studies.screen import showing

    found = compare_folders(a, b)
    with showing():
        if as_json:
            print(to_json(found.as_json()))
        else:
            print_comparison(found, str(a), str(b), everything=everything)
