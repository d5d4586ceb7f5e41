"""Deferred reads and writes against a learner that does everything at once, under random orders of events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.initial import initial_parameters
from hetsgd.models.machine import Machine, Socket
from hetsgd.models.merging import Input, MergeState
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.policy import Assign, Merge, Rule, Seat, Work
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.streams import row_order
from hetsgd.models.workload import Workload
from hetsgd.real.network import Network
from hetsgd.real.replay import ReplayLearner

Vector = NDArray[Any]
ROWS = 600

SOCKET = Socket(
    name="socket", cores=4, threads_per_core=1, core_flops_float32=1e11, core_flops_float64=5e10, half_batch=8.0,
    core_bandwidth_bytes_per_s=1e10, dram_bandwidth_bytes_per_s=5e10, dram_bytes=1 << 34, l2_bytes=1 << 20,
    l3_bytes=1 << 24,
)  # fmt: skip
MACHINE = Machine(
    name="m", description="", sockets=(SOCKET,), accelerators=(), links=(), cpu_lanes=4, message_s=0.0, decision_s=0.0
)


def plan(decay: float) -> Plan:
    load = Workload(
        name="w", dataset="d", rows=ROWS, test_rows=0, features=5, outputs=3, hidden=(6,), activation="tanh",
        precision="float64",
    )  # fmt: skip
    run = RunSettings(stop=StopRule(epochs=1), seed=3, weight_decay=decay)
    return Plan(machine=MACHINE, workload=load, policy="hogwild", recipe=recipe("hogwild"), run=run)


def dataset() -> Dataset:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(ROWS, 5)), rng.integers(3, size=ROWS)
    return Dataset(
        name="d", train_x=x, train_y=y, test_x=x[:0], test_y=y[:0], classes=3, multilabel=False, source="random"
    )


class AtOnce:
    """The same contract, with every gradient computed at `start` and every copy made when it is named."""

    def __init__(self, of: Plan, data: Dataset) -> None:
        self.plan, self.data = of, data
        self.network = Network(of.workload, max_batch=ROWS)
        self.orders = [row_order(of.run.seed, epoch, ROWS, of.run.order) for epoch in (0, 1)]
        self.initial = initial_parameters(of.workload, of.run.seed)
        self.model = self.initial.copy()
        self.own: dict[str, Vector] = {}
        self.working: dict[int, Vector] = {}
        self.starts: dict[int, Vector] = {}
        self.reads: dict[int, Vector] = {}
        self.begun: dict[tuple[int, int], tuple[Vector, int]] = {}
        self.gradients: dict[int, list[tuple[Vector, int]]] = {}
        self.state = MergeState(weight_decay=of.run.weight_decay)

    def own_of(self, worker: str) -> Vector:
        return self.own.setdefault(worker, self.initial.copy())

    def pull(self, assign: Assign) -> None:
        source = self.own_of(assign.seat.worker) if assign.work.read == "own" else self.model
        self.working[assign.id] = source.copy()
        self.starts[assign.id] = source.copy()
        self.reads[assign.id] = self.model.copy()

    def start(self, assign: Assign, lane: int, step: int) -> None:
        low, high = assign.chunks(lane)[step]
        order = self.orders[assign.epoch]
        rows = slice(low, high) if order is None else order[low:high]
        out = torch.empty(self.network.parameters, dtype=torch.float64)
        model = self.working.get(assign.id, self.model)
        x, y = torch.from_numpy(self.data.train_x[rows]), torch.from_numpy(self.data.train_y[rows])
        self.network.gradient(torch.from_numpy(model), x, y, out)
        self.begun[assign.id, lane] = (out.numpy(), high - low)
        self.reads.setdefault(assign.id, self.model.copy())

    def finish(self, assign: Assign, lane: int, step: int) -> None:
        gradient, rows = self.begun.pop((assign.id, lane))
        if assign.work.write == "gradient":
            self.gradients.setdefault(assign.id, []).append((gradient, rows))
            return
        model = self.working.get(assign.id, self.model)
        model *= 1 - assign.work.rate * self.plan.run.weight_decay
        model -= assign.work.rate * gradient

    def push(self, assign: Assign) -> None:
        self.model[:] = self.working[assign.id]

    def result(self, assign: Assign) -> None:
        if assign.work.write == "keep":
            self.own[assign.seat.worker] = self.working[assign.id]

    def merge(self, merge: Merge, assigns: dict[int, Assign]) -> None:
        inputs = []
        for key in merge.inputs:
            assign = assigns[key]
            pieces = self.gradients.get(key, [])
            mean = sum((g * (n / assign.rows) for g, n in pieces), np.zeros_like(self.model))
            keep = assign.work.write == "keep"
            replica = self.own[assign.seat.worker] if keep else self.working.get(key)
            inputs.append(Input(gradient=mean, replica=replica, start=self.starts.get(key), read=self.reads.get(key)))
        for name in merge.write_back:
            self.own_of(name)
        self.state.apply(merge, self.model, inputs, self.own)


@dataclass
class Running:
    assign: Assign
    pulled: bool
    steps: dict[int, int] = field(default_factory=dict)  # next step of each lane
    busy: set[int] = field(default_factory=set)


WORKERS = ("cpu", "gpu0", "gpu1", "free[0]", "free[1]")
SEATS = {"free[0]": Seat("free", 0), "free[1]": Seat("free", 1)}
KINDS: dict[str, list[dict[str, Any]]] = {
    "cpu": [
        {"write": "in_place"}, {"write": "gradient", "steps": 1}, {"write": "replica"}, {"write": "keep"},
        {"write": "keep", "read": "own"},
    ],
    "gpu0": [{"write": "in_place"}, {"write": "gradient", "steps": 1}, {"write": "replica", "read": "own"}],
    "gpu1": [{"write": "keep", "read": "own"}, {"write": "gradient", "steps": 1, "read": "own"}, {"write": "replica"}],
    "free[0]": [{"write": "in_place"}, {"write": "gradient", "steps": 1}],
    "free[1]": [{"write": "in_place"}],
}  # fmt: skip


class Driver:
    """Random orders of events that the contract allows, told to both learners."""

    def __init__(self, seed: int, decay: float) -> None:
        of, data = plan(decay), dataset()
        self.rng = np.random.default_rng(seed)
        self.lazy, self.plain = ReplayLearner(of, data), AtOnce(of, data)
        self.running: dict[str, Running] = {}
        self.held: dict[int, Assign] = {}
        self.ids = 0

    def choose(self, options: Iterable[Any]) -> Any:
        listed = list(options)
        return listed[int(self.rng.integers(len(listed)))]

    def event(self) -> None:
        if self.held and self.rng.random() < 0.15:
            self.decide()
            return
        worker = self.choose(WORKERS)
        if worker not in self.running:
            self.running[worker] = self.assign(worker)
            return
        job = self.running[worker]
        if self.rng.random() < 0.02:
            self.lazy.drop([self.running.pop(worker).assign.id])
        elif not job.pulled:
            self.both("pull", job.assign)
            job.pulled = True
        elif not self.piece(job):
            self.hand_in(worker)

    def both(self, call: str, *args: Any) -> None:
        getattr(self.lazy, call)(*args)
        getattr(self.plain, call)(*args)

    def assign(self, worker: str) -> Running:
        lanes = 4 if worker == "cpu" else 1
        batch = self.choose((1, 2, 7)) if lanes == 4 else self.choose((1, 9, 280))
        chosen = {"steps": self.choose((1, 3)), **self.choose(KINDS[worker])}
        work = Work(batch=batch, rate=self.choose((0.1, 0.3)), **chosen)
        start = int(self.rng.integers(ROWS - 1))
        stop = min(start + lanes * batch * work.steps, ROWS)
        seat = SEATS.get(worker, Seat(worker))
        epoch = int(self.rng.integers(2))
        assign = Assign(id=self.ids, seat=seat, epoch=epoch, start=start, stop=stop, lanes=lanes, work=work)
        self.ids += 1
        pulls = worker.startswith("gpu") or work.write in ("replica", "keep")
        return Running(assign, pulled=not pulls)

    def piece(self, job: Running) -> bool:
        """One lane starts or finishes a step; False when all are done."""
        assign = job.assign
        open_lanes = [
            lane for lane in range(assign.lanes)
            if lane in job.busy or job.steps.get(lane, 0) < len(assign.chunks(lane))
        ]  # fmt: skip
        if not open_lanes:
            return False
        lane = self.choose(open_lanes)
        step = job.steps.get(lane, 0)
        if lane in job.busy:
            self.both("finish", assign, lane, step)
            job.busy.discard(lane)
            job.steps[lane] = step + 1
        else:
            self.both("start", assign, lane, step)
            job.busy.add(lane)
        return True

    def hand_in(self, worker: str) -> None:
        assign = self.running.pop(worker).assign
        if worker.startswith("gpu") and assign.work.write == "in_place":
            self.both("push", assign)
        self.both("result", assign)
        if assign.work.write != "in_place":
            self.held[assign.id] = assign

    def decide(self) -> None:
        first = self.held[self.choose(self.held)]
        gradients = first.work.write == "gradient"
        like = [key for key, item in self.held.items() if (item.work.write == "gradient") == gradients]
        keys = tuple(like[: int(self.rng.integers(1, len(like) + 1))])
        if self.rng.random() < 0.1:
            self.lazy.merge(Merge(inputs=keys, rule="discard"))
            for key in keys:
                del self.held[key]
            return
        rule: Rule = "gradient" if gradients else self.choose(("delta", "average", "elastic", "overwrite"))
        order = Merge(
            inputs=keys, rule=rule, weights=(0.7 / len(keys),) * len(keys), rate=0.2,
            momentum=self.choose((0.0, 0.0, 0.5)), compensate=self.choose((0.0, 0.0, 0.1)),
            at_read=self.choose((True, False)), write_back=self.choose(((), ("cpu",), ("gpu1", "cpu"))),
        )  # fmt: skip
        self.lazy.merge(order)
        self.plain.merge(order, self.held)
        for key in keys:
            del self.held[key]


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(5))
def test_every_read_and_write_is_as_if_done_at_once(seed: int, decay: float) -> None:
    driver = Driver(seed, decay)
    for step in range(500):
        driver.event()
        if step % 25 == 0:
            np.testing.assert_allclose(driver.lazy.parameters, driver.plain.model, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(driver.lazy.parameters, driver.plain.model, rtol=1e-9, atol=1e-9)
    in_flight = {job.assign.id for job in driver.running.values()}
    assert driver.lazy.held <= in_flight | set(driver.held)
    assert set(driver.held) <= driver.lazy.held
