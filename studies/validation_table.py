"""Predicted against measured as a table for a person."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from hetsgd.studies.tables import Table as Content
from hetsgd.studies.tables import split_table, validation_table
from hetsgd.studies.validation import Validation

if TYPE_CHECKING:
    from rich.table import Table

_WIDTH: Final = 140


def print_validation(validation: Validation) -> None:
    """Print the verdict and the table to stdout."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    content = validation_table(validation)
    console = Console(markup=False, highlight=False, emoji=False, width=None if sys.stdout.isatty() else _WIDTH)
    console.print(validation.verdict(), soft_wrap=True)
    console.print()
    table = Table(box=box.SIMPLE_HEAD)
    for number, heading in enumerate(content.headings):
        table.add_column(heading, justify="left" if number < 2 else "right", no_wrap=True)
    for number, row in enumerate(content.rows):
        if row[0] and number:
            table.add_section()
        table.add_row(*row)
    console.print(table)
    console.print(content.note, soft_wrap=True)
    if validation.splits:
        split = split_table(validation)
        console.print()
        console.print(_of_splits(split))
        console.print(split.note, soft_wrap=True)


def _of_splits(content: Content) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for number, heading in enumerate(content.headings):
        table.add_column(heading, justify="right" if number in (1, 2) else "left", no_wrap=True)
    for row in content.rows:
        table.add_row(*row)
    return table
