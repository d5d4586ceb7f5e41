"""A machine whose times are round numbers, plans on it, and a policy that answers what a test wants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest

from hetsgd.models.machine import Accelerator, Link, Machine, Noise, Socket
from hetsgd.models.plan import Plan
from hetsgd.models.policy import Fleet, Kind, LaneMode, Merge, Recipe, Result, Schedule, View, Wait, Work
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.workload import Workload

# 3 x 4 + 4 x 2 weights of 4 bytes: 80 bytes of model, 20 bytes a row (3 features, a label of 8 bytes).
WORKLOAD = Workload(name="tiny", dataset="none", rows=120, test_rows=0, features=3, outputs=2, hidden=(4,), bias=False)

# Fast enough to take no time beside the overhead of a step.
SOCKET = Socket(
    name="cpu0", cores=64, threads_per_core=1, core_flops_float32=1e30, core_flops_float64=1e30, half_batch=0.0,
    core_bandwidth_bytes_per_s=1e30, dram_bandwidth_bytes_per_s=1e30, dram_bytes=1 << 40, l2_bytes=0, l3_bytes=0,
    step_overhead_s=1.0,
)  # fmt: skip
ACCELERATOR = Accelerator(
    name="gpu0", device="cuda:0", flops_float32=1e30, flops_float64=1e30, half_batch=0.0,
    memory_bandwidth_bytes_per_s=1e30, memory_bytes=1 << 30, l2_bytes=0, launch_s=1.0, kernels_per_layer=2.0,
)  # fmt: skip
LINK = Link(name="pcie0", ends=("cpu0", "gpu0"), latency_s=0.5, pinned_bytes_per_s=40.0, pageable_bytes_per_s=20.0)


def machine_of(
    *, lanes: int = 2, accelerators: int = 1, socket: dict[str, Any] | None = None, noise: float = 0.0,
    accelerator: dict[str, Any] | None = None, link: dict[str, Any] | None = None, **values: Any,
) -> Machine:  # fmt: skip
    """Lanes take 1 s a step; accelerators 0.5 s + bytes / 40 for a transfer and 4 s a step."""
    cards = tuple(
        replace(ACCELERATOR, **({"name": f"gpu{index}", "device": f"cuda:{index}"} | (accelerator or {})))
        for index in range(accelerators)
    )
    links = tuple(
        replace(LINK, name=f"pcie{index}", ends=("cpu0", f"gpu{index}"), **(link or {}))
        for index in range(accelerators)
    )
    settings: dict[str, Any] = {
        "name": "m", "description": "", "sockets": (replace(SOCKET, **(socket or {})),), "accelerators": cards,
        "links": links, "cpu_lanes": lanes, "message_s": 0.0, "decision_s": 0.0,
        "noise": Noise(cpu_sigma=noise, accelerator_sigma=noise),
    }  # fmt: skip
    return Machine(**(settings | values))


@dataclass(frozen=True, kw_only=True)
class Scripted:
    """A policy whose answers a test gives as functions."""

    kinds: ClassVar[tuple[Kind, ...]] = ("cpu", "accelerator")
    lane_modes: ClassVar[tuple[LaneMode, ...]] = ("barrier", "free")
    max_lookahead: ClassVar[int] = 2
    reads_losses: ClassVar[bool] = False

    work: Callable[[View, str], Work | Wait] = field(default=lambda view, worker: Work(batch=10, rate=0.5))
    result: Callable[[View, Result], list[Merge]] = field(default=lambda view, result: [])

    def begin(self, fleet: Fleet) -> Schedule:
        return self

    def next(self, view: View, worker: str) -> Work | Wait:
        return self.work(view, worker)

    def on_result(self, view: View, result: Result) -> list[Merge]:
        return self.result(view, result)


def plan_of(recipe: Recipe, machine: Machine, workload: Workload = WORKLOAD, **run: Any) -> Plan:
    """A plan of one epoch without an evaluation in its clock, unless the run says otherwise."""
    values: dict[str, Any] = {"stop": StopRule(epochs=1), "learning_rate": 0.5, "evaluation": "deferred"}
    settings = RunSettings(**(values | run))
    return Plan(machine=machine, workload=workload, policy="p", recipe=recipe, run=settings)


@pytest.fixture
def machine() -> Callable[..., Machine]:
    """Make a machine: see `machine_of`."""
    return machine_of


@pytest.fixture
def plan() -> Callable[..., Plan]:
    """Make a plan: plan(recipe, machine, workload, **run settings)."""
    return plan_of


@pytest.fixture
def scripted() -> Callable[..., Any]:
    """Make a `Scripted` policy: scripted(work=..., result=...)."""
    return Scripted


@pytest.fixture
def workload() -> Workload:
    """120 rows of 20 bytes, a model of 80 bytes."""
    return WORKLOAD
