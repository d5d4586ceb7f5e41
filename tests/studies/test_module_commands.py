"""A module of one's own as `--workload package.module:object`: simulated, trained, saved and refused in words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
import torch
import hetsgd as h
torch.manual_seed(0)
x = torch.randn(200, 1, 8, 8)
y = (x[:, 0, :4].sum((1, 2)) > 0).long()
net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 2))
loaded = h.module_workload(net, torch.nn.CrossEntropyLoss(), (x, y), name="mine", test_fraction=0.2)
"""
PROGRAM = "from hetsgd.studies.main import main; main()"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("modules")
    (made / "own_module.py").write_text(MODULE, encoding="utf-8")
    return made


def hetsgd(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", PROGRAM, *words, "--workload", "own_module:loaded"]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_a_module_is_trained_and_saved(folder: Path) -> None:
    done = hetsgd(
        folder, "train", "--policy", "hogwild", "--cpu-lanes", "1", "--accelerators", "none", "--epochs", "1", "--out",
        "o",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "mine (Sequential with CrossEntropyLoss, 330 parameters, float32, 160 rows of mine)" in done.stdout
    record = json.loads((folder / "o" / "run.json").read_text())
    assert [operator["name"] for operator in record["workload"]["traced"]] == ["1 convolution", "2 addmm"]
    assert record["updates"]["cpu"] == 160
    assert (folder / "o" / "model.pt").is_file()


def test_a_module_has_no_surrogate(folder: Path) -> None:
    done = hetsgd(folder, "simulate", "--policy", "hogwild", "--learner", "surrogate", "--epochs", "1")
    assert done.returncode == 2
    assert "mine is a traced module, which surrogates do not model; use --learner replay" in done.stderr


def test_its_timing_can_be_explained(folder: Path) -> None:
    done = hetsgd(folder, "simulate", "--policy", "hogwild", "--learner", "none", "--epochs", "1", "--explain")
    assert done.returncode == 0, done.stderr
    assert "1 convolution forward" in done.stdout
