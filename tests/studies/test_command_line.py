"""The command line: what it loads, how it ends, and that every bad input is told in one message."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hetsgd.studies.main import app

HEAVY = {"numpy", "pandas", "networkx", "simpy", "torch", "seaborn", "matplotlib", "scipy", "pyarrow"}
COMMANDS = (
    ("list",), ("simulate",), ("train",), ("validate",), ("compare",), ("study", "run"), ("study", "report"),
    ("trace",), ("paper",),
)  # fmt: skip


def run(*words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command line, in this process."""
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    "words", [("--help",), ("list", "policies"), ("list", "machines", "--json"), ("list", "workloads"),
              ("list", "datasets")],
)  # fmt: skip
def test_help_and_list_start_without_the_heavy_libraries(words: tuple[str, ...]) -> None:
    script = (
        "import sys\nfrom hetsgd.studies.main import app\nsys.argv = ['hetsgd', *sys.argv[1:]]\n"
        "try:\n    app()\nexcept SystemExit as end:\n    assert end.code == 0, end.code\n"
        "print('LOADED', *sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(child.stderr.split("LOADED", 1)[1].split())
    assert not HEAVY & loaded
    assert child.stdout.strip()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_teaches_with_an_example(command: tuple[str, ...]) -> None:
    code, out, _ = run(*command, "--help")
    assert code == 0
    assert f"hetsgd {' '.join(command)}" in out.split("Example:", 1)[1]


@pytest.mark.parametrize("what", ["machines", "workloads", "policies", "datasets"])
def test_list_prints_one_json_array_of_names_and_descriptions(what: str) -> None:
    code, out, _ = run("list", what, "--json")
    assert code == 0
    items = json.loads(out)
    assert all(item["name"] and item["description"] for item in items)


def test_the_keys_of_a_policy_have_type_default_range_and_meaning() -> None:
    items = {item["name"]: item for item in json.loads(run("list", "policies", "--json")[1])}
    keys = {key["name"]: key for key in items["adaptive-hogbatch"]["keys"]}
    alpha = keys["alpha"]
    assert (alpha["type"], alpha["default"], alpha["low"]) == ("float", 2.0, 1.0)
    assert "grows" in alpha["meaning"]


def test_the_version_is_told() -> None:
    assert run("--version")[1].startswith("hetsgd 0.")


NONE = ("--learner", "none", "--machine", "ucmerced-k80")

BAD_INPUTS: list[tuple[tuple[str, ...], list[str]]] = [
    (("train", "--machine", "aws-p3.16xlarge", "--seconds", "1"), ["a core for each CPU lane", "64 lanes"]),
    (
        ("train", "--machine", "aws-p3.16xlarge", "--cpu-lanes", "1", "--seconds", "1"),
        ["gpu0", "'cuda:0'", "does not have"],
    ),
    (("validate", "--machine", "ucmerced-k80", "--policies", "minibatch"), ["gpu0", "'cuda:0'", "does not have"]),
    (("simulate", *NONE, "--policy", "hogwid"), ["policy", "hogwid", "did you mean", "hogwild"]),
    (("simulate", *NONE, "--policy", "no_such_module:thing"), ["no_such_module:thing", "cannot be imported"]),
    (("simulate", *NONE, "--policy", "missing.toml"), ["missing.toml", "No such file"]),
    (("simulate", "--learner", "none", "--machine", "aws-p3"), ["machine 'aws-p3'", "aws-p3.16xlarge"]),
    (("simulate", "--learner", "none", "--machine", "no.toml"), ["no.toml", "cannot be read"]),
    (("simulate", *NONE, "--workload", "covtyp"), ["workload 'covtyp'", "did you mean 'covtype'"]),
    (("simulate", *NONE, "--set", "policy.alpha"), ["--set", "KEY=VALUE", "'policy.alpha'"]),
    (("simulate", *NONE, "--set", "alpha=2"), ["--set: alpha", "OWNER.KEY", "policy, run, workload, machine"]),
    (("simulate", *NONE, "--set", "polcy.alpha=2"), ["polcy.alpha", "did you mean 'policy'"]),
    (("simulate", *NONE, "--set", "policy.alfa=2"), ["policy.alfa", "did you mean 'alpha'"]),
    (("simulate", *NONE, "--set", "policy.alpha=0.5"), ["policy.alpha must be >= 1, got 0.5"]),
    (("simulate", *NONE, "--set", "policy.alpha=big"), ["policy.alpha must be a number, got 'big'"]),
    (("simulate", *NONE, "--set", "policy.cpu_batch=1.5"), ["policy.cpu_batch must be a whole number, got '1.5'"]),
    (("simulate", *NONE, "--set", "run.lookahed=1"), ["run.lookahed", "did you mean 'lookahead'"]),
    (("simulate", *NONE, "--set", "run.learning_rate=-1"), ["run.learning_rate must be > 0", "-1"]),
    (("simulate", *NONE, "--set", "run.evaluation=never"), ["run.evaluation", "'never'"]),
    (("simulate", *NONE, "--set", "run.momentum=0.9"), ["run.momentum must be 0 for adaptive-hogbatch", "0.9"]),
    (("simulate", *NONE, "--set", "workload.hiden=64"), ["workload.hiden", "did you mean 'hidden'"]),
    (("simulate", *NONE, "--set", "machine.cpu_lanes=1000"), ["machine.cpu_lanes", "1000"]),
    (("simulate", *NONE, "--set", "run.seed=1", "--set", "run.seed=2"), ["run.seed is given more than once"]),
    (("simulate", *NONE, "--seconds", "-1"), ["--seconds", "seconds must be > 0", "-1"]),
    (("simulate", *NONE, "--epochs", "0"), ["epochs must be >= 1, got 0"]),
    (("simulate", *NONE, "--seconds", "soon"), ["--seconds", "soon"]),
    (("simulate", *NONE, "--seed", "-3"), ["--seed: must be in 0..", "got -3"]),
    (("simulate", *NONE, "--target-loss", "0.3"), ["--target-loss", "learner none computes no loss"]),
    (("simulate", *NONE, "--loss-reference", "0.5"), ["--loss-reference", "L0,LBEST", "'0.5'"]),
    (("simulate", *NONE, "--loss-reference", "0.2,0.5"), ["--loss-reference", "above", "'0.2,0.5'"]),
    (("simulate", "--learner", "surrogate", "--set", "run.weight_decay=0.1"), ["axis run.weight_decay", "use replay"]),
    (("simulate", "--learner", "surrogate", "--workload", "w8a"), ["none of w8a", "hetsgd pilots --workload w8a"]),
    (("pilots", "--set", "run.learning_rate=1"), ["run.learning_rate", "only workload.KEY"]),
    (("simulate", "--learner", "reply"), ["--learner", "reply"]),
    (("simulate", *NONE, "--set", "machine.accelerators=0"), ["policy", "no worker of kind accelerator: it has none"]),
    (("simulate", *NONE, "--set", "machine.cpu_lanes=0"), ["policy", "no worker of kind cpu: machine.cpu_lanes is 0"]),
    (("simulate", *NONE, "--set", "policy.cpu_batch=1_0"), ["policy.cpu_batch must be a whole number", "'1_0'"]),
    (("simulate", *NONE, "--seconds", "1", "--set", "run.seconds=2"), ["run.seconds: is 1.0 by the stop rule"]),
    (("simulate", *NONE, "--machine", "..x:y"), ["'..x:y': a module is named in full"]),
    (("simulate", *NONE, "--set", "workload.initial_scale=nan"), ["workload.initial_scale: must be a finite number"]),
    (("simulate", *NONE, "--out", "{file}"), ["must be a folder, it is a file"]),
    (("simulate", "--polcy", "hogwild"), ["--polcy", "--policy"]),
    (("simulte",), ["simulte", "simulate"]),
    (("train", "--accelerators", "tpu:0"), ["--accelerators", "no device 'tpu:0'", "cpu is a stand-in"]),
    (("train", "--accelerators", "cpu,cuda:0"), ["--accelerators", "cannot be mixed"]),
    (("train", "--cpu-lanes", "9999", "--accelerators", "cpu"), ["--cpu-lanes", "9999"]),
    (("validate", "--calibrate", "-1"), ["--calibrate", "must be 0 or 0.05 to 1440", "-1"]),
    (("validate", "--calibrate", "1", "--machine", "m.toml"), ["--calibrate", "machine local", "m.toml"]),
    (("validate", "--repeats", "1"), ["--repeats", "must be >= 2", "1"]),
    (("validate", "--policies", " , "), ["--policies", "commas"]),
    (("validate", "--policies", "hogwild,hogwild"), ["--policies", "named once", "hogwild"]),
    (("validate", "--policies", "hogwild,,minibatch"), ["--policies", "single commas", "'hogwild,,minibatch'"]),
    (("simulate", *NONE, "--set", "machine.accelerators=9"), ["--set: machine.accelerators", "got 9"]),
    (("compare", "{folder}", "{folder}"), ["holds neither run.json nor study.json"]),
    (("study", "run", "nowhere.toml"), ["nowhere.toml", "no such file"]),
    (("study", "report", "{folder}"), ["holds no study.json"]),
    (("study", "run", "{study}", "--workers", "0"), ["--workers must be >= 1, got 0"]),
    (("study", "run", "{study}", "--cluster", "localhost"), ["--cluster", "tcp://host:8786", "'localhost'"]),
    (("trace", "{folder}", "--perfetto", "t.json"), ["run.json", "no such file"]),
    (("study", "run", "quikstart"), ["quikstart", "did you mean 'quickstart'"]),
    (("list", "planets"), ["planets", "machines"]),
]  # fmt: skip


@pytest.mark.parametrize(("words", "parts"), BAD_INPUTS, ids=[" ".join(words[-2:]) for words, _ in BAD_INPUTS])
def test_bad_input_ends_with_code_2_and_one_message(words: tuple[str, ...], parts: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "study.toml").write_text(
        'question = "?"\nmachines = ["local"]\nworkloads = ["quickstart"]\npolicies = ["hogwild"]\n'
        "stop = { seconds = 1.0 }\n"
    )
    names = {"file": tmp_path / "file", "folder": tmp_path / "folder", "study": tmp_path / "study.toml"}
    code, out, err = run(*(word.format(**names) if word.startswith("{") else word for word in words))
    assert code == 2, (out, err)
    assert out == ""
    for part in parts:
        assert part in err
    assert "Traceback" not in err
    assert err.count("hetsgd: ") == 1
    assert err.strip().count("\n") == 0, f"more than one line: {err}"
