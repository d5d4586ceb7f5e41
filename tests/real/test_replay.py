"""The replay learner by hand-driven sequences: serial SGD bit for bit, oracles, divergence, determinism, memory."""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.initial import initial_parameters
from hetsgd.models.machine import Machine, Socket
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.policy import Assign, Merge, Seat, Work, Write
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.streams import row_order
from hetsgd.models.workload import Workload
from hetsgd.real.network import Network
from hetsgd.real.replay import ReplayLearner

ROWS = 700
CPU, GPU = Seat("cpu"), Seat("gpu0")


def machine(lanes: int) -> Machine:
    socket = Socket(
        name="socket", cores=lanes, threads_per_core=1, core_flops_float32=1e11, core_flops_float64=5e10,
        half_batch=8.0, core_bandwidth_bytes_per_s=1e10, dram_bandwidth_bytes_per_s=5e10, dram_bytes=1 << 34,
        l2_bytes=1 << 20, l3_bytes=1 << 24,
    )  # fmt: skip
    return Machine(
        name="m", description="", sockets=(socket,), accelerators=(), links=(), cpu_lanes=lanes, message_s=0.0,
        decision_s=0.0,
    )  # fmt: skip


def plan(*, multilabel: bool = False, hidden: tuple[int, ...] = (20, 10), **run: Any) -> Plan:
    load = Workload(
        name="w", dataset="d", rows=ROWS, test_rows=50, features=8, outputs=3, hidden=hidden, activation="relu",
        loss="sigmoid" if multilabel else "softmax",
    )  # fmt: skip
    settings = RunSettings(stop=StopRule(epochs=1), seed=5, **run)
    return Plan(machine=machine(4), workload=load, policy="hogwild", recipe=recipe("hogwild"), run=settings)


def dataset(*, multilabel: bool = False) -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS + 50, 8)).astype(np.float32)
    y: Any = np.argmax(x[:, :3] + x[:, 3:6], axis=1)
    if multilabel:
        y = (x[:, :3] + x[:, 3:6] > 0.3).astype(np.float32)
    return Dataset(
        name="d", train_x=x[:ROWS], train_y=y[:ROWS], test_x=x[ROWS:], test_y=y[ROWS:], classes=3,
        multilabel=multilabel, source="random",
    )  # fmt: skip


def assignments(seat: Seat, work: Work, *, lanes: int = 1, epochs: int = 2) -> list[Assign]:
    """Assignments one after the other over whole epochs, the tail of each cut short."""
    given: list[Assign] = []
    for epoch in range(epochs):
        for start in range(0, ROWS, lanes * work.batch * work.steps):
            stop = min(start + lanes * work.batch * work.steps, ROWS)
            given.append(Assign(id=len(given), seat=seat, epoch=epoch, start=start, stop=stop, lanes=lanes, work=work))
    return given


def compute(learner: ReplayLearner, assign: Assign, *, pull: bool) -> None:
    """Everything of one assignment up to its result; the lanes step side by side."""
    if pull:
        learner.pull(assign)
    for step in range(assign.work.steps):
        lanes = [lane for lane in range(assign.lanes) if step < len(assign.chunks(lane))]
        for lane in lanes:
            learner.start(assign, lane, step)
        for lane in lanes:
            learner.finish(assign, lane, step)
    if pull and assign.work.write == "in_place":
        learner.push(assign)
    learner.result(assign)


class Serial:
    """Plain serial SGD with the same network, rows in the same order."""

    def __init__(self, of: Plan, data: Dataset) -> None:
        self.network = Network(of.workload, max_batch=ROWS)
        self.w = torch.from_numpy(initial_parameters(of.workload, of.run.seed))
        self.x, self.y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
        self.orders = [row_order(of.run.seed, epoch, ROWS, of.run.order) for epoch in (0, 1)]

    def rows(self, epoch: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        order = self.orders[epoch]
        index = torch.arange(start, stop) if order is None else torch.from_numpy(order[start:stop])
        return self.x[index], self.y[index]

    def gradient(self, epoch: int, start: int, stop: int, at: Tensor | None = None) -> Tensor:
        out = torch.empty_like(self.w)
        self.network.gradient(self.w if at is None else at, *self.rows(epoch, start, stop), out)
        return out

    def train(self, batch: int, rate: float, decay: float = 0.0) -> Tensor:
        for epoch in (0, 1):
            for start in range(0, ROWS, batch):
                self.network.step(self.w, *self.rows(epoch, start, min(start + batch, ROWS)), rate, decay)
        return self.w


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("order", ["shuffled", "file"])
@pytest.mark.parametrize(("batch", "decay"), [(1, 0.0), (16, 0.0), (16, 0.01), (300, 0.0), (300, 0.01)])
@pytest.mark.parametrize(
    ("seat", "write"), [(CPU, "in_place"), (GPU, "in_place"), (CPU, "gradient"), (GPU, "gradient")]
)
def test_one_worker_is_serial_sgd_bit_for_bit(seat: Seat, write: Any, batch: int, decay: float, order: Any) -> None:
    of, data = plan(order=order, weight_decay=decay), dataset()
    learner = ReplayLearner(of, data)
    for assign in assignments(seat, Work(batch=batch, rate=0.1, write=write)):
        compute(learner, assign, pull=seat == GPU)
        if write == "gradient":
            learner.merge(Merge(inputs=(assign.id,), rule="gradient", weights=(1.0,), rate=0.1))
    expected = Serial(of, data).train(batch, 0.1, decay)
    assert np.array_equal(learner.parameters, expected.numpy())
    assert not learner.held


@pytest.mark.parametrize("rule", ["overwrite", "delta", "average"])
def test_one_worker_handing_in_replicas_is_serial_sgd(rule: Any) -> None:
    of, data = plan(), dataset()
    learner = ReplayLearner(of, data)
    for assign in assignments(GPU, Work(batch=16, rate=0.1, steps=3, write="replica")):
        compute(learner, assign, pull=True)
        learner.merge(Merge(inputs=(assign.id,), rule=rule, weights=(1.0,)))
    np.testing.assert_allclose(learner.parameters, Serial(of, data).train(16, 0.1).numpy(), atol=2e-5)


def test_lanes_that_read_the_same_model_do_not_see_each_other() -> None:
    of, data = plan(), dataset()
    learner, serial = ReplayLearner(of, data), Serial(of, data)
    for assign in assignments(CPU, Work(batch=4, rate=0.1), lanes=4):
        compute(learner, assign, pull=False)
        read = serial.w.clone()
        for start in range(assign.start, assign.stop, 4):
            serial.w -= 0.1 * serial.gradient(assign.epoch, start, min(start + 4, assign.stop), at=read)
    np.testing.assert_allclose(learner.parameters, serial.w.numpy(), atol=2e-5)


def test_local_sgd_writes_the_average_back() -> None:
    of, data = plan(), dataset()
    learner, serial = ReplayLearner(of, data), Serial(of, data)
    work = Work(batch=10, rate=0.1, steps=2, read="own", write="keep")
    for k in range(15):
        ends = []
        for j in range(2):
            low = 40 * k + 20 * j
            seat = Seat(f"gpu{j}")
            compute(
                learner,
                Assign(id=2 * k + j, seat=seat, epoch=0, start=low, stop=low + 20, lanes=1, work=work),
                pull=True,
            )
            replica = serial.w.clone()
            for start in (low, low + 10):
                replica -= 0.1 * serial.gradient(0, start, start + 10, at=replica)
            ends.append(replica)
        learner.merge(Merge(inputs=(2 * k, 2 * k + 1), rule="average", weights=(0.5, 0.5), write_back=("gpu0", "gpu1")))
        serial.w = (ends[0] + ends[1]) / 2
    np.testing.assert_allclose(learner.parameters, serial.w.numpy(), atol=2e-5)


def test_a_copy_back_destroys_what_lanes_wrote_meanwhile() -> None:
    of, data = plan(), dataset()
    learner, alone = ReplayLearner(of, data), ReplayLearner(of, data)
    slow = Assign(id=0, seat=GPU, epoch=0, start=0, stop=100, lanes=1, work=Work(batch=100, rate=0.1))
    learner.pull(slow)
    learner.start(slow, 0, 0)
    for start in range(100, 120, 4):
        work = Work(batch=1, rate=0.1)
        compute(
            learner, Assign(id=start, seat=CPU, epoch=0, start=start, stop=start + 4, lanes=4, work=work), pull=False
        )
    learner.finish(slow, 0, 0)
    learner.push(slow)
    learner.result(slow)
    compute(alone, slow, pull=True)
    assert np.array_equal(learner.parameters, alone.parameters)


@pytest.mark.parametrize("multilabel", [False, True])
def test_losses_are_those_of_all_rows(multilabel: bool) -> None:
    of, data = plan(multilabel=multilabel), dataset(multilabel=multilabel)
    learner = ReplayLearner(of, data)
    loss = learner.begin()
    network, w = Network(of.workload), torch.from_numpy(initial_parameters(of.workload, 5))
    train = network.loss(w, torch.from_numpy(data.train_x), torch.from_numpy(data.train_y))
    test = network.loss(w, torch.from_numpy(data.test_x), torch.from_numpy(data.test_y))
    assert (loss.train, loss.test, loss.train_score, loss.test_score) == (
        train.mean, test.mean, train.score, test.score,
    )  # fmt: skip
    assert (loss.at_s, loss.end_s, loss.epoch, loss.update) == (0.0, 0.0, 0, 0)


@pytest.mark.parametrize("multilabel", [False, True])
def test_training_learns(multilabel: bool) -> None:
    learner = ReplayLearner(plan(multilabel=multilabel), dataset(multilabel=multilabel))
    before = learner.begin()
    for assign in assignments(CPU, Work(batch=2, rate=0.05), lanes=4):
        compute(learner, assign, pull=False)
    after = learner.evaluate(at_s=1.0, epoch=2, update=350)
    assert after.train < 0.7 * before.train
    assert after.test_score > before.test_score


def test_divergence_is_a_loss_that_is_not_finite() -> None:
    learner = ReplayLearner(plan(), dataset())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for assign in assignments(CPU, Work(batch=16, rate=1e30), lanes=2):
            compute(learner, assign, pull=False)
        loss = learner.evaluate(at_s=1.0, epoch=0, update=1)
    assert loss.diverged
    assert not math.isfinite(loss.train)


def test_what_is_dropped_leaves_no_memory_behind() -> None:
    of, data = plan(hidden=(37,)), dataset()
    learner = ReplayLearner(of, data)

    def vectors() -> int:
        gc.collect()
        size = of.workload.parameters
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some objects warn when they are asked for their class
            found = [item for item in gc.get_objects() if isinstance(item, Tensor) and item.shape == (size,)]
        return len({item.data_ptr() for item in found})

    counts = []
    writes: tuple[Write, ...] = ("gradient", "replica", "keep", "in_place")
    for k in range(40):
        for j, write in enumerate(writes):
            work = Work(batch=300 if k % 2 else 5, rate=0.1, write=write)
            assign = Assign(id=4 * k + j, seat=GPU, epoch=0, start=0, stop=600, lanes=2, work=work)
            if j:
                learner.pull(assign)
            for lane in (0, 1):
                learner.start(assign, lane, 0)
            if k % 3 == 0:
                learner.finish(assign, 0, 0)
            if k % 3 == 1:
                learner.parameters  # noqa: B018  # reading lands what is outstanding
                learner.evaluate(at_s=0.0, epoch=0, update=0)
            learner.drop([assign.id])
        if k in (5, 39):
            counts.append(vectors())
    assert counts[0] == counts[1]
    assert not learner.held


@pytest.mark.parametrize("batch", [5, 300])
def test_gradients_of_a_policy_that_never_compensates_need_no_copy_of_the_model(batch: int) -> None:
    """They are those of the model at the pull all the same, whatever others write before they are computed."""
    learners = [
        ReplayLearner(replace(plan(hidden=(200, 200)), policy=name, recipe=recipe(name)), dataset())
        for name in ("hogwild", "ringmaster")
    ]
    assert [getattr(recipe(name), "compensates", True) for name in ("hogwild", "ringmaster")] == [True, False]
    gradient, step = Work(batch=batch, rate=0.1, write="gradient"), Work(batch=7, rate=0.1)
    for learner in learners:
        for k in range(6):
            late = Assign(id=2 * k, seat=GPU, epoch=0, start=0, stop=batch, lanes=1, work=gradient)
            other = Assign(id=2 * k + 1, seat=CPU, epoch=0, start=300, stop=307, lanes=1, work=step)
            learner.pull(late)
            compute(learner, other, pull=False)
            learner.start(late, 0, 0)
            learner.finish(late, 0, 0)
            learner.result(late)
            if k == 3:
                learner.drop([late.id])
            else:
                learner.merge(Merge(inputs=(late.id,), rule="gradient", weights=(1.0,), rate=0.1, id=k))
        assert not learner.held
    copied, bare = learners
    np.testing.assert_allclose(bare.parameters, copied.parameters, rtol=1e-5, atol=1e-6)
    assert bare.held_bytes < copied.held_bytes


def test_threads_of_the_process_stay_as_they_were() -> None:
    torch.set_num_threads(2)
    learner = ReplayLearner(plan(), dataset())
    learner.begin()
    compute(learner, assignments(CPU, Work(batch=16, rate=0.1), lanes=2)[0], pull=False)
    assert torch.get_num_threads() == 2
    with pytest.raises(ValueError, match="threads must be >= 1"):
        ReplayLearner(plan(), dataset(), threads=0)


def test_a_data_set_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"workload.loss must be that of the data set d, 'sigmoid', got 'softmax'"):
        ReplayLearner(plan(), dataset(multilabel=True))


def test_a_rule_that_does_not_fit_the_result_is_refused() -> None:
    learner = ReplayLearner(plan(), dataset())
    for k, work in enumerate((Work(batch=10, rate=0.1, write="gradient"), Work(batch=10, rate=0.1, write="replica"))):
        compute(learner, Assign(id=k, seat=GPU, epoch=0, start=0, stop=10, lanes=1, work=work), pull=True)
    with pytest.raises(ValueError, match="needs results of write 'gradient'"):
        learner.merge(Merge(inputs=(1,), rule="gradient", weights=(1.0,)))
    with pytest.raises(ValueError, match="needs results of write 'replica' or 'keep'"):
        learner.merge(Merge(inputs=(0,), rule="average", weights=(1.0,)))


_SCRIPT = """
import hashlib, sys
import numpy as np
from hetsgd.models.data.dataset import Dataset
from hetsgd.models.machine import Machine, Socket
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.policy import Assign, Merge, Seat, Work
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.workload import Workload
from hetsgd.real.replay import ReplayLearner

rng = np.random.default_rng(0)
x = rng.normal(size=(2000, 64)).astype(np.float32)
y = np.argmax(x[:, :5], axis=1)
data = Dataset(name="d", train_x=x, train_y=y, test_x=x[:0], test_y=y[:0], classes=5, multilabel=False, source="r")
socket = Socket(
    name="s", cores=4, threads_per_core=1, core_flops_float32=1e11, core_flops_float64=5e10, half_batch=8.0,
    core_bandwidth_bytes_per_s=1e10, dram_bandwidth_bytes_per_s=5e10, dram_bytes=1 << 34, l2_bytes=1 << 20,
    l3_bytes=1 << 24,
)
machine = Machine(
    name="m", description="", sockets=(socket,), accelerators=(), links=(), cpu_lanes=4, message_s=0.0, decision_s=0.0
)
load = Workload(name="w", dataset="d", rows=2000, test_rows=0, features=64, outputs=5, hidden=(300, 200))
run = RunSettings(stop=StopRule(epochs=1))
learner = ReplayLearner(Plan(machine=machine, workload=load, policy="p", recipe=recipe("hogwild"), run=run), data)
losses = [learner.begin().train]
for k in range(10):
    team = Assign(id=2 * k, seat=Seat("cpu"), epoch=0, start=200 * k, stop=200 * k + 100, lanes=4,
                  work=Work(batch=25, rate=0.1))
    single = Assign(id=2 * k + 1, seat=Seat("gpu"), epoch=0, start=200 * k + 100, stop=200 * k + 200, lanes=1,
                    work=Work(batch=100, rate=0.1, write="replica"))
    learner.pull(single)
    learner.start(single, 0, 0)
    for lane in range(4):
        learner.start(team, lane, 0)
    for lane in (2, 0, 3, 1):
        learner.finish(team, lane, 0)
    learner.finish(single, 0, 0)
    learner.result(team)
    learner.result(single)
    learner.merge(Merge(inputs=(single.id,), rule="delta", weights=(1.0,)))
    losses.append(learner.evaluate(at_s=0.0, epoch=0, update=k).train)
print(hashlib.sha256(learner.parameters.tobytes()).hexdigest(), losses)
"""


def test_replay_is_the_same_in_any_process_at_any_thread_count() -> None:
    outputs = []
    for threads, hashes in (("1", "0"), ("2", "1")):
        settings = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PYTHONHASHSEED": hashes}
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True, env={**os.environ, **settings}
        )
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
