"""Every figure of a machine file changes the result of some run; a machine on which it cannot refuses to set it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest

from hetsgd.models.footprint import CapacityError
from hetsgd.models.learner import NoLearner
from hetsgd.models.machine import Accelerator, Link, Machine, Noise, Socket
from hetsgd.models.machine_file import load_machine, machine_keys
from hetsgd.models.metrics import metrics
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.workload import Precision, Workload
from hetsgd.sim import simulate
from hetsgd.studies.record import run_record


@dataclass(frozen=True, kw_only=True)
class Walk:
    """One figure, the value it is set to, and the run in which that counts. `base`: what holds before and after."""

    key: str
    value: Any
    base: dict[str, Any] = field(default_factory=dict)
    cpu_batch: int = 1
    accelerator_batch: int = 32
    precision: Precision = "float32"
    hidden: tuple[int, ...] = (300, 300)
    lookahead: int = 0


ONE_SOCKET = {"cpu_lanes": 1}
WATTS = {f"{part}.{key}": 100.0 for part in ("cpu0", "cpu1", "gpu0") for key in ("idle_watts", "busy_watts")}

WALKS = (
    Walk(key="accelerators", value=2),
    Walk(key="cpu_lanes", value=8),
    Walk(key="message_s", value=1e-3),
    Walk(key="decision_s", value=1e-3),
    Walk(key="pinned", value=True),
    Walk(key="weights_on", value="interleaved"),
    Walk(key="price_usd_per_hour", value=1.0),
    Walk(key="cpu_sigma", value=0.5),
    Walk(key="accelerator_sigma", value=0.5),
    Walk(key="cpu0.cores", value=8, base={"cpu_lanes": 40}),
    Walk(key="cpu0.threads_per_core", value=4),
    Walk(key="cpu0.core_flops_float32", value=1e9, cpu_batch=256),
    Walk(key="cpu0.core_flops_float64", value=1e9, cpu_batch=256, precision="float64"),
    Walk(key="cpu0.half_batch", value=64.0, cpu_batch=256),
    Walk(key="cpu0.efficiency", value=0.01, cpu_batch=256),
    Walk(key="cpu0.core_bandwidth_bytes_per_s", value=1e9, base={"cpu_lanes": 4}),
    Walk(key="cpu0.dram_bandwidth_bytes_per_s", value=1e9),
    Walk(key="cpu0.dram_bytes", value=1_000_000, base={"cpu1.dram_bytes": 1_000_000}, hidden=(800, 800)),
    Walk(key="cpu0.l2_bytes", value=16_000_000, base=ONE_SOCKET),
    Walk(key="cpu0.l3_bytes", value=1000, base=ONE_SOCKET | {"cpu0.core_l3_bandwidth_bytes_per_s": 5e10}),
    Walk(key="cpu0.core_l3_bandwidth_bytes_per_s", value=5e10, base=ONE_SOCKET),
    Walk(key="cpu0.line_transfer_s", value=1e-6),
    Walk(key="cpu0.step_overhead_s", value=1e-3),
    Walk(key="cpu0.idle_watts", value=1.0, base=WATTS),
    Walk(key="cpu0.busy_watts", value=200.0, base=WATTS),
    Walk(key="gpu0.flops_float32", value=1e10),
    Walk(key="gpu0.flops_float64", value=1e10, precision="float64"),
    Walk(key="gpu0.half_batch", value=1e5),
    Walk(key="gpu0.efficiency", value=1e-3),
    Walk(key="gpu0.memory_bandwidth_bytes_per_s", value=1e9),
    Walk(key="gpu0.memory_bytes", value=1_000_000),
    Walk(key="gpu0.l2_bytes", value=1000, base={"gpu0.l2_bandwidth_bytes_per_s": 1e9}),
    Walk(key="gpu0.l2_bandwidth_bytes_per_s", value=1e9),
    Walk(key="gpu0.launch_s", value=1e-3),
    Walk(key="gpu0.kernels_per_layer", value=100),
    Walk(key="gpu0.copy_engines", value=2, base={"pcie0.pageable_bytes_per_s": 1e6}, lookahead=1),
    Walk(key="gpu0.device", value="cpu"),
    Walk(key="gpu0.idle_watts", value=1.0, base=WATTS),
    Walk(key="gpu0.busy_watts", value=200.0, base=WATTS),
    Walk(key="pcie0.latency_s", value=1e-3),
    Walk(key="pcie0.pinned_bytes_per_s", value=1e9, base={"pinned": True}),
    Walk(key="pcie0.pageable_bytes_per_s", value=1e9),
    Walk(key="qpi.latency_s", value=1e-5),
)  # fmt: skip


def outcome(walk: Walk, machine: Machine) -> dict[str, Any] | str:
    """What is reported of a run on this machine, or why it is refused."""
    workload = Workload(
        name="w", dataset="d", rows=400, test_rows=20, features=100, outputs=10, hidden=walk.hidden,
        precision=walk.precision,
    )  # fmt: skip
    rule = recipe("hogbatch", cpu_batch=walk.cpu_batch, accelerator_batch=walk.accelerator_batch)
    run = RunSettings(stop=StopRule(epochs=1), lookahead=walk.lookahead)
    plan = Plan(machine=machine, workload=workload, policy="hogbatch", recipe=rule, run=run)
    try:
        found = metrics(simulate(plan, NoLearner()), plan=plan)
    except CapacityError as error:
        return str(error)
    record = run_record(plan, found, engine="sim", learner="none", wall_s=0.0)
    return {key: value for key, value in record.items() if key != "machine"}


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.key)
def test_a_figure_changes_a_result(walk: Walk) -> None:
    before = load_machine("aws-p3.16xlarge", walk.base)
    after = load_machine("aws-p3.16xlarge", {**walk.base, walk.key: walk.value})
    assert outcome(walk, before) != outcome(walk, after)


def test_every_figure_of_a_machine_file_is_walked() -> None:
    walked = {walk.key for walk in WALKS}
    for owner, entry in (("cpu0", Socket), ("gpu0", Accelerator), ("pcie0", Link)):
        # Names and ends say which part it is, a calibration is not a figure.
        figures = {item.name for item in fields(entry)} - {"name", "ends", "calibration"}
        assert {key.partition(".")[2] for key in walked if key.startswith(f"{owner}.")} == figures
    assert {item.name for item in fields(Noise)} <= walked
    assert {key for key in machine_keys() if "." not in key} <= walked


def test_where_a_link_ends_changes_a_result() -> None:
    walk = Walk(key="", value=None)
    machine = load_machine("aws-p3.16xlarge")
    far = replace(machine.links[0], ends=("cpu1", "gpu0"))
    assert outcome(walk, machine) != outcome(walk, replace(machine, links=(far, *machine.links[1:])))
