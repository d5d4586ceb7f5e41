"""Same inputs and seed, same bytes: whole runs through the command line, in processes that differ where they may."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

ENVIRONMENTS = ({"PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1"}, {"PYTHONHASHSEED": "2", "OMP_NUM_THREADS": "2"})
WALL_CLOCK = ("wall_s",)


def simulated(folder: Path, environment: dict[str, str], *options: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The run's record without the wall clock, and a digest of each file of its trace."""
    command = [sys.executable, "-c", "from hetsgd.studies.main import main; main()", "simulate", "--out", str(folder)]
    subprocess.run([*command, *options], env={**os.environ, **environment}, check=True, capture_output=True)
    record = json.loads((folder / "run.json").read_text())
    for name in WALL_CLOCK:
        del record[name]
    files = sorted((folder / "trace").iterdir())
    return record, {file.name: sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.mark.parametrize(
    ("learner", "policy"),
    [
        ("none", "adaptive-hogbatch"),
        ("replay", "hogbatch"),
        ("replay", "easgd"),
        pytest.param("replay", "backup-workers", marks=pytest.mark.slow),
    ],
)
def test_a_run_is_the_same_bytes_in_any_process(tmp_path: Path, learner: str, policy: str) -> None:
    options = ("--machine", "aws-p3.16xlarge", "--policy", policy, "--learner", learner, "--updates", "60")
    noise = (
        "--set",
        "machine.cpu_lanes=4",
        "--set",
        "workload.hidden=16",
        "--set",
        "machine.cpu_sigma=0.1",
        "--set",
        "machine.accelerator_sigma=0.1",
        "--seed",
        "5",
    )
    first, second = (
        simulated(tmp_path / str(number), environment, *options, *noise)
        for number, environment in enumerate(ENVIRONMENTS)
    )
    assert first[0]["updates"]["cpu"] > 0
    assert len(first[1]) >= 5
    assert first == second
