"""Start-up of the command line against the bare import of what it is made of."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.pairs import Comparison, Group, Rate

_COMMAND = "from hetsgd.studies.main import main; main()"


def _starts(*arguments: str) -> Rate:
    def measure() -> float:
        start_s = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        return 1.0 / (time.perf_counter() - start_s)

    return measure


def _group(name: str, *arguments: str) -> Group:
    return Group(
        name=f"start-up: {name}",
        ours=_starts("-c", _COMMAND, *arguments),
        references={"import typer, pydantic": _starts("-c", "import typer, pydantic")},
        comparisons=(
            Comparison(name=f"starts of {name}", unit="starts/s", reference="import typer, pydantic", floor=1 / 3),
        ),
        rounds=9,
    )


GROUPS = (
    _group("hetsgd --help", "--help"),
    _group("hetsgd list policies", "list", "policies"),
)
