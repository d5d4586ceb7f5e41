"""The folder of `--out`: what is refused before a run, what may go on, and what a full disk leaves."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hetsgd.studies.failure import BadInput
from hetsgd.studies.main import app
from hetsgd.studies.out_folder import Owner, start, taken

BIN = str(Path(sys.executable).with_name("hetsgd"))
RUN = ("simulate", "--machine", "ucmerced-k80", "--learner", "none", "--epochs", "1")
STUDY = (
    'question = "?"\nmachines = ["ucmerced-k80"]\nworkloads = ["quickstart"]\nseeds = 1\nlearner = "none"\n'
    'metrics = ["epoch_s"]\nstop = { epochs = 1 }\npolicies = ["minibatch"]\n'
)


def hetsgd(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.stdout, result.stderr


def whole(name: str) -> Owner:
    return Owner(kind="study", words=f"'{name}'", inputs={"name": name})


# -- refused before the run --------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["simulate", "train", "validate", "study"])
def test_an_empty_out_is_refused_everywhere(command: str, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(STUDY)
    words = ["study", "run", str(tmp_path / "s.toml")] if command == "study" else [command]
    code, out, err = hetsgd(*words, "--out", "")
    assert (code, out) == (2, "")
    assert "--out" in err
    assert "must name a file or folder, got ''" in err


def block_run_json(folder: Path) -> None:
    (folder / "run.json").mkdir(parents=True)


def block_trace(folder: Path) -> None:
    folder.mkdir()
    (folder / "trace").write_text("mine")


def fill_trace(folder: Path) -> None:
    (folder / "trace").mkdir(parents=True)
    (folder / "trace" / "diary.txt").write_text("mine")


def own_model(folder: Path) -> None:
    folder.mkdir()
    (folder / "model.pt").write_text("mine")


def other_files(folder: Path) -> None:
    (folder / "photos").mkdir(parents=True)
    (folder / "diary.txt").write_text("mine")


def a_parent_that_is_a_file(folder: Path) -> None:
    folder.write_text("")


@pytest.mark.parametrize(
    ("block", "below", "message"),
    [
        (block_run_json, "", "run.json: must be a file, something else is in the way"),
        (block_trace, "", "trace: must be a folder, a file is in the way"),
        (fill_trace, "", "trace: holds files that are no trace, and would be replaced"),
        (own_model, "", "model.pt is there already, and would be overwritten"),
        (
            other_files,
            "",
            "must be a new or empty folder, or one that hetsgd wrote, got one that holds diary.txt, photos",
        ),
        (Path.mkdir, "x" * 300, "must be a folder that can be written: File name too long"),
        (a_parent_that_is_a_file, "below", "must be a folder, it is a file"),
    ],
)
def test_what_is_in_the_way_is_named_before_the_run_and_left_alone(
    block: Callable[[Path], None], below: str, message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "o"
    block(folder)
    before = sorted(path for path in tmp_path.rglob("*"))
    code, out, err = hetsgd(*RUN, "--out", str(folder / below))
    assert (code, out) == (2, "")
    assert message in err
    assert " on ucmerced-k80" not in err, "the run had begun"
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_a_folder_that_cannot_be_written_is_found_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hetsgd.studies.out_folder.tempfile.TemporaryFile", full)
    code, _, err = hetsgd(*RUN, "--out", str(tmp_path / "a" / "b"))
    assert code == 2
    assert "must be a folder that can be written: No space left on device" in err
    assert not (tmp_path / "a").exists()


# -- what is there already ---------------------------------------------------------------------------------------


def test_the_same_run_goes_on_and_another_is_refused_unless_it_is_to_replace_it(tmp_path: Path) -> None:
    out = tmp_path / "o"
    assert hetsgd(*RUN, "--out", str(out))[0] == 0
    assert hetsgd(*RUN, "--out", str(out))[0] == 0
    (out / "notes.txt").write_text("mine")
    (out / "model.pt").write_bytes(b"of the old run")
    code, _, err = hetsgd(*RUN, "--seed", "7", "--out", str(out))
    assert code == 2
    assert "holds another run, adaptive-hogbatch on ucmerced-k80 (simulated, workload quickstart, seed 0)" in err
    assert "which differs in run.seed" in err
    assert json.loads((out / "run.json").read_text())["seed"] == 0
    code, _, err = hetsgd(*RUN, "--seed", "7", "--out", str(out), "--force")
    assert code == 0, err
    assert json.loads((out / "run.json").read_text())["seed"] == 7
    assert {path.name for path in out.iterdir()} == {"run.json", "resolved.json", "trace", "notes.txt"}


def test_a_study_over_a_run_or_another_study_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(STUDY)
    (tmp_path / "t.toml").write_text(STUDY)
    out = tmp_path / "o"
    assert hetsgd(*RUN, "--out", str(out))[0] == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    code, _, err = hetsgd("study", "run", str(tmp_path / "s.toml"), "--out", str(out))
    assert code == 2
    assert "holds a run, adaptive-hogbatch on ucmerced-k80" in err
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert hetsgd("study", "run", str(tmp_path / "s.toml"), "--out", str(out), "--force")[0] == 0
    assert not (out / "run.json").exists()
    assert not (out / "trace").exists()
    assert not list(out.glob(".*"))
    code, _, err = hetsgd("study", "run", str(tmp_path / "t.toml"), "--out", str(out))
    assert code == 2
    assert "holds another study, 's' (?), which differs in its name" in err
    # A study may change and keep its name: it goes on with what is there.
    (tmp_path / "s.toml").write_text(STUDY.replace("seeds = 1", "seeds = 2"))
    code, _, err = hetsgd("study", "run", str(tmp_path / "s.toml"), "--out", str(out))
    assert code == 0, err
    assert "1 of 2 runs are there already" in err


def test_a_refused_study_leaves_no_folder_behind(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(STUDY.replace('"minibatch"', '{ name = "minibatch", set = { "policy.x" = 1 } }'))
    code, _, err = hetsgd("study", "run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "deep" / "o"))
    assert code == 2, err
    assert {path.name for path in tmp_path.iterdir()} == {"s.toml"}


def test_what_was_replaced_comes_back_where_the_new_one_is_refused(tmp_path: Path) -> None:
    with taken(tmp_path, whole("old")):
        start(tmp_path, whole("old"))
    (tmp_path / "study.toml").write_text("old")
    with pytest.raises(BadInput, match="wrong"), taken(tmp_path, whole("new"), force=True):  # noqa: PT012
        start(tmp_path, whole("new"))
        assert not (tmp_path / "study.toml").exists()
        raise BadInput("wrong after all")
    assert (tmp_path / "study.toml").read_text() == "old"
    assert json.loads((tmp_path / "started.json").read_text())["inputs"] == {"name": "old"}


def test_one_process_at_a_time_writes_into_a_folder(tmp_path: Path) -> None:
    with taken(tmp_path / "o", whole("first")):
        code, _, err = hetsgd(*RUN, "--out", str(tmp_path / "o"))
    assert code == 2
    assert "another hetsgd is writing there" in err


def test_what_a_killed_process_left_is_cleared_by_the_next(tmp_path: Path) -> None:
    (tmp_path / ".part-x").mkdir()
    (tmp_path / ".part-x" / "run.json").write_text("{")
    with taken(tmp_path, whole("next")):
        assert not (tmp_path / ".part-x").exists()


def test_a_study_may_lie_in_its_folder_alone_and_force_writes_among_others(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(STUDY)
    study = ("study", "run", str(tmp_path / "s.toml"), "--out", str(tmp_path))
    assert hetsgd(*study)[0] == 0
    (tmp_path / "diary").mkdir()
    (tmp_path / "diary" / "mine.txt").write_text("mine")
    run = (*RUN, "--out", str(tmp_path / "diary"))
    assert hetsgd(*run)[0] == 2
    assert [path.name for path in (tmp_path / "diary").iterdir()] == ["mine.txt"]
    assert hetsgd(*run, "--force")[0] == 0
    assert (tmp_path / "diary" / "run.json").is_file()
    assert (tmp_path / "diary" / "mine.txt").read_text() == "mine"


# -- a disk that fills up ----------------------------------------------------------------------------------------


def small_files() -> None:
    """The largest file that the child may write: more than the probe of the folder, less than its results."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))


@pytest.mark.parametrize("form", ["--json", ""])
def test_results_that_cannot_be_saved_are_printed_all_the_same(form: str, tmp_path: Path) -> None:
    words = [BIN, *RUN, "--out", str(tmp_path / "o"), *([form] if form else [])]
    reader, writer = os.pipe()  # a file of its own would be cut off as well
    child = subprocess.Popen(words, stdout=writer, stderr=subprocess.PIPE, text=True, preexec_fn=small_files)
    os.close(writer)
    with os.fdopen(reader) as stream:
        printed = stream.read()
    _, err = child.communicate(timeout=60)
    assert child.returncode == 3, err
    if form:
        assert json.loads(printed)["status"] == "done"
    else:
        assert printed.startswith("policy ")
    assert f"hetsgd: not saved: {tmp_path / 'o'}" in err
    assert "cannot be written: File too large; free space" in err
    assert not (tmp_path / "o").exists(), "something half-written was left"


def test_a_study_that_cannot_be_saved_gives_its_answer(tmp_path: Path) -> None:
    text = STUDY.replace('learner = "none"\n', "").replace("epoch_s", "time_to_loss_s")
    (tmp_path / "s.toml").write_text(text)
    words = [BIN, "study", "run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "o")]
    child = subprocess.run(
        words, capture_output=True, text=True, timeout=120, check=False, preexec_fn=small_files
    )  # fmt: skip
    assert child.returncode == 3, child.stderr
    assert "On ucmerced-k80, " in child.stdout
    assert "hetsgd: not saved: 1 run was not stored" in child.stderr
    assert "File too large" in child.stderr
    assert not list((tmp_path / "o").glob("runs/*/*"))


def test_a_closed_stdout_loses_results_and_says_so_unless_they_are_kept(tmp_path: Path) -> None:
    out = f"--out '{tmp_path / 'o'}'"
    for words, code in ((f"{' '.join(RUN)}", 3), (f"{' '.join(RUN)} {out}", 0), ("list", 3), ("--help", 3)):
        line = f"'{BIN}' {words} >&-"
        child = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
        assert child.returncode == code, child.stderr
        assert ("hetsgd: not saved: stdout: is closed; leave it open" in child.stderr) == bool(code)
        assert "Traceback" not in child.stderr
    assert (tmp_path / "o" / "run.json").is_file()
    line = f"'{BIN}' {' '.join(RUN)} --json 2>&-"
    child = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert child.returncode == 0
    assert json.loads(child.stdout)["status"] == "done"


def test_a_reader_that_goes_away_is_no_fault_and_a_full_stdout_is_told() -> None:
    for target, code in (("| head -1", 0), ("> /dev/full", 3)):
        line = f"set -o pipefail; '{BIN}' {' '.join(RUN)} --json {target}"
        child = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
        assert child.returncode == code, child.stderr
        assert "Traceback" not in child.stderr
        assert ("stdout: cannot be written: No space left on device" in child.stderr) == (code == 3)
