"""Predicted against measured as a table for a person."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from hetsgd.studies.tables import validation_table
from hetsgd.studies.validation import Validation

if TYPE_CHECKING:
    from rich.table import Table

_WIDTH: Final = 140
_SPLIT_NOTE: Final = (
    "The error of time to loss in two parts, medians over the levels: timing is what the predicted order of events and "
    "its times make, statistics what is left when the recorded order of the real runs is replayed with exact "
    "arithmetic (torn reads, lost updates). Neither: both below 5 %."
)


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
        console.print()
        console.print(_split_table(validation))
        console.print(_SPLIT_NOTE, soft_wrap=True)


def _split_table(validation: Validation) -> Table:
    """Where the error of each policy comes from."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for number, heading in enumerate(("policy", "timing", "statistics", "what dominates")):
        table.add_column(heading, justify="right" if number in (1, 2) else "left", no_wrap=True)
    for split in validation.splits:
        table.add_row(
            split.label, f"{100 * split.timing:+z.0f} %", f"{100 * split.statistics:+z.0f} %", split.dominates
        )  # fmt: skip
    return table
