"""`hetsgd list` tells a stranger what can be named, and where data are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hetsgd.models.data.names import DESCRIPTIONS
from hetsgd.models.policies import POLICIES
from hetsgd.models.workload_names import workload_names
from hetsgd.studies.main import app


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["list", *words])
    return result.exit_code, result.stdout, result.stderr


def items(kind: str) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in json.loads(run(kind, "--json")[1])}


@pytest.fixture(autouse=True)
def one_set_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """w8a and the training part of a9a are at hand, nothing else."""
    monkeypatch.setenv("HETSGD_DATA", str(tmp_path))
    monkeypatch.setenv("HETSGD_CACHE", str(tmp_path / "cache"))
    for name, file in (("w8a", "w8a.bz2"), ("a9a", "a9a.txt")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_bytes(b"")


def test_without_a_kind_all_names_are_shown() -> None:
    code, out, _ = run()
    assert code == 0
    for name in (*POLICIES, *DESCRIPTIONS, *workload_names(), "local", "machines", "--workload"):
        assert name in out
    kinds = {item["name"]: item["names"] for item in json.loads(run("--json")[1])}
    assert kinds["datasets"] == list(DESCRIPTIONS)


def test_an_unknown_kind_is_told_the_nearest() -> None:
    code, out, err = run("polices")
    assert (code, out) == (2, "")
    assert err == (
        "hetsgd: list: 'polices' is no kind of name, did you mean 'policies'? "
        "known: machines, workloads, policies, datasets\n"
    )


def test_data_sets_say_whether_they_are_at_hand_and_how_to_get_them(tmp_path: Path) -> None:
    out = run("datasets")[1]
    assert f"at hand: {tmp_path / 'w8a' / 'w8a.bz2'}" in out
    assert "at hand: part of this package" in out
    assert "not at hand: letter.svm, no public address is known" in out
    assert "not at hand: real-sim, https://" in out
    assert f"{tmp_path}/NAME/ or {tmp_path / 'cache' / 'data'}/NAME/" in out
    assert "--set workload.download=true" in out
    found = items("datasets")
    assert [name for name, item in found.items() if item["at_hand"]] == ["covtype-sample", "w8a", "a9a"]
    assert found["a9a"]["wanted"] == ["a9a", "a9a.t"]
    assert found["a9a"]["files"] == [str(tmp_path / "a9a" / "a9a.txt")]
    assert all(len(home["sha256"]) == 64 for home in found["a9a"]["homes"])
    assert found["letter"]["folders"] == [str(tmp_path / "letter"), str(tmp_path / "cache" / "data" / "letter")]


def test_workloads_say_what_works_without_their_data() -> None:
    out = run("workloads")[1]
    assert "data set letter is not at hand: only timing works" in out
    assert "data set covtype is not at hand: learning takes the embedded sample" in out
    assert "data set w8a" not in out
    found = items("workloads")
    assert (found["quickstart"]["dataset"], found["quickstart"]["at_hand"]) == ("covtype-sample", True)
    assert (found["mnist10k"]["dataset"], found["mnist10k"]["at_hand"]) == ("mnist10k", False)


def test_the_help_speaks_of_what_is_listed() -> None:
    text = " ".join(run("--help")[1].replace("│", " ").split())
    for part in ("machines, workloads, policies, datasets", "Left out: the names of all four", "a JSON array"):
        assert part in text


def test_one_policy_is_shown_with_range_and_meaning_of_each_key() -> None:
    code, out, _ = run("policies", "adaptive-hogbatch")
    assert code == 0
    for key in POLICIES["adaptive-hogbatch"].parameters():
        assert f"policy.{key.name}={key.default}  ({key.type}" in out
        assert key.meaning.split(";")[0][:40] in " ".join(out.split())
    assert "hogwild  " not in out


@pytest.mark.parametrize("kind", ["machines", "workloads", "datasets"])
def test_one_name_of_each_kind_is_shown_alone(kind: str) -> None:
    name = json.loads(run(kind, "--json")[1])[-1]["name"]
    code, out, _ = run(kind, name)
    assert code == 0
    assert out.startswith(name)
    assert [item["name"] for item in json.loads(run(kind, name, "--json")[1])] == [name]


def test_an_unknown_name_is_told_the_nearest() -> None:
    code, out, err = run("policies", "hogwold")
    assert (code, out) == (2, "")
    assert "list: 'hogwold' is none of the policies, did you mean 'hogwild'?" in err


@pytest.mark.parametrize("kind", ["machines", "workloads", "policies"])
def test_lines_are_short_enough_to_read(kind: str) -> None:
    assert max(map(len, run(kind)[1].splitlines())) <= 120
