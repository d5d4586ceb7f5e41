"""`simulate`, `train` and `compare`: what they print, save and return, and how they end when interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from hetsgd.studies.record import read_run

BIN = str(Path(sys.executable).with_name("hetsgd"))
QUICK = ("--machine", "ucmerced-k80", "--policy", "minibatch", "--set", "policy.accelerator_batch=512")


def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command line in a process of its own."""
    return subprocess.run([BIN, *words], capture_output=True, text=True, timeout=120, check=False, cwd=cwd)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The JSON of a simulated epoch, and its folder."""
    out = tmp_path_factory.mktemp("runs") / "simulated"
    child = run("simulate", *QUICK, "--epochs", "1", "--seed", "3", "--loss-reference", "0.7,0.5", "--json",
                "--out", str(out))  # fmt: skip
    assert child.returncode == 0, child.stderr
    record: dict[str, Any] = json.loads(child.stdout)
    return record, out


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The JSON of a real epoch, and its folder."""
    out = tmp_path_factory.mktemp("runs") / "trained"
    child = run("train", "--policy", "minibatch", "--set", "policy.accelerator_batch=512", "--cpu-lanes", "1",
                "--accelerators", "cpu", "--epochs", "1", "--seed", "3", "--json", "--out", str(out))  # fmt: skip
    assert child.returncode == 0, child.stderr
    record: dict[str, Any] = json.loads(child.stdout)
    return record, out


def test_simulate_prints_one_object_and_saves_the_same(simulated: tuple[dict[str, Any], Path]) -> None:
    record, out = simulated
    assert (record["schema"], record["engine"], record["learner"]) == ("hetsgd.run/1", "sim", "replay")
    assert (record["seed"], record["status"]) == (3, "done")
    assert record["examples"] == record["workload"]["rows"] == 46481
    assert set(record["time_to_loss_s"]) == {"0.5", "0.8", "0.9", "0.95"}
    assert record["loss"][-1]["train"] < record["loss"][0]["train"]
    stored = read_run(out)
    assert stored.record == record
    assert stored.trace.elapsed_s == record["elapsed_s"]


def test_updates_beyond_the_limit_are_told_to_be_work_that_was_in_flight() -> None:
    result = run("simulate", "--machine", "aws-p3.16xlarge", "--learner", "none", "--updates", "1")
    assert result.returncode == 0, result.stderr
    updates = int(next(line for line in result.stdout.splitlines() if line.startswith("work  ")).split()[-2])
    assert updates > 2
    assert f"done (after 1 update; work in flight then counts, {updates - 1} more updates)" in result.stdout


def test_the_summary_is_a_table_of_plain_lines() -> None:
    child = run("simulate", *QUICK, "--learner", "none", "--epochs", "1")
    assert child.returncode == 0, child.stderr
    names = [line.split("  ")[0] for line in child.stdout.splitlines()]
    assert {"policy", "machine", "workload", "status", "time", "update share", "utilization"} <= set(names)
    assert "minibatch on ucmerced-k80" in child.stderr


def test_timing_only_loads_neither_torch_nor_the_plotting_libraries() -> None:
    script = (
        "import sys\nfrom hetsgd.studies.main import app\n"
        f"sys.argv = ['hetsgd', 'simulate', *{QUICK!r}, '--learner', 'none', '--epochs', '1']\n"
        "try:\n    app()\nexcept SystemExit:\n    pass\n"
        "print('LOADED', *sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)\n"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(child.stderr.split("LOADED", 1)[1].split())
    assert "simpy" in loaded
    assert not {"torch", "seaborn", "matplotlib", "pandas"} & loaded


def test_train_saves_a_model_that_torch_loads_as_plain_tensors(trained: tuple[dict[str, Any], Path]) -> None:
    record, out = trained
    assert (record["engine"], record["status"], record["examples"]) == ("real", "done", 46481)
    assert "stand-in" in record["device"]
    tensors = torch.load(out / "model.pt", weights_only=True)
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        "layers.0.weight": (64, 54), "layers.0.bias": (64,), "layers.1.weight": (64, 64), "layers.1.bias": (64,),
        "layers.2.weight": (2, 64), "layers.2.bias": (2,),
    }  # fmt: skip
    assert all(torch.isfinite(tensor).all() for tensor in tensors.values())


def test_compare_shows_inputs_that_differ_first_then_results(
    simulated: tuple[dict[str, Any], Path], trained: tuple[dict[str, Any], Path]
) -> None:
    a, b = str(simulated[1]), str(trained[1])
    text = run("compare", a, b)
    assert text.returncode == 0, text.stderr
    assert text.stdout.index("Inputs that differ") < text.stdout.index("Results")
    found = json.loads(run("compare", a, b, "--json").stdout)
    inputs = {item["name"]: (item["a"], item["b"]) for item in found["inputs"]}
    assert inputs["engine"] == ("sim", "real")
    assert inputs["machine.name"] == ("ucmerced-k80", "local")
    assert "run.seed" not in inputs
    results = {item["name"]: item for item in found["metrics"]}
    # One worker, one seed: the engines do the same arithmetic whatever their clocks say.
    assert abs(results["loss (last, train)"]["change"]) < 1e-3
    same = run("compare", a, a)
    assert "Inputs: the same." in same.stdout


def test_a_trace_becomes_a_timeline_with_a_track_for_every_place(
    simulated: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    record, out = simulated
    child = run("trace", str(out), "--perfetto", str(tmp_path / "t.json"))
    assert child.returncode == 0, child.stderr
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    tracks = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"gpu0", "merge"} <= tracks
    computing = [event for event in events if event["ph"] == "X" and event["name"] == "compute"]
    # Microseconds of all compute spans of the one device are its utilization.
    busy_s = sum(event["dur"] for event in computing) / 1e6
    assert busy_s / record["elapsed_s"] == pytest.approx(record["utilization"]["accelerator"], rel=1e-6)
    assert any(event["ph"] == "C" and event["name"] == "training loss" for event in events)


def test_a_diverged_run_is_a_result() -> None:
    child = run("simulate", *QUICK, "--set", "run.learning_rate=1e38", "--epochs", "1", "--json")
    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout)["status"] == "diverged"


def test_a_policy_that_hangs_is_a_failed_run_and_a_foreign_policy_is_found_in_the_working_folder(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from typing import ClassVar\n"
        "from hetsgd.models.policy import Wait\n"
        "@dataclass(frozen=True)\n"
        "class Idle:\n"
        "    kinds: ClassVar = ('cpu',)\n"
        "    lane_modes: ClassVar = ('barrier',)\n"
        "    max_lookahead: ClassVar = 0\n"
        "    reads_losses: ClassVar = False\n"
        "    def begin(self, fleet):\n"
        "        return self\n"
        "    def next(self, view, worker):\n"
        "        return Wait(reason='for a better time')\n"
        "    def on_result(self, view, result):\n"
        "        return ()\n"
    )
    child = run("simulate", "--machine", "ucmerced-k80", "--learner", "none", "--policy", "mine:Idle", cwd=tmp_path)
    assert child.returncode == 3, (child.stdout, child.stderr)
    assert "the run failed: deadlock" in child.stderr
    assert "for a better time" in child.stderr


@pytest.mark.parametrize(("command", "number"), [("simulate", signal.SIGTERM), ("train", signal.SIGINT)])
def test_an_interrupted_run_is_saved_and_ends_with_130(command: str, number: int, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = [BIN, command, "--policy", "minibatch", "--seconds", "500", "--out", str(out)]
    words += ["--accelerators", "cpu"] if command == "train" else []
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    started = psutil.Process(child.pid)
    _until_working(started)
    children = started.children(recursive=True)
    os.kill(child.pid, number)
    stdout, stderr = child.communicate(timeout=60)
    assert child.returncode == 130, (stdout, stderr)
    record = json.loads((out / "run.json").read_text())
    assert record["status"] == "interrupted"
    assert "Traceback" not in stderr
    assert not [left for left in children if left.is_running() and left.status() != psutil.STATUS_ZOMBIE]


def _until_working(process: psutil.Process, cpu_s: float = 3.5) -> None:
    """Wait until the run has surely begun: imports take about 2 s of processor time."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        tree = [process, *process.children(recursive=True)]
        if sum(sum(one.cpu_times()[:2]) for one in tree if one.is_running()) > cpu_s:
            return
        time.sleep(0.1)
    raise AssertionError("the run never began")


@pytest.mark.parametrize("minutes", ["0", pytest.param("0.05", marks=pytest.mark.slow)])
def test_validate_prints_predicted_beside_measured(minutes: str) -> None:
    words = ["validate", "--policies", "hogwild", "--repeats", "2", "--seconds", "0.3", "--calibrate", minutes]
    words += [
        "--set",
        "run.evaluation=deferred",
        "--set",
        "run.evaluate_every_s=0.02",
        "--set",
        "run.learning_rate=0.02",
    ]
    child = run(*words, "--json")
    assert child.returncode == 0, child.stderr
    calibrated = "calibrate: steps at batch sizes that were held out are predicted within" in child.stderr
    assert calibrated == (minutes != "0")
    found = json.loads(child.stdout)
    assert (found["schema"], found["repeats"]) == ("hetsgd.validation/1", 2)
    assert list(found["policies"]) == ["hogwild"]
    assert found["kendall_tau"] is None, "one policy has no ranking"
    rates = found["policies"]["hogwild"]["examples_per_s"]
    assert rates["predicted"] > 0.0
    assert len(rates["measured"]["values"]) == 2
    assert rates["error"] == pytest.approx(rates["predicted"] / rates["measured"]["mean"] - 1.0)
    assert found["verdict"].startswith("On local ") or "not established" in found["verdict"]
    assert found["policies"]["hogwild"]["update_share.cpu"]["measured"]["mean"] == 1.0
