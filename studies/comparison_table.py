"""A comparison as tables for a person, readable at 100 columns."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

from hetsgd.models.words import counted
from hetsgd.studies.comparison import Comparison, Difference
from hetsgd.studies.interval import number, percent, seconds, share

_WIDTH: Final = 100
# Words of a value that is a list or a text: more of it than this hides what differs.
_LONGEST: Final = 120
_SHARES: Final = ("update_share", "utilization")


def print_comparison(found: Comparison, a: str, b: str, *, everything: bool = False) -> None:
    """Print a comparison to stdout; `everything`: with the inputs that are the same and those measured anew."""
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False, width=None if sys.stdout.isatty() else _WIDTH)
    console.print(f"A: {a}\nB: {b}\n", soft_wrap=True, end="")
    inputs = found.inputs
    if inputs.chosen:
        _table(console, "Inputs that differ", inputs.chosen)
    else:
        console.print("Inputs: the same.")
    if everything and inputs.measured:
        _table(console, "Measured anew on the same machine", inputs.measured, change=True)
    elif inputs.measured:
        console.print(_measured_anew(inputs.measured), soft_wrap=True)
    if everything and inputs.same:
        _table(console, "Inputs that are the same", inputs.same)
    if found.metrics:
        _table(console, "Results", found.metrics, change=True)


def _measured_anew(measured: Sequence[Difference]) -> str:
    largest = max((abs(item.change) for item in measured if item.change is not None), default=0.0)
    figures = counted(len(measured), "figure")
    return f"Of the machine at hand {figures} measured anew, up to {percent(largest)} apart (--all shows them)."


def _table(console: Any, title: str, rows: Sequence[Difference], *, change: bool = False) -> None:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("", "A", "B"):
        table.add_column(heading, overflow="fold")
    if change:
        table.add_column("change", justify="right", no_wrap=True)
    for row in rows:
        cells = [row.name, _cell(row.name, row.a), _cell(row.name, row.b)]
        if change:
            cells.append(_change(row))
        table.add_row(*cells)
    console.print(table)


def _change(row: Difference) -> str:
    """How B differs from A: shares in points, what at least doubles or halves as a factor, the rest in per cent."""
    if row.name.startswith(_SHARES) and isinstance(row.a, float | int) and isinstance(row.b, float | int):
        return f"{100 * (row.b - row.a):+z.1f} points"
    if row.change is None:
        return ""
    factor = 1.0 + row.change
    if 0.0 < factor <= 0.5 or factor >= 2.0:
        return f"x {number(factor)}"
    return f"{100 * row.change:+z.1f} %"


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float | int) and not isinstance(value, bool):
        if name.split(" ")[0].split(".")[0].endswith("_s") and "per_s" not in name:
            return seconds(float(value))
        if name.startswith(_SHARES):
            return share(float(value))
        return f"{value:,}" if isinstance(value, int) else number(value)
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
