"""From synthetic measurements of a machine whose constants are known to a machine file that has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hetsgd.models.calibrated_machine import (
    accelerator_start,
    calibrated_machine,
    core_start,
    disturbed_share,
    raw_samples,
)
from hetsgd.models.calibration import CalibrationRecord
from hetsgd.models.calibration_scope import (
    SHAPES,
    UNSEEN,
    Scope,
    check_cells,
    lane_counts,
    make_of,
    scope_of,
)
from hetsgd.models.machine import Accelerator, Link, Machine, Socket
from hetsgd.models.machine_file import load_machine
from hetsgd.models.measured_links import affine
from hetsgd.models.repeats import central, log_sigma
from hetsgd.models.sample_store import SampleStore
from hetsgd.models.step_fit import StepFit, row_seconds
from hetsgd.studies.machine_writer import machine_text

RECORD = CalibrationRecord(
    date="2026-01-02T03:04:05+00:00", duration_s=180.0, host="a processor", versions=(("torch", "2.13"),),
    disturbed=0.0,
)  # fmt: skip
SOCKET = Socket(
    name="cpu0", cores=2, threads_per_core=1, core_flops_float32=1e11, core_flops_float64=5e10, half_batch=4.0,
    core_bandwidth_bytes_per_s=1e10, dram_bandwidth_bytes_per_s=2e10, dram_bytes=1 << 34, l2_bytes=1 << 21,
    l3_bytes=1 << 28,
)  # fmt: skip
GPU = Accelerator(
    name="cuda:0", device="cuda:0", flops_float32=2e13, flops_float64=1e13, half_batch=256.0,
    memory_bandwidth_bytes_per_s=1.5e12, memory_bytes=1 << 36, l2_bytes=40 << 20, launch_s=6e-6, kernels_per_layer=8.0,
    copy_engines=2,
)  # fmt: skip
HOST = Machine(
    name="local", description="", sockets=(SOCKET,), cpu_lanes=2, message_s=1e-4, decision_s=3e-5,
    accelerators=(GPU, replace(GPU, name="cuda:1", device="cuda:1")),
    links=tuple(
        Link(
            name=f"{name}-pcie", ends=("cpu0", name), latency_s=1e-5, pinned_bytes_per_s=2e10,
            pageable_bytes_per_s=1e10,
        )
        for name in ("cuda:0", "cuda:1")
    ),
)  # fmt: skip
CORE = core_start(SOCKET, {"l2": 7e10, "l3": 3e10, "dram": 1.2e10})
CARD = accelerator_start(GPU, 1.5e12)


def measured(scope: Scope, store: SampleStore, repeats: int = 3) -> None:
    """Everything that a calibration measures, as it follows from known constants, a few per cent off."""
    rng = np.random.default_rng(2)
    truths: dict[str, StepFit] = {
        "cpu0": replace(CORE, costs=replace(CORE.costs, flops_per_s=1.4e11, layer_s=9e-6)),
        "cuda:0": replace(CARD, costs=replace(CARD.costs, flops_per_s=3e13)),
    }
    for shape in scope.shapes:
        for cell in scope.cells(shape):
            truth = truths[cell.device].step_s(cell.shape.workload(), cell.batch, cell.write) * (1 + 0.1 * cell.lanes)
            for _ in range(repeats):
                best_s = truth * float(np.exp(0.02 * rng.normal()))
                store.add(str(cell), [best_s, 1.25 * best_s, 0.0], 1.0)
        for lanes in scope.lane_counts:
            row_s = 0.3 * row_seconds(truths["cpu0"].costs, shape.workload(), 1)
            store.add(f"loss of {shape}, cpu0, {lanes} lanes", [row_s], 1.0)
    for lanes in scope.lane_counts:
        for tier, rate in (("l2", 7e10), ("l3", 3e10), ("dram", 1.2e10)):
            store.add(f"bandwidth {tier}, {lanes} lanes", [lanes * rate], 1.0)
    for kind in ("pull", "push", "load"):
        for size in (10_000, 1_000_000, 50_000_000):
            store.add(f"copy of a run cuda:0 {kind}, {size} bytes", [2e-5 + size / 2.5e10], 1.0)
            store.add(f"pageable copy cuda:0 down, {size} bytes", [2e-5 + size / 6e9], 1.0)
    for key, value in (
        ("round trip gap", 3e-4), ("round trip decision", 1e-4), ("noise cpu0", 0.03), ("noise cuda:0", 0.01),
        ("launch cuda:0", 4e-6), ("memory rate cuda:0", 1.4e12),
    ):  # fmt: skip
        store.add(key, [value], 2.0)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    scope = scope_of(HOST, 3.0)
    # Four networks say enough here, and take a quarter of the time.
    scope = replace(scope, shapes=tuple(shape for shape in SHAPES if shape.precision == "float32")[:7:2])
    with SampleStore(tmp_path_factory.mktemp("samples") / "m.toml.partial", {}) as store:
        measured(scope, store)
        made = calibrated_machine(scope, store, RECORD, name="mine")
        assert disturbed_share(store) == 0.0
        path = tmp_path_factory.mktemp("machines") / "mine.toml"
        text = machine_text(made, origin="measured by hetsgd calibrate, today", raw=raw_samples(store))
        path.write_text(text, encoding="utf-8")
    read = load_machine(path)
    assert replace(read, sources=(), assumed=()) == replace(made, sources=(), assumed=())
    return read


def test_rates_and_latencies_are_those_that_were_measured(host: Machine) -> None:
    socket, gpu = host.sockets[0], host.accelerators[0]
    assert socket.core_flops_float32 == pytest.approx(1.4e11 / 1.1, rel=0.1)
    assert socket.core_bandwidth_bytes_per_s == 1.2e10
    assert socket.dram_bandwidth_bytes_per_s == 2.4e10
    assert gpu.flops_float32 == pytest.approx(3e13 / 1.1, rel=0.25)
    assert gpu.memory_bandwidth_bytes_per_s == 1.4e12
    assert host.message_s == pytest.approx(1e-4)
    assert host.decision_s == 1e-4
    assert (host.noise.cpu_sigma, host.noise.accelerator_sigma) == (0.03, 0.01)


def test_equal_accelerators_are_measured_once_and_described_alike(host: Machine) -> None:
    one, two = host.accelerators
    assert make_of(one) == make_of(two)
    assert (one.name, two.name) == ("cuda:0", "cuda:1")
    for link in host.links:
        assert link.latency_s == pytest.approx(2e-5, rel=0.1)
        assert link.pinned_bytes_per_s == pytest.approx(2.5e10, rel=0.05)
        assert link.pageable_bytes_per_s == pytest.approx(6e9, rel=0.05)


def test_the_fit_is_within_the_noise_and_says_so(host: Machine) -> None:
    for calibration in host.calibrations.values():
        for fit in calibration.fits:
            assert fit.fit_error is not None
            assert fit.held_out_error is not None
            assert fit.spread is not None
            assert fit.fit_error < 0.04
            assert fit.held_out_error < 0.03
            assert 0.005 < fit.spread < 0.03


def test_unseen_networks_are_foretold(host: Machine) -> None:
    truth = replace(CORE, costs=replace(CORE.costs, flops_per_s=1.4e11, layer_s=9e-6))
    calibration = host.calibrations["cpu0"]
    for shape in UNSEEN:
        for batch in (1, 24, 400):
            found = calibration.best_s(shape.workload(), batch)
            assert found == pytest.approx(1.1 * truth.step_s(shape.workload(), batch), rel=0.1)


def test_a_loss_costs_what_was_measured(host: Machine) -> None:
    costs = host.calibrations["cpu0"].fits[0].costs
    assert costs.forward_share == pytest.approx(0.3 / 1.1, rel=0.15)


def test_every_figure_says_that_it_was_measured_or_where_else_it_is_from(host: Machine) -> None:
    sources = dict(host.sources)
    assert sources["link.cuda:0-pcie.latency_s"] == "measured by hetsgd calibrate, today"
    assert sources["socket.cpu0.dram_bytes"] == "said by the system"
    assert host.calibrated == RECORD
    assert set(host.assumed) == {"accelerator.cuda:0.copy_engines", "accelerator.cuda:1.copy_engines"}


def test_a_check_measures_other_batches_and_networks_without_tables(host: Machine) -> None:
    cells = check_cells(host)
    tables = {(curve.shape, batch) for c in host.calibrations.values() for curve in c.curves for batch in curve.batches
              if not curve.held_out}  # fmt: skip
    assert not any((cell.shape, cell.batch) in tables for cell in cells)
    assert {cell.lanes for cell in cells if cell.device == "cpu0"} == {1, 2}
    assert {cell.shape for cell in cells if not cell.held_out} == set(UNSEEN)
    with pytest.raises(ValueError, match="machine local is not calibrated"):
        check_cells(HOST)


def test_a_device_without_measurements_is_an_error(tmp_path: Path) -> None:
    with (
        SampleStore(tmp_path / "p", {}) as store,
        pytest.raises(ValueError, match="no step of cpu0 was measured"),
    ):
        calibrated_machine(scope_of(HOST, 0.1), store, RECORD, name="m")


def test_the_scope_grows_with_the_minutes_and_the_lanes() -> None:
    short, usual = scope_of(HOST, 0.1), scope_of(HOST, 3.0, (UNSEEN[0],))
    assert sum(1 for shape in short.shapes for _ in short.cells(shape)) < 100
    assert sum(1 for shape in usual.shapes for _ in usual.cells(shape)) > 400
    assert usual.shapes == (*SHAPES, UNSEEN[0])
    assert short.least_s < 10.0 < usual.least_s < 180.0
    assert lane_counts(6) == (1, 2, 4, 6)
    for shape in usual.shapes:
        cells = list(usual.cells(shape))
        assert len(set(map(str, cells))) == len(cells)
        assert all(cell.batch <= 16384 for cell in cells)
    with pytest.raises(ValueError, match=r"must be 0.05 to 1440 minutes, got 0"):
        scope_of(HOST, 0.0)


def test_repeats_that_were_held_up_do_not_count() -> None:
    assert central([1.0, 1.02, 1.04, 5.0, 6.0]).value == pytest.approx(1.01, abs=0.005)
    assert central([1.0, 1.0, 1.0]).spread == 0.0


def test_what_steps_take_on_average_is_kept_apart_from_their_best(host: Machine) -> None:
    for calibration in host.calibrations.values():
        assert calibration.slowdown == pytest.approx(1.27, abs=0.03)
        average, best = (ask(UNSEEN[0].workload(), 8) for ask in (calibration.step_s, calibration.best_s))
        assert average == pytest.approx(calibration.slowdown * best)


def test_the_spread_of_steps_is_found_under_drift_and_outliers() -> None:
    rng = np.random.default_rng(0)
    drift = np.linspace(1.0, 1.5, 2000)
    steps = drift * np.exp(0.05 * rng.normal(size=2000))
    steps[::50] *= 20.0
    assert log_sigma(steps.tolist()) == pytest.approx(0.05, rel=0.1)


def test_a_link_that_is_all_latency_or_all_rate_is_found() -> None:
    assert affine([]) is None
    found = affine([(1e6, 1e-3), (1e7, 1e-2), (1e8, 1e-1)])
    assert found is not None
    assert found[1] == pytest.approx(1e9, rel=0.02)
