"""The record of a run: the object with its fixed names, strict JSON, and a folder that is whole or says why not."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsgd import __version__
from hetsgd.models.loss_curve import LossReference
from hetsgd.models.machine_file import load_machine
from hetsgd.models.metrics import metrics
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.trace import Trace
from hetsgd.models.workload_file import WorkloadError, load_workload
from hetsgd.studies.out_folder import owner_of
from hetsgd.studies.record import (
    OutputError,
    check_folder,
    read_run,
    resolved_inputs,
    run_record,
    strict,
    to_json,
    write_run,
)

SmallRun = Callable[..., Trace]


@pytest.fixture(scope="module")
def plan() -> Plan:
    machine = load_machine("aws-p3.16xlarge", {})
    gpu = replace(machine.accelerators[0], name="gpu")  # as the run worked out by hand calls it
    links = tuple(replace(link, ends=(link.ends[0], link.ends[1].replace("gpu0", "gpu"))) for link in machine.links)
    return Plan(
        machine=replace(machine, accelerators=(gpu,), links=links),
        workload=replace(load_workload("quickstart", data=False).workload, rows=20),
        policy="adaptive-hogbatch",
        recipe=recipe("adaptive-hogbatch", alpha=3.0),
        run=RunSettings(stop=StopRule(seconds=10.0), seed=5, learning_rate=0.3),
    )


def record_of(plan: Plan, trace: Trace, reference: LossReference | None = None) -> dict[str, Any]:
    found = metrics(trace, plan=plan, loss_reference=reference)
    return run_record(plan, found, engine="sim", learner="none", wall_s=0.25)


# -- the object --------------------------------------------------------------------------------------------------


def test_the_object_has_the_names_and_values_that_are_documented(small_run: SmallRun, plan: Plan) -> None:
    found = record_of(plan, small_run(), LossReference(initial=1.0, best=0.2))
    assert found["schema"] == "hetsgd.run/1"
    assert (found["engine"], found["learner"], found["seed"]) == ("sim", "none", 5)
    assert (found["elapsed_s"], found["wall_s"], found["status"]) == (10.0, 0.25, "done")
    assert (found["examples"], found["epochs"], found["epoch_s"]) == (22, 1.1, [8.0])
    assert found["updates"] == {"cpu": 6, "accelerator": 1}
    assert found["update_share"] == pytest.approx({"cpu": 6 / 7, "accelerator": 1 / 7})
    assert found["utilization"] == pytest.approx({"cpu": 0.75, "accelerator": 0.3, "accelerator_driver": 0.45})
    assert found["batch"] == {"cpu": 1, "gpu": 16}
    assert found["staleness"]["accelerator"] == {"mean": 2.0, "p50": 2, "p95": 2, "max": 2}
    assert found["events"] == 33
    assert found["faults"] == [{"at_s": 9.5, "worker": "cpu", "lane": -1, "kind": "killed", "rows": 2}]
    assert [{key: point[key] for key in ("t_s", "epoch", "update", "train", "test")} for point in found["loss"]] == [
        {"t_s": 0.0, "epoch": 0.0, "update": 0, "train": 1.0, "test": None},
        {"t_s": 6.0, "epoch": 1.0, "update": 5, "train": 0.4, "test": 0.5},
        {"t_s": 10.0, "epoch": 1.1, "update": 7, "train": 0.2, "test": 0.3},
    ]
    assert found["time_to_loss_s"] == pytest.approx({"0.5": 4.0, "0.8": 6.8, "0.9": 8.4, "0.95": 9.2})


def test_machine_workload_policy_and_run_are_resolved(small_run: SmallRun, plan: Plan) -> None:
    found = record_of(plan, small_run())
    assert found["machine"]["name"] == "aws-p3.16xlarge"
    assert found["machine"]["accelerators"][0]["flops_float64"] == plan.machine.accelerators[0].flops_float64
    assert found["workload"]["name"] == "quickstart"
    assert found["workload"]["hidden"] == [64, 64]
    assert found["workload"]["parameters"] == plan.workload.parameters
    assert found["policy"]["name"] == "adaptive-hogbatch"
    assert found["policy"]["keys"]["alpha"] == 3.0
    assert found["run"]["learning_rate"] == 0.3
    assert found["run"]["stop"] == {"seconds": 10.0, "epochs": None, "updates": None, "target_loss": None}


def test_without_a_reference_a_run_has_no_time_to_loss(small_run: SmallRun, plan: Plan) -> None:
    assert record_of(plan, small_run())["time_to_loss_s"] is None


def test_a_level_that_was_not_reached_is_null(small_run: SmallRun, plan: Plan) -> None:
    found = record_of(plan, small_run(), LossReference(initial=1.0, best=0.01))
    assert found["time_to_loss_s"]["0.5"] == pytest.approx(6.0 * 0.495 / 0.6)
    assert found["time_to_loss_s"]["0.95"] is None


def test_a_merge_of_two_classes_is_a_part_of_an_update_for_each(small_run: SmallRun, plan: Plan) -> None:
    trace = small_run()
    trace.totals.updates.update({"cpu": 6.5, "accelerator": 1.5})
    assert record_of(plan, trace)["updates"] == {"cpu": 6.5, "accelerator": 1.5}


def test_resolved_inputs_name_everything_and_the_versions(plan: Plan) -> None:
    found = resolved_inputs(plan, engine="sim", learner="none")
    assert found["versions"]["hetsgd"] == __version__
    assert {"python", "numpy", "simpy"} <= set(found["versions"])
    assert found["machine"]["assumed"] == list(plan.machine.assumed)
    assert found["machine"]["sources"]
    assert found["run"]["seed"] == 5


@dataclass
class Odd:
    """A recipe of somebody's own, with a value that JSON does not know."""

    limit: float = math.inf
    where: Path = Path("here")


def test_a_policy_with_values_of_any_kind_can_be_recorded(small_run: SmallRun, plan: Plan) -> None:
    odd: Any = Odd()
    found = record_of(replace(plan, recipe=odd, policy="own:Odd"), small_run())
    assert found["policy"] == {"name": "own:Odd", "object": f"{__name__}:Odd", "keys": {"limit": None, "where": "here"}}


# -- strict JSON -------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.floats(), inner),
    max_leaves=12,
)


def refuse(constant: str) -> float:
    raise AssertionError(f"{constant} is no JSON")


@given(st.dictionaries(st.text(), JSON))
def test_whatever_is_recorded_is_json_without_nan_and_reads_back_the_same(value: dict[str, Any]) -> None:
    text = to_json(value)
    assert json.loads(text, parse_constant=refuse) == strict(value)


def test_numbers_of_numpy_become_plain_ones() -> None:
    value = {"a": np.float64("nan"), "b": np.int32(3), "c": [np.float32(0.5)], "d": frozenset({1})}
    assert strict(value) == {"a": None, "b": 3, "c": [0.5], "d": [1]}


# -- on disk -----------------------------------------------------------------------------------------------------


def save(folder: Path, plan: Plan, trace: Trace, extra: Callable[[Path], None] | None = None) -> Path:
    resolved = resolved_inputs(plan, engine="sim", learner="none")
    return write_run(folder, record=record_of(plan, trace), resolved=resolved, trace=trace, extra=extra)


def test_a_run_comes_back_whole(small_run: SmallRun, plan: Plan, tmp_path: Path) -> None:
    trace = small_run()
    folder = save(tmp_path / "deep" / "run", plan, trace)
    assert {path.name for path in folder.iterdir()} == {"run.json", "resolved.json", "trace"}
    json.loads((folder / "run.json").read_text(), parse_constant=refuse)
    stored = read_run(folder)
    assert stored.record == record_of(plan, trace)
    assert stored.resolved == resolved_inputs(plan, engine="sim", learner="none")
    assert stored.trace.totals == trace.totals
    assert metrics(stored.trace, plan=plan).loss[1:] == metrics(trace, plan=plan).loss[1:]


def test_a_second_run_replaces_the_first_and_leaves_other_files_alone(
    small_run: SmallRun, plan: Plan, tmp_path: Path
) -> None:
    save(tmp_path, plan, small_run())
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "trace" / "left over.parquet").write_text("old")
    save(tmp_path, replace(plan, policy="again"), small_run("summary"))
    assert read_run(tmp_path).record["policy"]["name"] == "again"
    assert read_run(tmp_path).trace.level == "summary"
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "trace" / "left over.parquet").exists()
    assert not list(tmp_path.glob(".part-*"))


def test_more_files_can_be_written_with_a_run(small_run: SmallRun, plan: Plan, tmp_path: Path) -> None:
    def model(part: Path) -> None:
        (part / "model.pt").write_bytes(b"model")

    folder = save(tmp_path, plan, small_run(), extra=model)
    assert (folder / "model.pt").read_bytes() == b"model"


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("run.json", {"updates": 3}, r"run\.json: updates: must be a table, got 3"),
        ("run.json", {"epoch_s": "soon"}, r"run\.json: epoch_s: must be a list, got 'soon'"),
        ("run.json", {"elapsed_s": "1"}, r"run\.json: elapsed_s: must be a number, got '1'"),
        ("run.json", {"staleness": {"cpu": 1}}, r"run\.json: staleness: must be a table, got \{'cpu': 1\}"),
        ("run.json", {"policy": {}}, r"run\.json: policy: must be given"),
        ("run.json", None, r"run\.json: engine: must be given; machine: must be given; "),
        ("run.json", {"schema": "hetsgd.run/9"}, r"run\.json: schema must be hetsgd\.run/1, got 'hetsgd\.run/9'"),
        ("resolved.json", None, r"resolved\.json: engine: must be given"),
        ("resolved.json", {"schema": None}, r"resolved\.json: schema must be hetsgd\.resolved/1, got None"),
        ("resolved.json", {"machine_set": 3}, r"resolved\.json: machine_set: must be a list, got 3"),
    ],
)
def test_a_stored_run_of_other_contents_is_refused_by_file_and_key(
    small_run: SmallRun, plan: Plan, tmp_path: Path, file: str, change: dict[str, Any] | None, message: str
) -> None:
    save(tmp_path, plan, small_run())
    content = json.loads((tmp_path / file).read_text())
    changed = {"schema": content["schema"]} if change is None else {**content, **change}
    (tmp_path / file).write_text(json.dumps(changed))
    with pytest.raises(OutputError, match=message):
        read_run(tmp_path)
    there = owner_of(tmp_path)
    assert there is not None
    assert there.kind == "run"


def test_what_is_no_path_is_refused() -> None:
    with pytest.raises(OutputError, match="folder: must be a path, got 5"):
        read_run(5)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(WorkloadError, match="workload: must be a name or a path, got 5"):
        load_workload(5)  # type: ignore[arg-type]  # wrong on purpose


def test_a_run_that_cannot_be_written_leaves_the_old_one_whole(small_run: SmallRun, plan: Plan, tmp_path: Path) -> None:
    save(tmp_path, plan, small_run())

    def disk_full(part: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match=r"cannot be written: No space left on device; free space or name another"):
        save(tmp_path, replace(plan, policy="again"), small_run(), extra=disk_full)
    assert read_run(tmp_path).record["policy"]["name"] == "adaptive-hogbatch"
    assert {path.name for path in tmp_path.iterdir()} == {"run.json", "resolved.json", "trace"}


def test_a_folder_that_cannot_be_written_is_named_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(OutputError, match=r"file: must be a folder, it is a file; name another one with --out"):
        check_folder(file)
    with pytest.raises(OutputError, match=r"must be a folder that can be written: Not a directory; name another one"):
        check_folder(file / "below")
    assert check_folder(tmp_path / "new") == tmp_path / "new"

    def read_only(**options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", read_only)
    with pytest.raises(OutputError, match="must be a folder that can be written: Permission denied"):
        check_folder(tmp_path / "new")


def test_a_folder_without_a_run_or_with_a_damaged_one_is_named(small_run: SmallRun, plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"run\.json: no such file; a run's folder is what simulate or train wrote"):
        read_run(tmp_path)
    save(tmp_path, plan, small_run())
    (tmp_path / "trace" / "spans.parquet").unlink()
    with pytest.raises(OutputError, match=r"holds no whole trace: .*spans\.parquet"):
        _ = read_run(tmp_path).trace
    (tmp_path / "run.json").write_text('{"schema": "hetsgd.validation/1"}')
    with pytest.raises(OutputError, match=r"schema must be hetsgd\.run/1, got 'hetsgd\.validation/1'"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(OutputError, match="must hold one object, got list"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(OutputError, match=r"run\.json: must be JSON"):
        read_run(tmp_path)
    (tmp_path / "run.json").unlink()
    (tmp_path / "run.json").mkdir()
    with pytest.raises(OutputError, match=r"run\.json: cannot be read: Is a directory"):
        read_run(tmp_path)
