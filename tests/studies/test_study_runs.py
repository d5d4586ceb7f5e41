"""A study from its file to its report: what it writes, that it resumes, and that nothing is run twice."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest

from hetsgd.studies.case import Case, case_key
from hetsgd.studies.resolve import Ask, resolve
from hetsgd.studies.study_folder import read_study

BIN = str(Path(sys.executable).with_name("hetsgd"))

TINY = """
question = "Which is first on a small budget?"
machines = ["local", "ucmerced-k80"]
workloads = ["quickstart"]
seeds = 2
level = 0.5
stop = { epochs = 2, seconds = 2.0 }
run = { evaluation = "deferred", evaluate_every_s = 0.02 }
[[policies]]
name = "minibatch"
set = { "policy.accelerator_batch" = 512 }
grid = { "run.learning_rate" = [0.01, 1.0] }
[[policies]]
name = "hogbatch"
set = { "policy.accelerator_batch" = 512, "policy.cpu_batch" = 64 }
grid = { "run.learning_rate" = [0.0001, 0.02] }
[pilot]
stop = { epochs = 1, seconds = 1.0 }
[validate]
repeats = 2
stop = { seconds = 0.3 }
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BIN, "study", *words], capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a finished study, and what it printed."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "tiny.toml").write_text(TINY)
    child = run("run", str(folder / "tiny.toml"), "--out", str(folder / "out"))
    assert child.returncode == 0, child.stderr
    return folder / "out", child.stdout


def test_the_answer_comes_first_and_the_report_is_self_contained(finished: tuple[Path, str]) -> None:
    out, printed = finished
    page = (out / "report.html").read_text()
    answers = printed.splitlines()[:-1]
    assert len(answers) == 3
    assert answers[0].startswith("On local, ")
    assert answers[1].startswith("On ucmerced-k80, ")
    assert "prediction" in answers[2]
    positions = [page.index(text) for text in ("<h1>", 'class="answer"', "What is not established", "<h2>Figures")]
    assert positions == sorted(positions)
    assert not re.search(r"""(src|href)=["'](?!data:)""", page)
    assert "http" not in re.sub(r"data:image/svg\+xml;base64,[A-Za-z0-9+/=]+", "", page)


def test_every_promised_figure_is_there_as_png_and_svg(finished: tuple[Path, str]) -> None:
    out, _ = finished
    names = ("loss_time", "loss_epochs", "utilization", "update_share", "batch", "staleness", "prediction")
    for name in names:
        assert (out / "figures" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
        assert b"<svg" in (out / "figures" / f"{name}.svg").read_bytes()[:1000]
        assert f"figures/{name}.png" in (out / "report.md").read_text()


def test_the_report_says_what_is_not_established_and_what_was_assumed(finished: tuple[Path, str]) -> None:
    text = (finished[0] / "report.md").read_text()
    assert "Nothing was measured on ucmerced-k80" in text
    assert "Each policy was tuned over 2 points with one seed" in text
    assert "Assumed, since no source gives them: " in text
    assert re.search(r"Versions: python 3\.\d+.*torch 2\.", text)


def test_runs_are_tabled_with_their_figures_and_the_pilots_choice_is_the_better_point(
    finished: tuple[Path, str],
) -> None:
    out, _ = finished
    table = pd.read_parquet(out / "runs.parquet")
    counts = table["role"].value_counts().to_dict()
    assert counts == {"pilot": 8, "run": 8, "predicted": 4, "measured": 4}
    assert set(table.loc[table["role"] == "measured", "engine"]) == {"real"}
    result = read_study(out)
    for choice in result.choices:
        # The other rate is a hundred times smaller and learns next to nothing in one epoch.
        rate = dict(choice.settings)["run.learning_rate"]
        assert rate == {"minibatch": 1.0, "hogbatch": 0.02}[choice.label]
    runs = table[table["role"] == "run"]
    assert (runs["loss (last, train)"] < 0.7).all()
    # Settings are columns of their own, as numbers.
    assert set(runs.loc[runs["label"] == "hogbatch", "set.run.learning_rate"]) == {0.02}
    assert runs.loc[runs["label"] == "minibatch", "set.policy.cpu_batch"].isna().all()
    assert set(table["set.run.evaluation"]) == {"deferred"}


def test_both_engines_ran_under_the_same_seeds_and_machine(finished: tuple[Path, str]) -> None:
    result = read_study(finished[0])
    by_role: dict[str, set[int]] = {}
    machines = []
    for case, stored in result.found.items():
        by_role.setdefault(case.role, set()).add(case.seed)
        if case.role in ("predicted", "measured"):
            machines.append(stored.resolved["machine"])
    assert by_role["predicted"] == by_role["measured"] == {0, 1}
    assert all(machine == machines[0] for machine in machines)
    assert (finished[0] / "machines" / "local.toml").is_file()


def test_the_report_can_be_rebuilt_from_the_folder_alone(finished: tuple[Path, str]) -> None:
    out, printed = finished
    page = (out / "report.html").read_text()
    (out / "report.html").unlink()
    rebuilt = run("report", str(out))
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert rebuilt.stdout == printed
    assert (out / "report.html").read_text() == page


def test_two_studies_are_compared_by_inputs_then_results(finished: tuple[Path, str], tmp_path: Path) -> None:
    out, _ = finished
    other = tmp_path / "other"
    other.mkdir()
    content = json.loads((out / "study.json").read_text())
    content["study"]["level"] = 0.8
    (other / "study.json").write_text(json.dumps(content))
    child = subprocess.run([BIN, "compare", str(out), str(other), "--json"], capture_output=True, text=True,
                           timeout=60, check=True)  # fmt: skip
    found = json.loads(child.stdout)
    assert found["inputs"] == [{"name": "level", "a": 0.5, "b": 0.8}]
    assert any("final_loss" in item["name"] and item["change"] == 0.0 for item in found["metrics"])


def test_a_killed_or_interrupted_study_resumes_from_what_it_has(tmp_path: Path) -> None:
    # Few figures, since this is about the runs.
    text = TINY.split("[validate]")[0].replace('"local", ', "")
    (tmp_path / "s.toml").write_text(f'metrics = ["time_to_loss_s"]\n{text}')
    out = tmp_path / "out"
    _end_after(tmp_path, runs=2, number=signal.SIGKILL, code=-9)
    _end_after(tmp_path, runs=4, number=signal.SIGINT, code=130)
    done = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/run.json")}
    # What a crash of the machine leaves half-written is made again.
    damaged = min(done)
    damaged.write_text("{")
    last = run("run", str(tmp_path / "s.toml"), "--out", str(out))
    assert last.returncode == 0, last.stderr
    assert "there already" in last.stderr
    assert json.loads(damaged.read_text())["status"] == "done"
    after = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/run.json")}
    kept = set(done) - {damaged}
    assert {path: after[path] for path in kept} == {path: done[path] for path in kept}
    assert len(after) > len(done)


def _end_after(folder: Path, *, runs: int, number: int, code: int) -> None:
    """Start the study and end it once it has so many runs; nothing of it is left behind."""
    words = [BIN, "study", "run", str(folder / "s.toml"), "--out", str(folder / "out"), "--workers", "1"]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120.0
    while len(list(folder.glob("out/runs/*/run.json"))) < runs:
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    children = psutil.Process(child.pid).children(recursive=True)
    os.kill(child.pid, number)
    _, stderr = child.communicate(timeout=60)
    assert child.returncode == code, stderr
    assert "Traceback" not in stderr
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


def test_the_key_of_a_run_changes_with_anything_that_decides_its_result() -> None:
    def key(repeat: int = 0, **changes: object) -> str:
        asked = {
            "machine": "ucmerced-k80",
            "workload": "quickstart",
            "policy": "minibatch",
            "learner": "none",
            "seed": 0,
        }
        case = Case(role="run", machine="m", workload="w", label="l", policy="p", seed=0, settings=(), repeat=repeat)
        return case_key(case, resolve(Ask(**{**asked, **changes})))  # type: ignore[arg-type]  # built from parts

    same = key()
    assert key() == same
    others = [
        key(seed=1), key(policy="hogbatch"), key(machine="aws-p3.16xlarge"), key(repeat=1),
        key(settings=(("run.learning_rate", 0.5),)), key(settings=(("policy.accelerator_batch", 64),)),
        key(settings=(("workload.hidden", "32"),)), key(settings=(("machine.message_s", 1e-3),)),
    ]  # fmt: skip
    assert len({same, *others}) == len(others) + 1


def test_a_run_that_breaks_is_told_and_the_others_are_reported(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from hetsgd.models.policies.minibatch import Minibatch\n"
        "@dataclass(frozen=True, slots=True, kw_only=True)\n"
        "class Broken(Minibatch):\n"
        "    def begin(self, fleet):\n"
        "        import os\n"
        "        if 'HETSGD_PARENT' in os.environ:\n"
        "            raise RuntimeError('broken in the worker')\n"
        "        return Minibatch.begin(self, fleet)\n"
    )
    (tmp_path / "s.toml").write_text(
        'question = "?"\nmachines = ["ucmerced-k80"]\nworkloads = ["quickstart"]\nseeds = 1\nlevel = 0.5\n'
        'metrics = ["time_to_loss_s"]\nstop = { epochs = 1 }\n'
        'policies = ["minibatch", { name = "mine:Broken", label = "broken" }]\n'
    )
    child = subprocess.run([BIN, "study", "run", "s.toml"], capture_output=True, text=True, timeout=120, check=False,
                           cwd=tmp_path)  # fmt: skip
    assert child.returncode == 3, (child.stdout, child.stderr)
    assert "1 run of the study failed" in child.stderr
    assert "RuntimeError: broken in the worker" in (tmp_path / "out" / "s" / "report.md").read_text()
    assert "minibatch is predicted first" in child.stdout
