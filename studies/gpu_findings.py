"""What a check of an accelerator found: one table for a person, one file for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

Status = Literal["ok", "short", "wrong", "skipped"]

SCHEMA: Final = "hetsgd.gpu-check/1"
FILE: Final = "gpu_check.json"
_WIDTH: Final = 140


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line. `short`: right, but below the figure that is `wanted`; `wrong`: a fault of the executor.

    `value` is the number behind the words of `found`, where there is one.
    """

    part: str
    what: str
    found: str
    status: Status
    wanted: str = ""
    value: float | None = None


def verdict(findings: Sequence[Finding]) -> str:
    """In one sentence, what all of them come to.

    >>> verdict([Finding(part="merges", what="in_place", found="0", status="ok")])
    '1 of 1 checks passed.'
    """

    def count(status: Status) -> int:
        return sum(finding.status == status for finding in findings)

    judged = len(findings) - count("skipped")
    text = f"{count('ok')} of {judged} checks passed"
    text += f", {count('wrong')} failed" if count("wrong") else ""
    text += f", {count('short')} below the figure wanted" if count("short") else ""
    return text + (f"; {count('skipped')} not judged here." if count("skipped") else ".")


def write_findings(folder: Path, device: str, findings: Sequence[Finding]) -> None:
    """Write the `hetsgd.gpu-check/1` object."""
    from hetsgd import __version__
    from hetsgd.studies.record import to_json

    content = {
        "schema": SCHEMA,
        "hetsgd": __version__,
        "device": device,
        "verdict": verdict(findings),
        "findings": [asdict(finding) for finding in findings],
    }
    (folder / FILE).write_text(to_json(content) + "\n", encoding="utf-8")


def print_findings(device: str, findings: Sequence[Finding]) -> None:
    """Print the table to stdout, the verdict last."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, highlight=False, emoji=False, width=None if sys.stdout.isatty() else _WIDTH)
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("part", "what", "found", "wanted", "status"):
        table.add_column(heading)
    part = ""
    for finding in findings:
        table.add_row(
            "" if finding.part == part else finding.part, finding.what, finding.found, finding.wanted, finding.status
        )  # fmt: skip
        part = finding.part
    console.print(device, soft_wrap=True)
    console.print(table)
    console.print(verdict(findings), soft_wrap=True)
