"""Scripts that train: from anywhere, interrupted, killed. Nothing is left behind, and what was measured is kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.usefixtures("watchdog")

SHARED = Path("/dev/shm")

SCRIPT = """
import sys
import numpy as np
from hetsgd.models.data.dataset import Dataset
from hetsgd.models.machine import Machine, Socket, Accelerator, Link
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.workload import Workload
from hetsgd.models.invariants import check
from hetsgd.real import train

print("main", flush=True)
rng = np.random.default_rng(0)
x = rng.normal(size=(400, 6)).astype("f4")
y = (x[:, 0] > 0).astype("i8")
data = Dataset(name="d", train_x=x[:360], train_y=y[:360], test_x=x[360:], test_y=y[360:], classes=2,
               multilabel=False, source="made")
socket = Socket(name="s", cores=4, threads_per_core=1, core_flops_float32=1e11, core_flops_float64=1e11,
                half_batch=8.0, core_bandwidth_bytes_per_s=1e10, dram_bandwidth_bytes_per_s=1e10,
                dram_bytes=1 << 34, l2_bytes=1 << 20, l3_bytes=1 << 24)
acc = Accelerator(name="acc0", device="cpu", flops_float32=1e11, flops_float64=1e11, half_batch=8.0,
                  memory_bandwidth_bytes_per_s=1e10, memory_bytes=1 << 34, l2_bytes=1 << 20, launch_s=1e-6,
                  kernels_per_layer=8.0)
link = Link(name="l", ends=("s", "acc0"), latency_s=1e-6, pinned_bytes_per_s=1e10, pageable_bytes_per_s=1e10)
machine = Machine(name="m", description="", sockets=(socket,), accelerators=(acc,), links=(link,), cpu_lanes=1,
                  message_s=0.0, decision_s=0.0)
load = Workload(name="w", dataset="d", rows=360, test_rows=40, features=6, outputs=2, hidden=(8,))
stop = StopRule(seconds=SECONDS)
plan = Plan(machine=machine, workload=load, policy="hogbatch", recipe=recipe("hogbatch", accelerator_batch=16),
            run=RunSettings(stop=stop, evaluation=EVALUATION))
told = []
def sink(progress):
    if not told:
        told.append(progress)
        print("running", flush=True)
trained = train(plan, data, progress=sink)
trace = trained.trace
print("status", trace.status, "losses", len(trace["evaluations"]), "updates", len(trace["updates"]),
      "wrong", check(trace), flush=True)
"""


def script(seconds: float, evaluation: str = "blocking") -> str:
    return SCRIPT.replace("SECONDS", str(seconds)).replace("EVALUATION", repr(evaluation))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No process and no named shared memory may outlive a test."""
    shared = set(os.listdir(SHARED)) if SHARED.is_dir() else set()
    yield
    until = time.monotonic() + 5.0
    while any(_ours()) and time.monotonic() < until:
        time.sleep(0.05)
    assert _ours() == []
    assert _unowned() <= shared


def _unowned() -> set[str]:
    """Names in shared memory that no living process has mapped: other programs of this machine use it too."""
    found = set(os.listdir(SHARED)) if SHARED.is_dir() else set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            maps = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8")
            found = {name for name in found if f"{SHARED}/{name}" not in maps}
    return found


def _ours() -> list[str]:
    """Processes started by a script of this module: they carry its mark in their environment."""
    found = []
    for process in psutil.process_iter(["pid", "name", "status"]):
        try:
            if process.info["status"] != psutil.STATUS_ZOMBIE and process.environ().get("HETSGD_TEST_MARK") == MARK:
                found.append(process.info["name"])
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
    return found


MARK = f"engine-{os.getpid()}"


def start(arguments: list[str], text: str | None = None) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HETSGD_TEST_MARK": MARK},
        start_new_session=True,
    )
    if text is not None and process.stdin is not None:
        process.stdin.write(text)
        process.stdin.close()
        process.stdin = None
    return process


def wait_until_running(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "main\n"
    assert process.stdout.readline() == "running\n"


@pytest.mark.parametrize("way", ["unguarded script", "python -", "python -c"])
def test_training_works_from_anywhere(tmp_path: Path, way: str) -> None:
    """`main` is printed once: children never import the caller's `__main__`."""
    if way == "unguarded script":
        (tmp_path / "run.py").write_text(script(0.2))
        process = start([str(tmp_path / "run.py")])
    elif way == "python -":
        process = start(["-"], script(0.2))
    else:
        process = start(["-c", script(0.2)])
    out, errors = process.communicate(timeout=50)
    assert process.returncode == 0, errors
    assert errors == ""
    assert out.count("main") == 1
    assert "status done" in out
    assert "wrong []" in out


@pytest.mark.parametrize(
    ("numbers", "evaluation"),
    [
        ([signal.SIGINT], "blocking"),
        ([signal.SIGTERM], "blocking"),
        ([signal.SIGINT, signal.SIGINT, signal.SIGINT], "deferred"),
    ],
)
def test_an_interrupt_keeps_what_was_measured(numbers: list[signal.Signals], evaluation: str) -> None:
    """As a terminal does it, to the whole group; a second and third time too."""
    process = start(["-c", script(60.0, evaluation)])
    wait_until_running(process)
    begun = time.monotonic()
    for number in numbers:
        os.killpg(process.pid, number)
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert errors == ""
    assert "status interrupted" in out
    assert "wrong []" in out
    words = out.split()
    assert int(words[words.index("updates") + 1]) > 0
    assert int(words[words.index("losses") + 1]) >= 1
    assert time.monotonic() - begun < 20.0


def test_children_end_with_a_parent_that_is_killed() -> None:
    process = start(["-c", script(60.0)])
    wait_until_running(process)
    assert sorted(name for name in _ours() if name.startswith("hetsgd ")) == ["hetsgd acc0", "hetsgd cpu[0]"]
    process.kill()
    process.communicate(timeout=10)


def test_an_interrupt_before_the_clock_starts_ends_the_run() -> None:
    process = start(["-c", script(60.0)])
    assert process.stdout is not None
    assert process.stdout.readline() == "main\n"
    time.sleep(0.1)
    os.killpg(process.pid, signal.SIGTERM)
    out, errors = process.communicate(timeout=30)
    # Before train has taken over, SIGTERM ends the script; afterwards the run is reported as interrupted.
    assert process.returncode == -signal.SIGTERM or "status interrupted losses 0 updates 0" in out, (out, errors)
