"""What is wrong with a run is blamed on the place that says it, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hetsgd.studies import resolve as module
from hetsgd.studies.failure import BadInput
from hetsgd.studies.resolve import Ask, resolve, split_settings, tell


def ask(**changes: Any) -> Ask:
    values: dict[str, Any] = {
        "machine": "ucmerced-k80", "workload": "quickstart", "policy": "hogbatch", "learner": "none", **changes
    }  # fmt: skip
    return Ask(**values)


SETTINGS: list[tuple[tuple[str, Any], str]] = [
    (("policy.cpu_batch", "0"), ": policy.cpu_batch must be >= 1, got 0"),
    (("policy.cpu_bach", "1"), ": policy.cpu_bach: hogbatch has no such key, did you mean 'cpu_batch'?"),
    (("policy.cpu_batch", "9" * 400), ": policy.cpu_batch must be at most 1000000000000000, got a whole number of 13"),
    (("policy.cpu_batch", "50000"), ": policy.cpu_batch must be at most 46481, the training rows of workload quick"),
    (("run.learning_rate", "0"), ": run.learning_rate must be > 0 and at most 1e+38, got 0.0"),
    (("run.lernrate", "1"), ": run.lernrate: no such key, did you mean 'learning_rate'?"),
    (("workload.activation", "gelu"), ": workload.activation: must be 'sigmoid', 'relu' or 'tanh', got 'gelu'"),
    (("workload.dataset", "covtipe"), ": workload.dataset: "),
    (("machine.cpu_lane", "1"), ": machine.cpu_lane: no such key, did you mean 'cpu_lanes'?"),
    (("cpu_batch", "1"), ": cpu_batch: must be OWNER.KEY with OWNER one of policy, run, workload, machine; did "
                         "you mean 'policy.cpu_batch'?"),
    (("cpu_lanes", 1), "did you mean 'machine.cpu_lanes'?"),
    (("learning_rate", 1), "did you mean 'run.learning_rate'?"),
    (("hidden", 1), "did you mean 'workload.hidden'?"),
    (("polcy.alpha", 1), ": polcy.alpha: no such owner 'polcy', did you mean 'policy'?"),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "says"), SETTINGS, ids=[key for (key, _), _ in SETTINGS])
@pytest.mark.parametrize("origin", ["--set", "my study.toml"])
def test_a_bad_setting_is_blamed_on_the_option_or_on_the_study(
    setting: tuple[str, Any], says: str, origin: str
) -> None:
    with pytest.raises(BadInput) as caught:
        resolve(ask(settings=(setting,), origin=origin))
    assert str(caught.value).startswith(f"{origin}: ")
    assert says in str(caught.value)
    assert ("--set" in str(caught.value)) == (origin == "--set")


def test_a_name_in_a_study_is_blamed_on_the_study() -> None:
    for change, says in (({"machine": "aws-p3"}, "machine 'aws-p3': .* did you mean 'aws-p3.16xlarge'"),
                         ({"workload": "w8"}, "workload 'w8': .* did you mean 'w8a'"),
                         ({"policy": "hogbach"}, "there is no 'hogbach', did you mean 'hogbatch'")):  # fmt: skip
        with pytest.raises(BadInput, match=f"^my study.toml: .*{says}"):
            resolve(ask(**change, origin="my study.toml"))


@pytest.mark.parametrize("seed", [-1, 2**63, 2**70, 1 << 20_000], ids=["-1", "2^63", "2^70", "2^20000"])
def test_a_seed_out_of_range_is_blamed_on_its_option(seed: int) -> None:
    with pytest.raises(BadInput, match=r"^--seed: must be in 0\.\.9223372036854775807, got "):
        resolve(ask(seed=seed))


def test_layers_that_this_host_cannot_hold_are_refused_before_anything_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = (("workload.hidden", "20000x2"), ("machine.accelerators", "0"))
    monkeypatch.setattr("hetsgd.models.machine_local.memory_bytes", lambda: 6 * 10**9)
    asked = ask(machine="aws-p3.16xlarge", policy="hogwild", settings=settings, learner="replay")
    with pytest.raises(BadInput, match=r"3 copies of its model \(1\.6 GB each\) need 8\.0 GB of memory on this host"):
        resolve(asked)
    resolve(ask(machine="aws-p3.16xlarge", policy="hogwild", settings=settings))  # timing needs none of it


def test_what_is_trained_on_is_told_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    module._tell.cache_clear()
    lines = "".join(f"{row},{row % 2}\n" for row in range(20))
    (tmp_path / "few.csv").write_text(lines)
    (tmp_path / "few.toml").write_text('dataset = "few.csv"\nhidden = [2]\n')
    ready = resolve(ask(workload=str(tmp_path / "few.toml"), learner="replay"))
    for _ in range(2):
        tell(ready)
    said = capsys.readouterr().err
    assert said.count("classes: 2; 0: 50 %, 1: 50 %") == 1
    assert "note: policy.accelerator_batch is 8192 and workload few has 16 rows: one batch is all" in said


def test_later_settings_win() -> None:
    assert split_settings([("run.seed", 1), ("run.seed", 2)])["run"] == {"seed": 2}
