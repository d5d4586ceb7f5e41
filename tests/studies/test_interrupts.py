"""Signals: the first lets things end in order, the second ends them at once; nothing is left behind."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hetsgd.models.run import Progress
from hetsgd.real.interrupts import Interrupts
from hetsgd.studies.interrupts import Held, QuietInterrupts
from hetsgd.studies.scratch import scratch_folder

BIN = str(Path(sys.executable).with_name("hetsgd"))
NOTHING_YET = Progress(fraction=0.0, now_s=0.0, epoch=0, examples=0, updates=0, loss=None)


def send() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_waits_while_results_are_stored_and_a_second_does_not() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Held() as held:
        send()
        assert held.received == 1
        with pytest.raises(KeyboardInterrupt):
            send()
    with Held(after=1), pytest.raises(KeyboardInterrupt):
        send()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_hang_up_ends_a_run_as_a_signal_does_unless_it_is_ignored() -> None:
    with Held() as held:
        os.kill(os.getpid(), signal.SIGHUP)
    assert held.received == 1
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Held() as held, Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
        assert (held.received, interrupts.received) == (0, [])
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_training_in_a_terminal_that_is_closed_is_saved(tmp_path: Path) -> None:
    words = [BIN, "train", "--policy", "hogwild", "--cpu-lanes", "1", "--accelerators", "none", "--seconds", "60"]
    child, terminal = pty.fork()
    if child == 0:
        os.execv(BIN, [*words, "--out", str(tmp_path / "o")])
    shown = b""
    while b"hogwild" not in shown or b"epoch 0" not in shown:  # the bar moves
        shown += os.read(terminal, 4096)
        assert len(shown) < 200_000, shown
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    record = json.loads((tmp_path / "o" / "run.json").read_text())
    assert record["status"] == "interrupted"
    assert record["stop_reason"] == "interrupted by SIGHUP"


def test_a_simulated_run_hears_of_a_signal_between_two_events() -> None:
    with QuietInterrupts(None) as sink:
        send()
        with pytest.raises(KeyboardInterrupt):
            sink(NOTHING_YET)
        sink(NOTHING_YET)  # it was answered
        with pytest.raises(KeyboardInterrupt):
            send()


def test_a_scratch_folder_is_gone_and_so_are_those_of_killed_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetsgd.studies.scratch.tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr("hetsgd.studies.scratch.tempfile.tempdir", str(tmp_path))
    child = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    dead = tmp_path / f"hetsgd-validate-{int(child.stdout)}-abc"
    (dead / "runs").mkdir(parents=True)
    alive = tmp_path / f"hetsgd-validate-{os.getpid()}-abc"
    alive.mkdir()
    other = tmp_path / "hetsgd-validate-mine"
    other.mkdir()
    with scratch_folder("validate") as folder:
        assert folder.parent == tmp_path
        assert not dead.exists()
    assert not folder.exists()
    assert alive.exists()
    assert other.exists()


@pytest.mark.parametrize("second", [False, True])
def test_a_validation_without_a_folder_leaves_none_and_no_process(second: bool, tmp_path: Path) -> None:
    words = [BIN, "validate", "--policies", "hogwild", "--repeats", "2", "--seconds", "30", "--calibrate", "0"]
    child = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    deadline = time.monotonic() + 60.0
    while not list(tmp_path.glob("hetsgd-validate-*/machines/local.toml")) and time.monotonic() < deadline:
        time.sleep(0.02)
    children = psutil.Process(child.pid).children(recursive=True)
    child.send_signal(signal.SIGTERM)
    if second:
        child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (130, ""), err
    assert "Traceback" not in err
    assert not psutil.wait_procs(children, timeout=10)[1]
    if not second:
        assert not list(tmp_path.glob("hetsgd-*"))
        assert "hetsgd: interrupted; nothing is kept" in err
