"""Modules of a user's own: what they print, what they raise, and what they hand over in place of a workload."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hetsgd.models.run import StopRule
from hetsgd.studies.execute import run_simulated
from hetsgd.studies.failure import BadInput, RunFailed
from hetsgd.studies.interrupts import Held
from hetsgd.studies.policy_file import load_policy
from hetsgd.studies.resolve import Ask, resolve

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
    # What is found before the run is bad input; in the middle of it, a run that failed.
    assert (child.returncode, child.stdout) == (2 if where == "begin" else 3, ""), child.stderr
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
    (tmp_path / "slow.py").write_text("raise KeyboardInterrupt\n")  # nobody has interrupted anything
    child = run(tmp_path, *RUN, "--policy", "slow:Policy")
    assert (child.returncode, child.stdout) == (2, ""), child.stderr
    assert "'slow:Policy': cannot be imported: it raised KeyboardInterrupt" in child.stderr


ANSWERS = """
from hetsgd.models.policy import Merge, PolicyError, Stop, Wait, Work

class Odd:
    kinds, lane_modes, max_lookahead, reads_losses = ("accelerator",), ("barrier",), 0, False
    def begin(self, fleet):
        return begin()
    def next(self, view, worker):
        return following()
    def on_result(self, view, result):
        return after(result)

odd = Odd()
good = Work(batch=512, rate=0.1, write="gradient")
begin, following, after = lambda: odd, lambda: good, lambda result: ()
def failing(error):
    def answer(*words):
        raise error
    return answer
"""


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("following = lambda: None", 3, "next must return Work or Wait, got None for gpu0"),
        ("following = lambda: Stop(reason='x')", 3, "next must return Work or Wait, got Stop(reason='x') for gpu0"),
        ("following = lambda: Work(batch=1.5, rate=0.1)", 3, "work: batch must be a whole number, got 1.5"),
        (
            "following = lambda: Work(batch=1, rate=0.1, steps=10**12)",
            3,
            "work: batch and steps must be at most 214748",
        ),
        ("following = lambda: Wait(reason='x', until_s='9')", 3, "wait: until_s must be a number of seconds or None"),
        ("following = lambda: Work(batch=1, rate=0.1, reason='\\ud800')", 3, "(no lone surrogates), got '\\ud800'"),
        ("following = failing(SystemExit(0))", 3, "next raised at line 18 of odd.py: SystemExit: 0"),
        ("following = failing(KeyboardInterrupt())", 3, "next raised at line 18 of odd.py: KeyboardInterrupt"),
        ("following = failing(GeneratorExit())", 3, "next raised at line 18 of odd.py: GeneratorExit"),
        ("following = failing(StopIteration())", 3, "next raised at line 18 of odd.py: StopIteration"),
        ("following = failing(ValueError('a\\nb'))", 3, "next raised at line 18 of odd.py: ValueError: a b"),
        ("after = lambda result: 3", 3, "must return a sequence of Merge, got 3"),
        ("after = lambda result: ['x']", 3, "must return a sequence of Merge, got one with 'x'"),
        ("Odd.on_result = lambda self: ()", 3, "on_result cannot be called: TypeError: "),
        ("begin = lambda: None", 2, "begin must return a schedule with the methods next and on_result, got None"),
        ("begin = failing(SystemExit(0))", 2, "begin raised at line 18 of odd.py: SystemExit: 0"),
        ("begin = failing(ValueError('boom'))", 2, "begin raised at line 18 of odd.py: ValueError: boom"),
        ("begin = failing(PolicyError('no'))", 2, "begin raised at line 18 of odd.py: no"),
        ("Odd.begin = lambda self: odd", 2, "begin cannot be called: TypeError: "),
        ("Odd.kinds = 'cpu'", 2, "kinds must be a tuple of one or both of 'cpu' and 'accelerator', got 'cpu'"),
        ("Odd.lane_modes = ()", 2, "lane_modes must be a tuple of one or both of 'barrier' and 'free', got ()"),
        ("Odd.max_lookahead = -1", 2, "max_lookahead must be a whole number >= 0, got -1"),
        ("Odd.__init__ = failing(SystemExit(3))", 2, "making one raised SystemExit: 3"),
        ("Odd.__init__ = failing(KeyboardInterrupt())", 2, "making one raised KeyboardInterrupt"),
    ],
)
def test_an_odd_policy_is_told_of_by_name_method_and_answer(
    line: str, code: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd.py").write_text(f"{ANSWERS}\n{line}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "odd", raising=False)
    stop = StopRule(updates=5)
    asked = Ask(machine="ucmerced-k80", workload="quickstart", policy="odd:Odd", learner="none", stop=stop)
    # With the program's own handlers of signals, which tell an interrupt from what code raises by itself.
    with Held(), pytest.raises(BadInput if code == 2 else RunFailed) as caught:
        run_simulated(resolve(asked))
    assert says in str(caught.value)
    assert "odd:Odd" in str(caught.value)
    assert "\n" not in str(caught.value)
    del sys.modules["odd"]


def test_a_policy_that_ends_the_program_has_failed(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(f"{ANSWERS}\nfollowing = failing(SystemExit(0))\n")
    child = run(tmp_path, *RUN, "--policy", "odd:Odd")
    assert (child.returncode, child.stdout) == (3, ""), child.stderr
    assert "the run failed: policy odd:Odd: next raised at line 18 of odd.py: SystemExit: 0\n" in child.stderr


TYPED = """
from dataclasses import dataclass
from hetsgd.models.policies.minibatch import Minibatch

@dataclass(frozen=True, slots=True, kw_only=True)
class Typed(Minibatch):
    count: int = 1
    names: tuple = ()
    free: str = ""
"""


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("count", "--set: policy.count must be a whole number, got 'x'"),
        ("names", "--set: policy.names is of type tuple, which text cannot give: make the recipe in Python"),
        ("free", ""),
    ],
)
def test_a_setting_has_the_type_of_its_field(
    key: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "typed", raising=False)
    if says:
        with pytest.raises(BadInput, match=re.escape(says)):
            load_policy("typed:Typed", {key: "x"})
    else:
        assert getattr(load_policy("typed:Typed", {key: "x"}), key) == "x"
    del sys.modules["typed"]
