"""Modules of a user's own: what they print, what they raise, and what they hand over in place of a workload."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BIN = str(Path(sys.executable).with_name("hetsgd"))
RUN = ("simulate", "--machine", "ucmerced-k80", "--learner", "none", "--epochs", "1", "--json")

MINE = """
import os
from dataclasses import dataclass
from hetsgd.models.policies.minibatch import Minibatch

print("imported")
os.system("echo from a child process")

class Schedule:
    def __init__(self, inner):
        self.inner, self.asked = inner, 0
    def next(self, view, worker):
        self.asked += 1
        if WHERE == "next" and self.asked == 3:
            raise LookupError("no idea")
        print("asked")
        return self.inner.next(view, worker)
    def on_result(self, view, result):
        return self.inner.on_result(view, result)

@dataclass(frozen=True, slots=True, kw_only=True)
class Mine(Minibatch):
    def begin(self, fleet):
        print("begun")
        if WHERE == "begin":
            return int("x")
        return Schedule(Minibatch.begin(self, fleet))
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BIN, *words], capture_output=True, text=True, timeout=60, check=False, cwd=folder)


def policy(folder: Path, where: str) -> subprocess.CompletedProcess[str]:
    (folder / "mine.py").write_text(f"WHERE = {where!r}\n{MINE}")
    return run(folder, *RUN, "--policy", "mine:Mine")


def test_what_a_policy_prints_is_no_result(tmp_path: Path) -> None:
    child = policy(tmp_path, "")
    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout)["policy"]["name"] == "mine:Mine"
    for word in ("imported", "from a child process", "begun", "asked"):
        assert word in child.stderr


@pytest.mark.parametrize(
    ("where", "error", "source"),
    [
        ("begin", "ValueError: invalid literal", 'return int("x")'),
        ("next", "LookupError: no idea", "raise LookupError"),
    ],
)
def test_a_policy_that_raises_is_named_with_its_own_line(where: str, error: str, source: str, tmp_path: Path) -> None:
    child = policy(tmp_path, where)
    assert (child.returncode, child.stdout) == (3, ""), child.stderr
    lines = (tmp_path / "mine.py").read_text().splitlines()
    line = next(number for number, text in enumerate(lines, start=1) if source in text)
    assert f"policy mine:Mine: {where} raised at line {line} of mine.py: {error}" in child.stderr
    assert "Traceback" not in child.stderr


@pytest.mark.parametrize("name", ["net:Net", "net:net"])
def test_a_network_is_no_workload(name: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x\nnet = Net()\n"
    )
    child = run(tmp_path, *RUN, "--workload", name)
    assert (child.returncode, child.stdout) == (2, ""), child.stderr
    assert f"workload {name!r}: must be a Workload or LoadedWorkload, got {'type' if 'Net' in name else 'Net'}" in (
        child.stderr
    )


def test_an_interrupt_during_an_import_ends_with_130(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import os, signal, time\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(30)\n"
        "except BaseException as error:\n    raise RuntimeError('made into something else') from error\n"
    )
    child = run(tmp_path, *RUN, "--policy", "slow:Policy")
    assert (child.returncode, child.stdout) == (130, ""), child.stderr
    (tmp_path / "slow.py").write_text("raise KeyboardInterrupt\n")
    assert run(tmp_path, *RUN, "--policy", "slow:Policy").returncode == 130
