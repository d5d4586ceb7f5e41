"""The tables of inputs: figures in units, what is alike said once, calibrations in a row per fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hetsgd.models.calibration import Calibration, CalibrationRecord
from hetsgd.models.machine import Machine
from hetsgd.models.machine_file import load_machine
from hetsgd.models.run import StopRule
from hetsgd.models.step_fit import StepCosts, StepFit
from hetsgd.studies.answer import answer_lines, not_established
from hetsgd.studies.campaign import StudyResult
from hetsgd.studies.input_tables import calibration_table, input_tables, machine_table
from hetsgd.studies.machine_writer import machine_text
from hetsgd.studies.presented import presented
from hetsgd.studies.record import described
from hetsgd.studies.resolve import Ask, resolve
from hetsgd.studies.study import Study, Variant
from tests.studies.records import case, record, stored

FIT = StepFit(
    precision="float32", lanes=1, fused=True, overlaps=False, l2_bytes=1 << 20, l3_bytes=1 << 26, batches=(1, 1024),
    parameters=(100, 1_000_000), fit_error=0.054, held_out_error=0.036, spread=0.01,
    costs=StepCosts(
        overhead_s=1e-4, layer_s=1e-5, l2_bytes_per_s=1e11, l3_bytes_per_s=4e10, dram_bytes_per_s=1e10,
        flops_per_s=1e11, half_batch=1.0, element_s=1e-9, row_s=1e-7,
    ),
)  # fmt: skip


def server(disturbed: float) -> Machine:
    """A server whose GPU is calibrated."""
    base = load_machine("aws-p3.16xlarge")
    measured = CalibrationRecord(date="2026-01-02", duration_s=24.0, host="a box", versions=(), disturbed=disturbed)
    cards = tuple(replace(card, calibration=Calibration(fits=(FIT,))) for card in base.accelerators)
    return replace(base, accelerators=cards, calibrated=measured)


def calibrated(disturbed: float) -> dict[str, Any]:
    """The same as a run records it."""
    return described(server(disturbed))


def values(machine: dict[str, Any]) -> dict[str, str]:
    return {row[0]: row[1] for row in machine_table("m", machine).rows}


def test_figures_have_units_that_a_person_reads() -> None:
    shown = values(described(load_machine("aws-p3.16xlarge")))
    assert shown["socket.cpu0.core_flops_float32"] == "73.6 GFLOP/s"
    assert shown["socket.cpu0.dram_bytes"] == "244 GB"
    assert shown["machine.message_s"] == "10 µs"
    assert shown["socket.cpu0.l3_bytes"] == "45 MiB"
    assert shown["socket.cpu0.idle_watts"] == "37 W"
    assert not any("e+" in value or "e-" in value for value in shown.values())


def test_what_is_like_another_is_said_in_one_row() -> None:
    shown = values(described(load_machine("aws-p3.16xlarge", {"accelerators": 8})))
    for number in range(1, 8):
        assert [key for key in shown if key.startswith(f"accelerator.gpu{number}")] == [f"accelerator.gpu{number}"]
        assert shown[f"accelerator.gpu{number}"] == "as gpu0"
    assert shown["socket.cpu1"] == "as cpu0"
    assert shown["link.pcie1"].endswith("gpu1, as pcie0")


def test_a_calibration_is_a_table_of_its_own_and_no_row_is_longer_than_a_line() -> None:
    machine = calibrated(0.81)
    table = calibration_table("here", machine)
    assert table.rows == (("gpu0", "float32", "1", "5.4 %", "3.6 %", "1.0 %", "1 to 1,024", "100 to 1,000,000"),)
    assert "Other programs had the processor during 81 % of the measurements." in table.note
    assert not any("calibration" in key for key in values(machine))
    assert max(len(cell) for row in machine_table("m", machine).rows for cell in row) < 250


def result(machine: dict[str, Any]) -> StudyResult:
    """A study of one run on this machine."""
    workload = {
        "name": "w", "description": "d", "features": 2, "hidden": [], "outputs": 2, "activation": "relu", "bias": True,
        "loss": "softmax", "initial": "normal", "initial_scale": 1.0, "precision": "float32", "rows": 9,
        "test_rows": 3, "density": 1.0, "source": "s",
    }  # fmt: skip
    run = replace(stored(record([(0.0, 1.0), (1.0, 0.0)])), resolved={"machine": machine, "workload": workload})
    study = Study(name="s", question="?", machines=("m",), workloads=("w",), seeds=(0,), stop=StopRule(seconds=1.0),
                  variants=(Variant(label="a", policy="a"),))  # fmt: skip
    return StudyResult(study=study, found={case("a"): run}, choices=(), failures=(), wall_s=1.0)


def test_a_report_says_that_its_calibration_was_disturbed() -> None:
    told = [line for line in not_established(result(calibrated(0.81))) if "81 %" in line]
    assert len(told) == 1
    assert "How fast m is when nothing else runs on it" in told[0]
    assert not any("measurements" in line for line in not_established(result(calibrated(0.02))))
    titles = [table.title for table in input_tables(result(calibrated(0.0)))]
    assert titles[-2:] == ["Machine m", "Calibration of m"]


def test_every_run_with_such_a_machine_file_notes_it(tmp_path: Path) -> None:
    for disturbed, told in ((0.68, ["68 %"]), (0.05, [])):
        path = tmp_path / f"box{len(told)}.toml"
        path.write_text(machine_text(server(disturbed), origin="a test"))
        ready = resolve(Ask(machine=str(path), workload="quickstart", policy="minibatch", learner="none"))
        notes = [note for note in ready.notices if "other programs had the processor" in note]
        assert len(notes) == len(told)
        assert all(part in note for part, note in zip(told, notes, strict=True))


def test_a_machine_file_is_called_by_the_name_in_it_as_in_single_runs() -> None:
    one = result({**calibrated(0.0), "name": "my-box"})
    asked = replace(one.study, machines=("my-box.toml",))
    from_file = replace(one, study=asked, found={case("a", machine="my-box.toml"): run for run in one.found.values()})
    shown = presented(from_file)
    assert shown.study.machines == ("my-box",)
    assert answer_lines(from_file)[0].startswith("On my-box, ")
    assert "Machine my-box" in [table.title for table in input_tables(shown)]
    # A file whose name another machine of the study has stays as it was typed.
    both = replace(from_file, study=replace(asked, machines=("my-box", "my-box.toml")))
    assert presented(both).study.machines == ("my-box", "my-box.toml")
