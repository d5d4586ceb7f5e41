"""Files and objects of a user's own, read once for all: whatever is wrong with them is a ValueError that says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hetsgd.models.edge import call_object, load_object, read_toml
from hetsgd.models.machine_file import MachineError, load_machine
from hetsgd.models.policies import recipe
from hetsgd.models.policy import Fleet, Member, PolicyError
from hetsgd.models.rehearsal import rehearse
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.streams import stream
from hetsgd.models.workload_file import WorkloadError, load_workload
from hetsgd.studies.failure import BadInput
from hetsgd.studies.policy_file import load_policy
from hetsgd.studies.resolve import Ask, resolve
from hetsgd.studies.study_file import load_study

BINARY = bytes(range(256))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"[{'.'.join('a' * 3000)}]\nb = 1", "with at most 100 tables and lists inside each other, got more"),
        (f"a = {'[' * 3000}{']' * 3000}", "with at most 100 tables and lists inside each other, got more"),
        (f"{'.'.join('a' * 200)} = 1", "with at most 100 tables and lists inside each other, got more"),
        (f"a = 1\n[b]\nc = {'9' * 5000}", "line 3: must be a whole number of at most 64 bits, got one of 5000 digits"),
    ],
)
def test_toml_beyond_any_use_is_refused_by_its_place_and_rule(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    for read in (read_toml, load_machine, load_workload):
        with pytest.raises(ValueError, match=message) as caught:
            read(path)
        assert "set_int_max_str_digits" not in str(caught.value)
        assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("content", [BINARY, "a = 1".encode("utf-16"), b"a = [1,", b"a = 1\na = 2"])
def test_what_is_no_toml_is_refused_by_every_reader(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    with pytest.raises(MachineError, match=r"x\.toml: must be"):
        load_machine(str(path))
    with pytest.raises(WorkloadError, match=r"x\.toml: must be"):
        load_workload(path)
    with pytest.raises(BadInput, match=r"x\.toml: must be"):
        load_policy(str(path), {})
    with pytest.raises(BadInput, match=r"x\.toml: (must be|not valid TOML)"):
        load_study(path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe.toml"
    os.mkfifo(path)
    with pytest.raises(ValueError, match="must be a regular file"):
        read_toml(path)
    with pytest.raises(MachineError, match="must be a regular file"):
        load_machine(str(path))


@pytest.mark.parametrize("name", ["json:", ":dumps", "no_such_module:x", "json:no_such", "raises_at_import:x"])
def test_objects_that_cannot_be_imported(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raises_at_import.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    for load in (load_machine, load_workload, recipe):
        with pytest.raises(ValueError, match=r"cannot be imported|named package\.module:object"):
            load(name)


def test_a_function_that_wants_arguments_is_bad_input() -> None:
    with pytest.raises(WorkloadError, match=r"workload 'json:dumps': calling it raised TypeError"):
        load_workload("json:dumps")
    with pytest.raises(MachineError, match=r"machine 'json:dumps': calling it raised TypeError"):
        load_machine("json:dumps")
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        call_object("f", lambda: 1 / 0)
    assert load_object("os:path.join") is os.path.join


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("workload.hidden", "1x9999999999999", "must be 1 to 1000 layers of a width"),
        ("workload.hidden", "99999999999", "--set: workload.hidden: must be <= 1e.08, got '99999999999'"),
        ("workload.features", "9" * 400, "--set: workload.features: must be <= 1e.08, got"),
        ("workload.rows", "1000000000000", "of DRAM, it has"),
        ("machine.gpu0.memory_bytes", "2000000", "a batch of 8192 rows needs"),
        ("run.learning_rate", "1e300", "run.learning_rate must be > 0 and at most 1e.38"),
        ("policy.accelerator_rate", "1e300", "policy.accelerator_rate must be <= 1e"),
    ],
)
def test_sizes_beyond_all_use_are_refused_before_anything_runs(key: str, value: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        resolve(Ask(machine="ucmerced-k80", workload="quickstart", policy="hogbatch", settings=((key, value),),
                    learner="none"))  # fmt: skip


def test_a_huge_alpha_goes_straight_to_the_threshold() -> None:
    made = recipe("adaptive-hogbatch", alpha=1e308)
    members = (Member(name="cpu", kind="cpu", lanes=2), Member(name="gpu", kind="accelerator"))
    fleet = Fleet(members=members, rows=100_000, learning_rate=0.1)
    trace = rehearse(made, fleet, RunSettings(stop=StopRule(updates=200)), stream(0, "alpha"), [])
    assert set(trace["assignments"]["batch"].tolist()) <= {1, 64, 256, 8192}


def test_errors_of_policies_stay_policy_errors() -> None:
    with pytest.raises(PolicyError, match="no_such_module"):
        recipe("no_such_module:Policy")
