"""`hetsgd compare`: two folders side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsgd.studies.commands.options import JsonOption


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("compare")(command)


def command(
    a: Annotated[Path, typer.Argument(metavar="DIR_A", help="Folder of a run or of a study.")],
    b: Annotated[Path, typer.Argument(metavar="DIR_B", help="Another one of the same kind.")],
    as_json: JsonOption = False,
) -> None:
    """Compare two runs or two studies: first where their inputs differ, then the results.

    Example:

    \b
      hetsgd compare out/hogwild out/hogbatch
    """
    from hetsgd.studies.comparison import compare_folders, print_comparison
    from hetsgd.studies.record import to_json

    found = compare_folders(a, b)
    if as_json:
        print(to_json(found.as_json()))
    else:
        print_comparison(found, str(a), str(b))
