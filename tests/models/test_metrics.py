"""Metrics against a run of ten seconds that was worked out by hand (see `small_run`)."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsgd.models.loss_curve import LossReference
from hetsgd.models.machine import Accelerator, Link, Machine, Socket
from hetsgd.models.metrics import BatchStep, FaultSeen, Staleness, metrics, peak_flops, staleness_of
from hetsgd.models.plan import Plan
from hetsgd.models.policy import Fleet, Kind, LaneMode, Schedule
from hetsgd.models.run import RunSettings, StopRule, TraceLevel
from hetsgd.models.trace import Trace
from hetsgd.models.workload import Workload

SmallRun = Callable[..., Trace]
LEVELS: tuple[TraceLevel, ...] = ("none", "summary", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """A recipe that is never begun: a plan needs one."""

    kinds: ClassVar[tuple[Kind, ...]] = ("cpu", "accelerator")
    lane_modes: ClassVar[tuple[LaneMode, ...]] = ("barrier",)
    max_lookahead: ClassVar[int] = 0
    reads_losses: ClassVar[bool] = False

    def begin(self, fleet: Fleet) -> Schedule:
        raise NotImplementedError


def plan() -> Plan:
    socket = Socket(
        name="socket", cores=2, threads_per_core=2, core_flops_float32=100.0, core_flops_float64=50.0, half_batch=1.0,
        core_bandwidth_bytes_per_s=1.0, dram_bandwidth_bytes_per_s=1.0, dram_bytes=1, l2_bytes=1, l3_bytes=1,
    )  # fmt: skip
    gpu = Accelerator(
        name="gpu", device="cpu", flops_float32=1000.0, flops_float64=500.0, half_batch=1.0,
        memory_bandwidth_bytes_per_s=1.0, memory_bytes=1, l2_bytes=1, launch_s=0.0, kernels_per_layer=1.0,
    )  # fmt: skip
    link = Link(name="pcie", ends=("socket", "gpu"), latency_s=0.0, pinned_bytes_per_s=1.0, pageable_bytes_per_s=1.0)
    machine = Machine(
        name="small", description="", sockets=(socket,), accelerators=(gpu,), links=(link,), cpu_lanes=2,
        message_s=0.0, decision_s=0.0,
    )  # fmt: skip
    workload = Workload(name="w", dataset="d", rows=20, test_rows=0, features=3, outputs=2, hidden=(4,))
    run = RunSettings(stop=StopRule(seconds=10.0))
    return Plan(machine=machine, workload=workload, policy="idle", recipe=Idle(), run=run)


@pytest.mark.parametrize("level", LEVELS)
def test_figures_of_the_small_run_at_every_level(small_run: SmallRun, level: TraceLevel) -> None:
    found = metrics(small_run(level), plan=plan(), loss_reference=LossReference(initial=1.0, best=0.2))
    assert (found.elapsed_s, found.status, found.stop_reason) == (10.0, "done", "10 s are over")
    assert found.examples == 14 + 8
    assert found.epochs == 22 / 20
    assert found.epoch_s == (8.0,)
    assert found.rows == {"in_place": 14, "merged": 8, "in_flight": 16, "lost": 2}
    assert found.updates == {"cpu": 6, "accelerator": 1}
    assert found.update_share == pytest.approx({"cpu": 6 / 7, "accelerator": 1 / 7})
    assert found.steps == {"cpu": 6, "accelerator": 1}
    assert found.overwritten == 1
    assert found.batch == {"cpu": 1, "gpu": 16}
    # Staleness 0, 1 at versions 1, 2; 1, 2 at 4, 5; 0, 1 at 6, 7; the merge (version 3) read version 0.
    assert found.staleness == {
        "cpu": Staleness(mean=5 / 6, p50=1, p95=2, max=2),
        "accelerator": Staleness(mean=2.0, p50=2, p95=2, max=2),
    }
    assert found.utilization == pytest.approx({"cpu": 2 * 7.5 / 20, "accelerator": 3 / 10})
    assert found.cpu_of_machine == pytest.approx(15 / 40)
    assert found.accelerator_driver == pytest.approx(0.45)
    assert found.cpu_s == {"cpu": 14.5}
    assert found.flops == {"cpu": 40.0, "accelerator": 200.0}
    assert found.flops_of_peak == pytest.approx({"cpu": 40 / 200, "accelerator": 200 / 1000})
    assert found.bytes == {"pcie:down": 1060, "pcie:up": 100}
    assert found.memory == {"dram": 4096}
    assert found.events == 33
    assert found.faults == (FaultSeen(at_s=9.5, worker="cpu", lane=-1, kind="killed", rows=2),)
    assert found.time_to_loss_s == pytest.approx({0.5: 4.0, 0.8: 6.8, 0.9: 8.4, 0.95: 9.2})


@pytest.mark.parametrize("level", LEVELS)
def test_the_loss_curve_over_time_epochs_and_updates(small_run: SmallRun, level: TraceLevel) -> None:
    curve = metrics(small_run(level), plan=plan()).loss
    assert [(point.t_s, point.update, point.train) for point in curve] == [(0, 0, 1.0), (6, 5, 0.4), (10, 7, 0.2)]
    assert [point.epochs for point in curve] == pytest.approx([0.0, 1.0, 1.1])
    assert [point.test for point in curve[1:]] == [0.5, 0.3]
    assert [point.test_score for point in curve[1:]] == [0.75, 0.85]
    assert math.isnan(curve[0].test)


@pytest.mark.parametrize("level", ["summary", "full"])
def test_batch_sizes_over_time(small_run: SmallRun, level: TraceLevel) -> None:
    assert metrics(small_run(level)).batches == (
        BatchStep(t_s=0.0, worker="cpu", batch=2),
        BatchStep(t_s=0.0, worker="gpu", batch=8),
        BatchStep(t_s=2.0, worker="cpu", batch=4),
        BatchStep(t_s=8.0, worker="cpu", batch=1),
        BatchStep(t_s=8.0, worker="gpu", batch=16),
    )


def test_shares_of_each_place(small_run: SmallRun) -> None:
    busy = {item.place: item for item in metrics(small_run()).busy}
    assert list(busy) == ["cpu[0]", "cpu[1]", "gpu", "pcie:down", "pcie:up", "merge"]
    assert busy["cpu[0]"].share == pytest.approx({"wait": 0.2, "compute": 0.75})
    assert busy["cpu[0]"].busy == pytest.approx(0.75)  # waiting is not work
    assert busy["gpu"].share == pytest.approx({"compute": 0.3, "evaluate": 0.2})
    assert busy["gpu"].busy == pytest.approx(0.5)
    assert busy["pcie:down"].share == pytest.approx({"pull": 0.05, "load": 0.1})
    assert (busy["merge"].kind, busy["merge"].worker) == ("merge", None)
    assert busy["merge"].busy == pytest.approx(0.05)


def test_without_a_plan_rows_come_from_the_first_finished_epoch(small_run: SmallRun) -> None:
    found = metrics(small_run())
    assert found.epochs == 22 / 20
    assert math.isnan(found.flops_of_peak["cpu"])
    assert found.time_to_loss_s == {}
    assert math.isnan(metrics(small_run("none")).epochs)


def test_without_a_figure_of_its_own_the_driver_sees_computing_and_evaluating(small_run: SmallRun) -> None:
    trace = small_run()
    trace.totals.driver_busy_s.clear()
    assert metrics(trace).accelerator_driver == pytest.approx(0.3 + 0.2)


def test_a_class_that_took_no_part_has_zeros() -> None:
    found = metrics(Trace())
    assert found.utilization == found.update_share == {"cpu": 0.0, "accelerator": 0.0}
    assert found.accelerator_driver == 0.0
    assert found.staleness == {}
    assert found.loss == ()
    assert math.isnan(found.last_train)
    assert math.isnan(found.best_train)


def test_losses_that_were_not_computed_are_no_points(small_run: SmallRun) -> None:
    trace = Trace()
    trace.tables["evaluations"].add((-1, 0, 0, 0.0, 0.0, math.nan, math.nan, math.nan, math.nan))
    assert metrics(trace).loss == ()


def test_a_diverged_run_keeps_its_last_point(small_run: SmallRun) -> None:
    trace = small_run()
    trace.tables["evaluations"].add((2, 1, 7, 10.0, 10.0, math.inf, math.nan, math.nan, math.nan))
    found = metrics(trace)
    assert found.last_train == math.inf
    assert found.best_train == 0.2


def test_peak_rates_follow_the_precision() -> None:
    machine = plan().machine
    assert peak_flops(machine, "float32") == {"cpu": 200.0, "accelerator": 1000.0}
    assert peak_flops(machine, "float64") == {"cpu": 100.0, "accelerator": 500.0}


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60))
def test_staleness_equals_the_figures_of_the_single_values(values: list[int]) -> None:
    found = staleness_of(Counter(values))
    assert found.mean == pytest.approx(np.mean(values))
    assert found.max == max(values)
    for share, percentile in ((0.5, found.p50), (0.95, found.p95)):
        assert percentile == np.percentile(values, 100 * share, method="inverted_cdf")
