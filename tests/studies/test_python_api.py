"""The ten lines of the package's own documentation run, from a script without a guard."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import hetsgd

README = Path(__file__).parents[2] / "README.md"


def test_the_example_of_the_package_runs_from_standard_input() -> None:
    text = hetsgd.__doc__ or ""
    example = textwrap.dedent(text.split("::\n", 1)[1].split(">>>", 1)[0])
    simulated, trained = map(float, run(example).split())
    # One worker has no race: both engines do the same arithmetic on the same rows.
    assert abs(simulated - trained) < 1e-4
    assert simulated < 0.6


def test_the_example_of_the_readme_shows_both_engines_and_a_table() -> None:
    (example,) = re.findall(r"\n((?: {4}.*\n|\n)+)", README.read_text().split("From Python:")[1].split("##")[0])
    first, second, *table = run(textwrap.dedent(example)).splitlines()
    losses = [float(line.split()[1]) for line in (first, second)]
    assert abs(losses[0] - losses[1]) < 1e-4
    assert "worker" in table[0]


def run(example: str) -> str:
    """What a script from standard input prints."""
    child = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-"], input=example, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    return child.stdout
