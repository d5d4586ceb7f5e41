"""Real runs of small networks on the cores of this machine, started from a process that has loaded torch once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import pytest

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.invariants import check
from hetsgd.models.machine import Accelerator, Link, Machine, Socket
from hetsgd.models.parity import first_difference
from hetsgd.models.plan import Plan, ProgressSink
from hetsgd.models.policies import recipe
from hetsgd.models.policy import Recipe
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.workload import Workload
from hetsgd.real import Trained, train, warm_start

_HANG_S = 60


def small_machine(lanes: int, accelerators: tuple[str, ...]) -> Machine:
    socket = Socket(
        name="cpu0", cores=8, threads_per_core=1, core_flops_float32=1e11, core_flops_float64=5e10, half_batch=8.0,
        core_bandwidth_bytes_per_s=1e10, dram_bandwidth_bytes_per_s=2e10, dram_bytes=1 << 34, l2_bytes=1 << 20,
        l3_bytes=1 << 24,
    )  # fmt: skip
    chosen = tuple(
        Accelerator(
            name=name, device="cpu", flops_float32=1e11, flops_float64=5e10, half_batch=8.0,
            memory_bandwidth_bytes_per_s=1e10, memory_bytes=1 << 34, l2_bytes=1 << 20, launch_s=1e-6,
            kernels_per_layer=8.0,
        )
        for name in accelerators
    )  # fmt: skip
    links = tuple(
        Link(
            name=f"{name}-copy", ends=("cpu0", name), latency_s=1e-6, pinned_bytes_per_s=1e10,
            pageable_bytes_per_s=1e10,
        )
        for name in accelerators
    )  # fmt: skip
    return Machine(
        name="small", description="", sockets=(socket,), accelerators=chosen, links=links, cpu_lanes=lanes,
        message_s=1e-4, decision_s=1e-5,
    )  # fmt: skip


@dataclass(frozen=True)
class Bench:
    """Makes plans on a small data set, and runs them."""

    data: Dataset

    def plan(
        self, policy: str | Recipe, *, lanes: int = 1, accelerators: tuple[str, ...] = ("acc0",),
        keys: dict[str, Any] | None = None, workload: dict[str, Any] | None = None, mode: str = "barrier", **run: Any,
    ) -> Plan:  # fmt: skip
        shape: dict[str, Any] = {"hidden": (16,), "precision": "float32"}
        load = Workload(
            name="w", dataset="d", rows=self.data.rows, test_rows=self.data.test_rows,
            features=self.data.features, outputs=self.data.outputs, **(shape | (workload or {})),
        )  # fmt: skip
        values: dict[str, Any] = {"stop": StopRule(epochs=2), "learning_rate": 0.05, "seed": 3, "lanes": mode}
        name, chosen = (policy, recipe(policy, **(keys or {}))) if isinstance(policy, str) else ("own", policy)
        return Plan(
            machine=small_machine(lanes, accelerators), workload=load, policy=name, recipe=chosen,
            run=RunSettings(**(values | run)),
        )  # fmt: skip

    def run(self, plan: Plan, progress: ProgressSink | None = None) -> Trained:
        """Run the plan and check what must hold of every run: rows, places, versions, decisions."""
        trained = train(plan, self.data, progress=progress)
        assert check(trained.trace, rows=self.data.rows) == []
        if plan.run.trace == "full":
            assert first_difference(trained.trace, recipe=plan.recipe, fleet=plan.fleet(), run=plan.run) is None
        return trained


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """A data set of 600 rows that a line separates, and a warm start for all runs of the module."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(660, 10)).astype(np.float32)
    y = (x @ rng.normal(size=(10, 2))).argmax(axis=1).astype(np.int64)
    data = Dataset(
        name="d", train_x=x[:600], train_y=y[:600], test_x=x[600:], test_y=y[600:], classes=2, multilabel=False,
        source="made",
    )  # fmt: skip
    with warm_start():
        yield Bench(data)


@pytest.fixture
def watchdog() -> Iterator[None]:
    """Turns a run that hangs into an error that says so (invariant 8)."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"the run hangs: {_HANG_S} s are over")

    before: Callable[..., Any] | int | None = signal.signal(signal.SIGALRM, ring)
    signal.alarm(_HANG_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
