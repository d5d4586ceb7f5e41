"""What the summary of one run says of its clock, its rows and what was lost."""

from __future__ import annotations

from typing import Any

from hetsgd.studies.summary import summary_rows
from tests.studies.records import record


def rows(**changes: Any) -> dict[str, str]:
    workload = {
        "name": "w", "features": 4, "hidden": [3], "outputs": 2, "precision": "float32", "rows": 480, "dataset": "d",
    }  # fmt: skip
    content: dict[str, Any] = {
        "engine": "sim", "learner": "none", "run": {"stop": {"updates": None}}, "workload": workload,
        "policy": {"name": "hogbatch", "keys": {}},
        "machine": {"name": "m", "cpu_lanes": 2, "accelerators": [{"name": "gpu0"}]},
    }  # fmt: skip
    return dict(summary_rows(record([(0.0, 0.7), (2.0, 0.5)], **{**content, **changes})))


def test_virtual_seconds_and_those_of_the_person_are_told_apart() -> None:
    assert rows()["time"] == "2 s on the simulated machine (no losses); simulating took 1 s"
    assert rows(engine="real", device="2 lanes")["time"] == (
        "2 s of training, measured on 2 lanes; 1 s with start-up and losses"
    )


def test_a_batch_has_no_more_rows_than_there_are_and_one_epoch_is_one() -> None:
    found = rows(batch={"cpu": 1, "gpu0": 8192}, epochs=1.0)
    assert found["batch"] == "cpu 1, gpu0 480"
    assert "1 epoch," in found["work"]


def test_updates_that_others_overwrote_are_told_and_staleness_has_its_unit() -> None:
    assert rows(updates_overwritten=25)["work"].endswith(
        "100 updates; 25 of them (25.0 %) overwritten by copies of accelerators"
    )
    assert "overwritten" not in rows()["work"]
    assert rows()["staleness"].endswith("(in updates)")


def test_one_lane_alone_is_serial() -> None:
    machine = {"name": "local", "cpu_lanes": 1, "accelerators": [{"name": "cpu:0"}]}
    assert "1 CPU lane, so this is serial SGD" in rows(machine=machine)["machine"]
    assert "serial" not in rows(machine=machine, batch={"cpu": 1, "cpu:0": 8})["machine"]
