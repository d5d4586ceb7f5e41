"""Step times of a calibrated device: tables where the network was measured, the fit elsewhere, and where neither is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hetsgd.models.calibration import Calibration, CalibrationRecord
from hetsgd.models.cost import accelerator_step, lane_forward, lane_step
from hetsgd.models.learner import NoLearner
from hetsgd.models.machine import Machine
from hetsgd.models.machine_file import MachineError, load_machine
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.step_fit import StepCosts, StepFit
from hetsgd.models.step_table import Shape, StepCurve
from hetsgd.models.trace import SPAN_CODE, Trace
from hetsgd.models.workload import Workload
from hetsgd.sim import simulate
from hetsgd.studies.machine_writer import machine_text

FIT = StepFit(
    precision="float32", lanes=1, fused=True, overlaps=False, l2_bytes=1 << 20, l3_bytes=1 << 26, batches=(1, 256),
    parameters=(100, 1_000_000), fit_error=0.04, spread=0.01,
    costs=StepCosts(
        overhead_s=1e-4, layer_s=1e-5, l2_bytes_per_s=1e11, l3_bytes_per_s=4e10, dram_bytes_per_s=1e10,
        flops_per_s=1e11, half_batch=1.0, element_s=1e-9, row_s=1e-7,
    ),
)  # fmt: skip
KNOWN = Workload(name="k", dataset="d", rows=4096, test_rows=16, features=54, outputs=2, hidden=(64, 64))
OTHER = replace(KNOWN, hidden=(96, 96))
BATCHES = (1, 16, 256)
RATIOS = (2.0, 1.0, 1.5)


def table(lanes: int = 1, factor: float = 1.0) -> StepCurve:
    """Measured times that are 2, 1 and 1.5 times the fitted ones."""
    return StepCurve(
        shape=Shape.of(KNOWN), lanes=lanes, write="in_place", batches=BATCHES, spreads=(0.01,) * 3,
        seconds=tuple(
            factor * ratio * FIT.step_s(KNOWN, batch) for batch, ratio in zip(BATCHES, RATIOS, strict=True)
        ),
    )  # fmt: skip


MEASURED = Calibration(fits=(FIT, replace(FIT, lanes=4)), curves=(table(), table(4, 3.0)))


def machine(calibration: Calibration = MEASURED) -> Machine:
    """A server with this calibration on its cores and its GPU."""
    base = load_machine("aws-p3.16xlarge")
    return replace(
        base,
        cpu_lanes=4,
        sockets=(replace(base.sockets[0], calibration=calibration), *base.sockets[1:]),
        accelerators=tuple(replace(acc, calibration=calibration) for acc in base.accelerators),
        calibrated=CalibrationRecord(
            date="2026-01-02T03:04:05+00:00", duration_s=180.0, host="a processor", versions=(("torch", "2.13"),),
            disturbed=0.0,
        ),
    )  # fmt: skip


def test_at_a_measured_batch_the_table_says_it_exactly() -> None:
    for batch, seconds in zip(BATCHES, table().seconds, strict=True):
        assert MEASURED.step_s(KNOWN, batch) == pytest.approx(seconds)
        assert MEASURED.step_s(KNOWN, batch, lanes=4) == pytest.approx(3.0 * seconds)


def test_between_measured_batches_the_ratio_to_the_fit_is_linear_in_the_logarithm() -> None:
    assert MEASURED.step_s(KNOWN, 4) == pytest.approx(1.5 * FIT.step_s(KNOWN, 4))
    assert MEASURED.step_s(KNOWN, 64) == pytest.approx(1.25 * FIT.step_s(KNOWN, 64))
    assert MEASURED.step_s(KNOWN, 1024) == pytest.approx(1.5 * FIT.step_s(KNOWN, 1024))


def test_between_measured_lanes_times_lie_between() -> None:
    one, four = MEASURED.step_s(KNOWN, 16), MEASURED.step_s(KNOWN, 16, lanes=4)
    assert MEASURED.step_s(KNOWN, 16, lanes=2) == pytest.approx((one + four) / 2.0)
    assert MEASURED.step_s(KNOWN, 16, lanes=9) == pytest.approx(four)


def test_a_network_without_a_table_has_the_fitted_time() -> None:
    assert MEASURED.step_s(OTHER, 16) == pytest.approx(FIT.step_s(OTHER, 16))
    assert MEASURED.step_s(replace(KNOWN, activation="relu"), 16) == pytest.approx(FIT.step_s(KNOWN, 16))


def test_held_out_times_are_not_used() -> None:
    spoiled = replace(table(), held_out=True, seconds=(1.0, 1.0, 1.0))
    assert Calibration(fits=(FIT,), curves=(spoiled,)).step_s(KNOWN, 16) == pytest.approx(FIT.step_s(KNOWN, 16))


def test_a_gradient_has_its_own_measurements_where_there_are_some() -> None:
    handed = replace(
        table(), write="gradient", batches=(16,), spreads=(0.0,), seconds=(7.0 * FIT.step_s(KNOWN, 16, "gradient"),)
    )
    both = Calibration(fits=(FIT,), curves=(table(), handed))
    assert both.step_s(KNOWN, 16, write="gradient") == pytest.approx(7.0 * FIT.step_s(KNOWN, 16, "gradient"))
    assert both.step_s(KNOWN, 16) == pytest.approx(table().seconds[1])


@pytest.mark.parametrize(
    ("workload", "batch", "lanes", "axis"),
    [
        (KNOWN, 257, 1, "batch 257 (calibrated: 1 to 256)"),
        (KNOWN, 16, 8, "lanes 8 (calibrated: up to 4)"),
        (replace(KNOWN, hidden=(2048, 2048)), 16, 1, "parameters 4,313,090 (calibrated: 100 to 1,000,000)"),
        (replace(KNOWN, precision="float64"), 16, 1, "precision float64 (calibrated: float32)"),
        (replace(KNOWN, sparse=True, density=0.01), 16, 1, "density 0.01 (calibrated: dense features)"),
        (KNOWN, 200, 4, None),
    ],
)
def test_what_is_beyond_the_calibration_is_named(workload: Workload, batch: int, lanes: int, axis: str | None) -> None:
    assert list(MEASURED.outside(workload, batch, lanes=lanes)) == ([] if axis is None else [axis])


def test_the_cost_model_takes_measured_times() -> None:
    host = machine()
    socket, gpu = host.sockets[0], host.accelerators[0]
    assert lane_step(KNOWN, socket, batch=16, lanes=4).alone_s == pytest.approx(3.0 * table().seconds[1])
    assert accelerator_step(KNOWN, gpu, batch=16).alone_s == pytest.approx(table().seconds[1])
    assert lane_forward(KNOWN, socket, rows=100).alone_s == pytest.approx(FIT.forward_s(KNOWN, 100))


def test_lanes_that_were_measured_together_do_not_wait_for_memory_a_second_time() -> None:
    socket = replace(machine().sockets[0], dram_bandwidth_bytes_per_s=1e6)
    load = lane_step(KNOWN, socket, batch=16, tier="dram", lanes=4)
    assert 4 * load.dram_bytes / load.alone_s <= 1.000001e6


def test_what_was_not_measured_comes_from_the_rates() -> None:
    host, plain = machine(), load_machine("aws-p3.16xlarge")
    for other in (replace(KNOWN, precision="float64"), replace(KNOWN, sparse=True, density=0.01)):
        assert lane_step(other, host.sockets[0], batch=16) == lane_step(other, plain.sockets[0], batch=16)


def run(host: Machine, policy: str, **keys: int) -> Trace:
    plan = Plan(
        machine=host, workload=KNOWN, policy=policy, recipe=recipe(policy, **keys),
        run=RunSettings(stop=StopRule(epochs=1)),
    )  # fmt: skip
    return simulate(plan, NoLearner())


def test_a_stand_in_and_the_lanes_count_as_lanes_of_one_socket_while_both_are_used() -> None:
    base = machine()
    stand_in = replace(base.accelerators[0], name="gpu0", device="cpu")
    host = replace(
        base, cpu_lanes=3, accelerators=(stand_in,), sockets=base.sockets[:1], links=base.links[:1]
    )  # fmt: skip

    def step_s(policy: str, place: str, steps: int, **keys: int) -> float:
        return run(host, policy, **keys).totals.busy_s[place, "compute"] / steps

    alone, beside = table().seconds[1], 3.0 * table().seconds[1]
    assert step_s("minibatch", "gpu0", 4096 // 16, accelerator_batch=16) == pytest.approx(alone)
    both = run(host, "hogbatch", cpu_batch=16, accelerator_batch=16)
    for place in ("cpu[0]", "gpu0"):
        spans = both["spans"][both["spans"]["kind"] == SPAN_CODE["compute"]]
        own = spans[spans["place_text"] == both.code(place)]
        # Copies take a little of the memory that lanes draw on.
        assert np.median(own["end_s"] - own["start_s"]) == pytest.approx(beside, rel=0.02)


def test_a_run_beyond_the_calibration_says_so_once_for_each_axis() -> None:
    trace = run(replace(machine(), cpu_lanes=8), "hogwild", cpu_batch=512)
    assert trace.notes == [
        "cpu0 is used beyond its calibration: batch 512 (calibrated: 1 to 256)",
    ]
    assert run(machine(), "minibatch", accelerator_batch=300).notes == [
        "gpu0 is used beyond its calibration: batch 300 (calibrated: 1 to 256)"
    ]
    assert run(machine(), "minibatch", accelerator_batch=128).notes == []


def test_a_calibrated_machine_survives_its_file(tmp_path: Path) -> None:
    host = machine()
    path = tmp_path / "mine.toml"
    path.write_text(machine_text(host, origin="measured by hetsgd calibrate"), encoding="utf-8")
    read = load_machine(path)
    assert read.sockets[0].calibration == MEASURED
    assert read.sockets[1].calibration is None
    assert read.calibrated == host.calibrated
    assert dict(read.sources)["machine.message_s"]
    assert replace(read, sources=(), assumed=(), name="m") == replace(host, sources=(), assumed=(), name="m")


def test_what_is_set_goes_before_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(machine_text(machine(), origin="measured by hetsgd calibrate"), encoding="utf-8")
    slow = load_machine(path, {"cpu0.core_flops_float32": 1e6})
    assert slow.sockets[0].calibration is None
    assert "calibration of cpu0 set aside, since core_flops_float32 is set" in slow.description
    assert slow.accelerators[0].calibration is not None
    assert load_machine(path, {"cpu0.dram_bytes": 10**12}).sockets[0].calibration == MEASURED


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'device = "gpu0"\nprecision',
            'device = "gpu7"\nprecision',
            r"calibration.fit.device: must be one of .*'gpu7'",
        ),
        ("flops_per_s = 100000000000.0", "flops_per_s = -1.0", r"fit: flops_per_s must be > 0 and finite, got -1.0"),
        ("half_batch = 1.0\nelement", "element", r"calibration.fit.0.half_batch: must be given"),
        ("batches = [1, 16, 256]", "batches = [1, 256, 16]", r"batches must rise from at least 1, got \[1, 256, 16\]"),
        ("duration_s = 180.0", 'duration_s = "long"', r"calibration.duration_s: must be a valid number.*'long'"),
        ('host = "a processor"', "hots = 1", r"calibration.hots: no such key, did you mean 'host'"),
    ],
)
def test_a_broken_calibration_is_refused_by_name(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = machine_text(machine(), origin="measured by hetsgd calibrate")
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(MachineError, match=message):
        load_machine(path)
