"""The ten lines of the package's own documentation run, from a script without a guard."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import hetsgd


def test_the_example_of_the_package_runs_from_standard_input() -> None:
    text = hetsgd.__doc__ or ""
    example = textwrap.dedent(text.split("::\n", 1)[1].split(">>>", 1)[0])
    child = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-"], input=example, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    simulated, trained = map(float, child.stdout.split())
    # One worker has no race: both engines do the same arithmetic on the same rows.
    assert abs(simulated - trained) < 1e-4
    assert simulated < 0.6
