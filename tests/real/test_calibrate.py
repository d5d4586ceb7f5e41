"""Calibrating the machine at hand with real children: a short one yields a machine that simulates, and resumes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hetsgd.models.calibrated_machine import calibrated_machine, raw_samples
from hetsgd.models.calibration import CalibrationRecord
from hetsgd.models.calibration_scope import Cell, Scope, scope_of
from hetsgd.models.learner import NoLearner
from hetsgd.models.machine_file import load_machine
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.sample_store import SampleStore
from hetsgd.models.step_table import Shape
from hetsgd.models.workload import Workload
from hetsgd.real.bandwidth import copiers, working_sets
from hetsgd.real.calibrate import calibrate
from hetsgd.real.calibration_check import check
from hetsgd.real.host import describe_host
from hetsgd.real.interrupts import Interrupts
from hetsgd.real.link_rates import launch_seconds, memory_rate, transfers
from hetsgd.real.workforce import Interrupted
from hetsgd.sim import simulate
from hetsgd.studies.machine_writer import machine_text
from tests.real.small_runs import small_machine

SMALL = Workload(name="w", dataset="d", rows=512, test_rows=0, features=20, outputs=3, hidden=(32,))
RECORD = CalibrationRecord(date="today", duration_s=1.0, host="here", versions=(), disturbed=0.0)


@pytest.fixture(scope="module")
def scope() -> Scope:
    """One small network on one lane and a stand-in, in as little time as there may be."""
    machine = replace(small_machine(1, ("cpu:0",)), sockets=(replace(small_machine(1, ()).sockets[0], cores=1),))
    return replace(scope_of(machine, 0.05), shapes=(Shape.of(SMALL),), sample_s=0.002)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("calibration") / "m.toml.partial"


@pytest.fixture(scope="module")
def interrupted(scope: Scope, kept: Path) -> list[str]:
    """The keys that an interrupted calibration leaves on disk."""
    told: list[str] = []
    with SampleStore(kept, {}) as store, Interrupts() as interrupts:

        def tell(done: float, what: str) -> None:
            told.append(what)
            if len(told) == 12:
                interrupts.received.append("SIGINT")

        with pytest.raises(Interrupted):
            calibrate(scope, store, interrupts, tell)
        assert told[0].startswith("round 1, memory bandwidth")
        return store.measured()


@pytest.fixture(scope="module")
def measured(scope: Scope, kept: Path, interrupted: list[str]) -> Iterator[SampleStore]:
    """The same calibration, gone on with until its time is over."""
    with SampleStore(kept, {}) as store, Interrupts() as interrupts:
        assert store.measured() == interrupted
        calibrate(scope, store, interrupts, lambda done, what: None)
        yield store


def test_an_interrupt_keeps_what_was_measured_and_the_rest_follows(
    interrupted: list[str], measured: SampleStore, scope: Scope
) -> None:
    assert "bandwidth dram, 1 lanes" in interrupted
    assert len(interrupted) < len(measured.measured())
    cells = [str(cell) for shape in scope.shapes for cell in scope.cells(shape)]
    assert all(measured.count(cell) >= 1 for cell in cells)
    # Each round measures everything once: what was there before is not measured twice in the first.
    counts = [measured.count(cell) for cell in cells]
    assert max(counts) - min(counts) <= 1


def test_a_short_calibration_yields_a_machine_that_simulates(
    scope: Scope, measured: SampleStore, tmp_path: Path
) -> None:
    made = calibrated_machine(scope, measured, RECORD, name="here")
    path = tmp_path / "here.toml"
    path.write_text(machine_text(made, origin="measured", raw=raw_samples(measured)), encoding="utf-8")
    machine = load_machine(path)
    seconds = machine.calibrations["cpu0"].step_s(SMALL, 16)
    assert 5e-6 < seconds < 5e-3
    assert machine.calibrations["cpu:0"].step_s(SMALL, 512) > machine.calibrations["cpu:0"].step_s(SMALL, 1)
    assert 1e-7 <= machine.message_s < 0.1
    assert 1e8 < machine.links[0].pinned_bytes_per_s < 1e12
    plan = Plan(
        machine=replace(machine, noise=replace(machine.noise, cpu_sigma=0.0)), workload=SMALL, policy="hogwild",
        recipe=recipe("hogwild", cpu_batch=16), run=RunSettings(stop=StopRule(epochs=1)),
    )  # fmt: skip
    trace = simulate(plan, NoLearner())
    assert trace.notes == []
    assert trace.totals.busy_s["cpu[0]", "compute"] == pytest.approx(512 / 16 * seconds)


def test_a_check_measures_what_is_predicted(scope: Scope, measured: SampleStore) -> None:
    machine = calibrated_machine(scope, measured, RECORD, name="here")
    cells = [
        Cell(device="cpu0", lanes=1, shape=Shape.of(SMALL), batch=3),
        Cell(device="cpu:0", lanes=1, shape=Shape.of(SMALL), batch=48, held_out=True),
    ]
    with Interrupts() as interrupts:
        found = check(machine, cells, 2, interrupts, lambda done, what: None)
    assert [one.cell for one in found] == cells
    # Of the right size on any machine, however busy it is.
    assert all(-0.9 < one.error < 9.0 for one in found)


def test_bandwidth_is_that_of_all_lanes_together_and_working_sets_lie_in_their_tiers() -> None:
    socket = small_machine(1, ()).sockets[0]
    sets = {one.tier: one.size_bytes for one in working_sets(socket, 2, 1 << 34)}
    assert sets["l2"] <= socket.l2_bytes < sets["l3"] <= socket.l3_bytes // 2 < sets["dram"]
    with copiers(2) as copying:
        one, two = (copying.rate(lanes, 1 << 16, 0.01) for lanes in (1, 2))
    assert 1e8 < one < two


def test_copies_and_launches_of_any_device_are_timed() -> None:
    found = transfers("cpu")
    assert {(one.direction, one.memory) for one in found} == {("down", "pageable"), ("up", "pageable")}
    assert all(one.seconds > 0.0 for one in found)
    assert 1e-8 < launch_seconds("cpu") < 1e-2
    assert memory_rate("cpu", 1 << 20) > 1e7


def test_the_host_is_described_without_its_name_or_paths() -> None:
    import socket as network

    text = describe_host(2)
    assert "2 of " in text
    assert network.gethostname() not in text
    assert "/" not in text.replace("GHz/", "")
