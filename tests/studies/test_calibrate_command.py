"""`hetsgd calibrate`: what it refuses, how it ends when interrupted, and what it prints."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hetsgd.models.calibration_scope import SHAPES, UNSEEN, Cell
from hetsgd.models.repeats import Central
from hetsgd.real.calibration_check import Checked
from hetsgd.studies.calibration_check import groups_of, print_check
from hetsgd.studies.failure import EXIT_BAD_INPUT, EXIT_INTERRUPTED

BIN = str(Path(sys.executable).with_name("hetsgd"))


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BIN, "calibrate", *words], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give --out FILE to calibrate, or --check FILE"),
        (("--out", "machine.json"), "--out: must be a file that ends with .toml, got 'machine.json'"),
        (("--out", "m.toml", "--minutes", "0"), "--minutes: must be 0.05 to 1440 minutes, got 0"),
        (("--out", "m.toml", "--workload", "nonesuch"), "--workload: workload 'nonesuch'"),
        (("--check", "aws-p3.16xlarge"), "machine aws-p3.16xlarge is not calibrated"),
    ],
)
def test_bad_input_is_refused_before_anything_is_measured(words: tuple[str, ...], message: str) -> None:
    child = run(*words)
    assert child.returncode == EXIT_BAD_INPUT
    assert message in child.stderr
    assert not Path("m.toml.partial").exists()


def test_ctrl_c_ends_with_130_and_keeps_what_was_measured(tmp_path: Path) -> None:
    out = tmp_path / "new" / "m.toml"
    partial = out.with_name("m.toml.partial")
    child = subprocess.Popen(
        [BIN, "calibrate", "--out", str(out), "--minutes", "1"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 30.0
    while time.monotonic() < until and not (partial.exists() and len(partial.read_text().splitlines()) > 8):
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    stdout, stderr = child.communicate(timeout=30.0)
    assert child.returncode == EXIT_INTERRUPTED, stderr
    assert stdout == ""
    assert "about 60 s" in stderr
    assert "they are kept in m.toml.partial" in stderr
    assert len(partial.read_text().splitlines()) > 8
    assert not out.exists()


def checked(shape_number: int, error: float, *, held_out: bool) -> Checked:
    shape = SHAPES[0] if held_out else UNSEEN[shape_number]
    cell = Cell(device="cpu0", lanes=2, shape=shape, batch=3, held_out=held_out)
    return Checked(cell=cell, predicted_s=1.0 + error, measured=Central(value=1.0, spread=0.02, count=5), slowdown=1.1)


def test_errors_are_told_by_kind_and_device_beside_the_spread_of_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        checked(0, 0.1, held_out=False), checked(0, -0.3, held_out=False), checked(1, 0.5, held_out=False),
        checked(0, 0.04, held_out=True),
    ]  # fmt: skip
    groups = {group.what: group for group in groups_of(found)}
    held, unseen = groups["other batch sizes"], groups[f"unseen {UNSEEN[0]}"]
    assert held.error == pytest.approx(0.04)
    assert (held.bar, unseen.bar, unseen.cells, unseen.spread) == (0.08, 0.2, 2, 0.02)
    assert unseen.error == pytest.approx(0.2)
    assert unseen.largest == pytest.approx(0.3)
    assert unseen.bias == pytest.approx(-0.1)
    print_check(found, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "hetsgd.calibration-check/1"
    assert [step["unseen"] for step in told["steps"]] == [True, True, True, False]
    print_check(found, as_json=False)
    table = capsys.readouterr().out
    assert "unseen 150-384-384-384-384-20 tanh softmax float32" in table
    assert "50.0 %" in table


def test_the_error_is_relative_to_what_was_measured() -> None:
    one = checked(0, 0.1, held_out=False)
    assert replace(one, predicted_s=0.5).error == pytest.approx(-0.5)
