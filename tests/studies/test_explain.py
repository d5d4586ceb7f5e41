"""`simulate --explain`: the model's terms beside what the engine measured."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from hetsgd.models.anatomy import accelerator_anatomy
from hetsgd.models.policy import Work
from hetsgd.models.run import StopRule
from hetsgd.studies.explain import check_explain, explain_lines, run_explained
from hetsgd.studies.failure import BadInput
from hetsgd.studies.resolve import Ask, Ready, resolve


def ready(policy: str, *settings: tuple[str, Any], epochs: int = 1, machine: str = "aws-p3.16xlarge") -> Ready:
    return resolve(
        Ask(
            machine=machine, workload="covtype", policy=policy, learner="none", settings=settings,
            stop=StopRule(epochs=epochs),
        )
    )  # fmt: skip


def workers_of(run: Ready) -> dict[str, Any]:
    return {worker["worker"]: worker for worker in run_explained(run).record()["explain"]}


def test_a_lone_accelerator_takes_what_the_model_says_part_by_part() -> None:
    run = ready("minibatch", ("policy.accelerator_batch", 4096))
    worker = workers_of(run)["gpu0"]
    assert (worker["batch"], worker["write"], worker["assignments"]) == (4096, "in_place", 141)
    assert [part["part"] for part in worker["parts"]] == ["order", "load", "pull", "compute", "push", "report"]
    for part in worker["parts"]:
        assert part["run_s"] == pytest.approx(part["alone_s"], rel=1e-6), part["part"]
        assert part["alone_s"] == pytest.approx(part["times"] * sum(term["seconds"] for term in part["terms"]))
    assert worker["wait_s"] == pytest.approx(0.0, abs=1e-9)
    assert worker["run_s"] == pytest.approx(worker["alone_s"], rel=1e-6)


def test_lanes_that_share_their_dram_take_what_the_model_says() -> None:
    run = ready("hogwild", ("policy.cpu_batch", 1), ("machine.cpu_sigma", 0.0), ("workload.rows", 20_000))
    worker = workers_of(run)["cpu"]
    compute = next(part for part in worker["parts"] if part["part"] == "compute")
    assert any(term["name"] == "DRAM shared by 64 lanes" for term in compute["terms"])
    assert compute["run_s"] == pytest.approx(compute["alone_s"], rel=0.01)


def test_a_result_that_is_merged_names_the_merge() -> None:
    run = ready("synchronous", ("policy.accelerator_batch", 4096), ("policy.cpu_batch", 8))
    workers = workers_of(run)
    merge = workers["gpu0"]["parts"][-1]
    assert merge["terms"][0]["name"] == "gradient of 2 results"
    assert merge["run_s"] == pytest.approx(merge["alone_s"], rel=0.01)  # the last one may have fewer inputs


def test_steps_are_counted_and_a_kept_replica_is_not_pushed() -> None:
    plan = ready("minibatch").plan
    pieces = accelerator_anatomy(plan, Work(batch=64, rate=0.1, steps=8, read="own", write="keep"), "gpu0")
    assert [piece.part for piece in pieces] == ["order", "load", "compute", "report"]
    assert pieces[2].times == 8


def test_the_table_fits_a_hundred_columns_and_names_every_part() -> None:
    record = run_explained(ready("adaptive-hogbatch", ("workload.rows", 60_000))).record()
    lines = list(explain_lines(record["explain"]))
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 100
    for words in ("model read", "rows to the device", "kernels", "link rate", "written lines", "hidden", "total"):
        assert words in text


def test_a_run_without_spans_cannot_be_explained() -> None:
    with pytest.raises(BadInput, match=r"run\.trace must be full, got 'summary'"):
        check_explain(ready("minibatch", ("run.trace", "summary")))


def test_the_option_prints_the_table_and_adds_it_to_the_object() -> None:
    machine = ("--machine", "ucmerced-k80", "--workload", "covtype")
    words = ("simulate", *machine, "--policy", "minibatch", "--learner", "none", "--updates", "5", "--explain")
    run = [sys.executable, "-m", "hetsgd.studies.main", *words]
    table = subprocess.run(run, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "Where an assignment's time goes" in table
    assert "link rate" in table
    found = json.loads(subprocess.run([*run, "--json"], capture_output=True, text=True, check=True, timeout=60).stdout)
    assert found["schema"] == "hetsgd.run/1"
    assert [worker["worker"] for worker in found["explain"]] == ["gpu0"]
