"""`python -m benchmarks.run`: one table of ratios, and the same as JSON.

Every ratio is ours over a reference measured in the same minute, so that a slow or busy machine slows both. The
medians of two runs differ by several per cent all the same: `--against` calls slower only what lies outside the
spread of both.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.pairs import Group, Ratio, measure

MODULES: Final = ("simulator", "startup", "replay", "hogwild", "hybrid")
BASELINE: Final = Path(__file__).with_name("baseline.json")
_SLACK: Final = 0.95


def groups(only: list[str]) -> list[Group]:
    """The groups of these modules, in order."""
    return [group for name in only for group in import_module(f"benchmarks.{name}").GROUPS]


def table(ratios: list[Ratio]) -> Table:
    """The ratios as a table for a terminal."""
    shown = Table(title="ours / reference: median of rounds and range")
    for heading, justify in (("what", "left"), ("against", "left"), ("ours", "right"), ("reference", "right")):
        shown.add_column(heading, justify="right" if justify == "right" else "left")
    shown.add_column("ratio", justify="right")
    shown.add_column("floor / aim")
    shown.add_column("")
    for item in ratios:
        bounds = " / ".join("-" if bound is None else f"{bound:.2f}" for bound in (item.floor, item.aim))
        shown.add_row(
            item.name,
            item.reference,
            f"{item.ours_per_s:,.4g} {item.unit}",
            f"{item.reference_per_s:,.4g}",
            f"{item.ratio:.3f} [{item.low:.3f}, {item.high:.3f}]",
            bounds,
            item.verdict,
        )
    return shown


def slower(ratios: list[Ratio], baseline: dict[str, Any]) -> list[str]:
    """What has become slower than the baseline: the median is lower by 5 % and the spreads do not meet."""
    before = {(item["name"], item["reference"]): item for item in baseline["ratios"]}
    found = []
    for item in ratios:
        old = before.get((item.name, item.reference))
        if old is not None and item.ratio < _SLACK * old["ratio"] and item.high < old["low"]:
            found.append(
                f"{item.name} against {item.reference}: {item.ratio:.3f} [{item.low:.3f}, {item.high:.3f}], "
                f"was {old['ratio']:.3f} [{old['low']:.3f}, {old['high']:.3f}]"
            )
    return found


def report(ratios: list[Ratio]) -> dict[str, Any]:
    """The ratios as one JSON object."""
    return {
        "schema": "hetsgd.bench/1",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("hetsgd", "simpy", "numpy", "torch")},
        "ratios": [{**asdict(item), "verdict": item.verdict} for item in ratios],
    }


def main() -> int:
    """Run the benchmarks asked for; 1 when something is below its floor or slower than the baseline."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=MODULES, default=list(MODULES), help="which benchmarks to run")
    parser.add_argument("--rounds", type=int, help="rounds of each pair (default: as each benchmark says)")
    parser.add_argument("--json", type=Path, help="also write the ratios to this file")
    parser.add_argument("--save", action="store_true", help=f"store the ratios as the baseline ({BASELINE.name})")
    parser.add_argument("--against", action="store_true", help="say what is slower than the stored baseline")
    arguments = parser.parse_args()
    say = Console(stderr=True).print
    ratios: list[Ratio] = []
    for group in groups(arguments.only):
        ratios += measure(group, rounds=arguments.rounds, say=say)
    Console(width=None if sys.stdout.isatty() else 160).print(table(ratios))
    text = json.dumps(report(ratios), indent=1, allow_nan=False)
    for path in (arguments.json, BASELINE if arguments.save else None):
        if path is not None:
            path.write_text(text + "\n")
    failed = [item.name for item in ratios if item.verdict == "below floor"]
    if arguments.against:
        found = slower(ratios, json.loads(BASELINE.read_text()))
        print("\n".join(["slower than the baseline:", *found]) if found else "nothing is slower than the baseline")
        failed += found
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
