"""Predicted against measured as a table for a person."""

from __future__ import annotations

import sys
from typing import Final

from hetsgd.studies.tables import validation_table
from hetsgd.studies.validation import Validation

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
