"""Any module: traced, trained by lanes and accelerators, replayed; and what cannot be is refused with the fix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.footprint import accelerator_bytes
from hetsgd.models.initial import initial_parameters
from hetsgd.models.learner import NoLearner
from hetsgd.models.module_workload import ModuleWorkload
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.streams import row_order
from hetsgd.models.workload import Workload
from hetsgd.models.workload_file import LoadedWorkload
from hetsgd.real import train, warm_start
from hetsgd.real.module_network import ModuleNetwork, network_of
from hetsgd.real.module_workload import module_workload
from hetsgd.real.network import Network
from hetsgd.real.parts import parts_of
from hetsgd.real.replay import ReplayLearner
from hetsgd.real.state_dict import state_dict
from hetsgd.sim import simulate
from hetsgd.studies.record import described
from tests.real.small_runs import Bench, small_machine

pytestmark = pytest.mark.usefixtures("watchdog")


def images(rows: int = 240) -> tuple[Tensor, Tensor]:
    """Small pictures with a bright half: which one is their class."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, rows)
    x = rng.normal(size=(rows, 1, 8, 8)).astype(np.float32)
    x[y == 1, :, :4] += 1.0
    x[y == 0, :, 4:] += 1.0
    return torch.from_numpy(x), torch.from_numpy(y)


def cnn() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 2)
    )  # fmt: skip


@pytest.fixture(scope="module")
def loaded() -> LoadedWorkload:
    return module_workload(cnn(), nn.CrossEntropyLoss(), images(), name="pictures", test_fraction=0.25)


@pytest.fixture(scope="module")
def exact() -> LoadedWorkload:
    return module_workload(
        cnn(), functional.cross_entropy, images(), name="pictures", test_fraction=0.25, precision="float64"
    )


def plan_of(loaded: LoadedWorkload, policy: str, keys: dict[str, Any], **run: Any) -> Plan:
    settings: dict[str, Any] = {"stop": StopRule(epochs=2), "learning_rate": 0.1, "seed": 3}
    return Plan(
        machine=small_machine(1, ("acc0",)), workload=loaded.workload, policy=policy, recipe=recipe(policy, **keys),
        run=RunSettings(**(settings | run)),
    )  # fmt: skip


def plain_loop(loaded: LoadedWorkload, module: nn.Module, rate: float, batch: int, epochs: int, seed: int) -> Tensor:
    """torch.optim.SGD on the same rows in the same order."""
    data, kind = loaded.data(), torch.float64
    module = module.to(kind)
    optimiser = torch.optim.SGD(module.parameters(), lr=rate)
    for epoch in range(epochs):
        order = row_order(seed, epoch, data.rows, "shuffled")
        assert order is not None
        for low in range(0, data.rows, batch):
            rows = order[low : low + batch]
            x = torch.as_tensor(data.train_x[rows]).to(kind).reshape(-1, 1, 8, 8)
            optimiser.zero_grad()
            loss = functional.cross_entropy(module(x), torch.as_tensor(data.train_y[rows]).long())
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no type
            optimiser.step()
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])


@pytest.mark.parametrize(("policy", "keys"), [("hogwild", {"cpu_batch": 16}), ("minibatch", {"accelerator_batch": 16})])
def test_a_lane_and_an_accelerator_train_as_a_plain_loop_does(
    exact: LoadedWorkload, policy: str, keys: dict[str, int]
) -> None:
    plan = plan_of(exact, policy, keys)
    wanted = plain_loop(exact, cnn(), 0.1, 16, 2, 3).numpy()
    with warm_start():
        trained = train(plan, exact.data())
    np.testing.assert_allclose(trained.parameters, wanted, rtol=1e-9, atol=1e-11)
    learner = ReplayLearner(plan, exact.data())
    simulate(plan, learner)
    np.testing.assert_allclose(learner.parameters, wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("policy", "keys"),
    [
        ("hogbatch", {"cpu_batch": 4, "accelerator_batch": 32}),
        ("synchronous", {"cpu_batch": 4, "accelerator_batch": 32}),
        ("easgd", {"cpu_batch": 4, "accelerator_batch": 16, "steps": 3}),
    ],
)
def test_every_way_to_write_trains_in_both_engines(loaded: LoadedWorkload, policy: str, keys: dict[str, int]) -> None:
    plan = plan_of(loaded, policy, keys, stop=StopRule(epochs=6))
    bench = Bench(loaded.data())
    with warm_start():
        real = bench.run(plan).trace
    learner = ReplayLearner(plan, loaded.data())
    simulated = simulate(plan, learner)
    for trace in (real, simulated):
        losses = trace["evaluations"]["train"]
        assert losses[0] == pytest.approx(real["evaluations"]["train"][0], rel=1e-4)
        assert losses[-1] < 0.5 * losses[0]
        assert trace["evaluations"]["train_score"][-1] > 0.85


def test_the_state_dict_fits_the_module(loaded: LoadedWorkload) -> None:
    with warm_start():
        trained = train(plan_of(loaded, "hogwild", {"cpu_batch": 8}), loaded.data())
    module = cnn()
    module.load_state_dict(state_dict(loaded.workload, trained.parameters))
    data = loaded.data()
    x, y = torch.as_tensor(data.train_x).reshape(-1, 1, 8, 8), torch.as_tensor(data.train_y).long()
    loss = functional.cross_entropy(module(x), y).item()
    assert loss == pytest.approx(trained.trace["evaluations"]["train"][-1], rel=1e-4)


# -- tracing -------------------------------------------------------------------------------------------------------


def mlp(bias: bool = True) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 16, bias=bias), nn.Sigmoid(), nn.Linear(16, 2, bias=bias))


@pytest.mark.parametrize("bias", [True, False])
def test_a_traced_mlp_costs_what_the_built_in_one_does(bias: bool) -> None:
    traced = module_workload(mlp(bias), nn.CrossEntropyLoss(), images(), row_shape=(64,), test_fraction=0.25).workload
    built = Workload(
        name="w", dataset="d", rows=traced.rows, test_rows=traced.test_rows, features=64, outputs=2, hidden=(16,),
        bias=bias,
    )  # fmt: skip
    assert traced.parameters == built.parameters
    assert traced.step_flops(7) == built.step_flops(7)
    assert traced.forward_flops(7) == built.forward_flops(7)
    assert [operator.parameters for operator in traced.operators] == [o.parameters for o in built.operators]


def test_a_convolution_is_counted_by_hand(loaded: LoadedWorkload) -> None:
    """4 filters of 9 weights over 64 places; then 64 x 2. No gradient goes back to the pictures."""
    conv, linear = loaded.workload.operators
    assert conv.flops == 2 * 64 * 4 * 9
    assert linear.flops == 2 * 64 * 2
    assert conv.parameters == 4 * 9 + 4
    assert linear.parameters == 64 * 2 + 2
    assert conv.outputs >= 64 * 4
    step = conv.flops + linear.flops + conv.flops + 2 * linear.flops
    assert loaded.workload.step_flops(1) == pytest.approx(step)


def test_the_simulator_takes_longer_for_more_operations(loaded: LoadedWorkload) -> None:
    """And needs no data and no torch for it: timing alone."""
    plan = plan_of(loaded, "minibatch", {"accelerator_batch": 64})
    workload = loaded.workload
    assert isinstance(workload, ModuleWorkload)
    heavier = tuple(
        replace(o, flops=1e4 * o.flops, backward_flops=1e4 * o.backward_flops) for o in workload.traced
    )  # fmt: skip
    slow = simulate(replace(plan, workload=replace(workload, traced=heavier)), NoLearner()).elapsed_s
    assert slow > 5.0 * simulate(plan, NoLearner()).elapsed_s
    assert accelerator_bytes(workload, 100) > 2 * workload.model_bytes + 100 * 64 * 4 * 4


def test_shared_and_unread_parameters_are_counted_once() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 2)
            self.never = nn.Parameter(torch.zeros(5))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.last(self.first(torch.relu(self.first(x.flatten(1)))))
            return out

    workload = module_workload(Odd(), nn.CrossEntropyLoss(), images(), test_fraction=0.25).workload
    assert workload.parameters == 64 * 64 + 64 + 64 * 2 + 2 + 5
    assert len(workload.operators) == 3
    network = network_of(workload)
    assert isinstance(network, ModuleNetwork)
    gradient = network.vector()
    x, y = images(8)
    w = torch.from_numpy(initial_parameters(workload, 0))
    network.gradient(w, x.reshape(8, -1), y, gradient)
    assert torch.isfinite(gradient).all()


def test_a_module_travels_as_text_in_records(loaded: LoadedWorkload) -> None:
    fields = described(loaded.workload)
    assert str(fields["module"]).startswith("sha256:")
    assert len(str(fields)) < 2000


# -- losses ---------------------------------------------------------------------------------------------------------


def test_losses_and_gradients_are_those_of_the_fused_network(bench: Bench) -> None:
    """An MLP as a module and built in, with the same numbers."""
    data = bench.data
    module = nn.Sequential(nn.Linear(10, 4), nn.Sigmoid(), nn.Linear(4, 2))
    traced = module_workload(module, nn.CrossEntropyLoss(), data).workload
    built = Workload(
        name="w", dataset="d", rows=data.rows, test_rows=data.test_rows, features=10, outputs=2, hidden=(4,)
    )  # fmt: skip
    fused, free = Network(built, max_batch=16), network_of(traced)
    weights = [layer for layer in module if isinstance(layer, nn.Linear)]
    flat = torch.cat([t.detach().reshape(-1) for layer in weights for t in (layer.weight.T, layer.bias)])
    train = parts_of(data, traced).train
    x, y = train.take(slice(0, 16))
    one, other = free.vector(), fused.vector()
    free.gradient(torch.from_numpy(initial_parameters(traced, 0)), x, y, one)
    fused.gradient(flat, x, y, other)
    assert float(one.norm()) == pytest.approx(float(other.norm()), rel=1e-4)
    both = train.take(slice(0, train.rows))
    left, right = free.loss(torch.from_numpy(initial_parameters(traced, 0)), *both), fused.loss(flat, *both)
    assert left.loss == pytest.approx(right.loss, rel=1e-4)
    assert (left.hits, left.misses, left.false_alarms) == (right.hits, right.misses, right.false_alarms)


def test_labels_of_which_several_hold() -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(80, 6)).astype(np.float32))
    y = (x[:, :3] > 0).float()
    loaded = module_workload(nn.Linear(6, 3), nn.BCEWithLogitsLoss(), (x, y), test_fraction=0.25)
    assert loaded.workload.loss == "sigmoid"
    plan = plan_of(loaded, "hogwild", {"cpu_batch": 4}, stop=StopRule(epochs=10), learning_rate=1.0)
    with warm_start():
        trace = train(plan, loaded.data()).trace
    assert trace["evaluations"]["train_score"][-1] > 0.85


# -- what is refused ------------------------------------------------------------------------------------------------


def weighted(outputs: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, y, weight=torch.tensor([1.0, 5.0], dtype=outputs.dtype))


class ByValue(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(64, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.one(x.flatten(1))
        return out if out.sum() > -1e30 else -out


class Through(nn.Module):
    """A linear layer, and then what a test wants of its output."""

    def __init__(self, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.one = nn.Linear(64, 2)
        self.change = change

    def forward(self, x: Tensor) -> Any:
        return self.change(self.one(x.flatten(1)))


def frozen() -> nn.Module:
    module = cnn()
    next(module.parameters()).requires_grad_(False)
    return module


def of_floats(outputs: Tensor, targets: Tensor) -> float:
    return functional.cross_entropy(outputs, targets).item()


Make = Callable[[], nn.Module]


@pytest.mark.parametrize(
    ("module", "loss", "words"),
    [
        (lambda: nn.Sequential(nn.BatchNorm2d(1), cnn()), nn.CrossEntropyLoss(), "buffer.*group or layer norm"),
        (lambda: nn.Sequential(cnn(), nn.Dropout(0.5)), nn.CrossEntropyLoss(), "1 is Dropout.*set p=0"),
        (nn.Flatten, nn.CrossEntropyLoss(), "must have parameters"),
        (cnn, nn.CrossEntropyLoss(reduction="sum"), "mean over the rows"),
        (cnn, nn.CrossEntropyLoss(reduction="none"), "one number"),
        (cnn, weighted, "no class weights"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), nn.CrossEntropyLoss(), r"must put out \(B, 2\)"),
        (ByValue, nn.CrossEntropyLoss(), "without values"),
        (frozen, nn.CrossEntropyLoss(), r"0\.weight is frozen \(requires_grad=False\).*plain attribute"),
        (lambda: cnn().double(), nn.CrossEntropyLoss(), r"must be float32 .*got torch\.float64; call module\.float"),
        (lambda: cnn().half(), nn.CrossEntropyLoss(), r"must be float32 .*got torch\.float16; call module\.float"),
        (
            lambda: nn.Linear(64, 2, dtype=torch.complex64),
            nn.CrossEntropyLoss(),
            r"must be float32 .*got torch\.complex64",
        ),
        (lambda: cnn().to("meta"), nn.CrossEntropyLoss(), "has no values"),
        (lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(2)), nn.CrossEntropyLoss(), "run the module once"),
        (lambda: nn.Linear, nn.CrossEntropyLoss(), r"got the class Linear; give Linear\(\.\.\.\)"),
        (lambda: 5, nn.CrossEntropyLoss(), r"must be a torch\.nn\.Module, got int"),
        (lambda: nn.Linear(5, 2), nn.CrossEntropyLoss(), r"cannot compute rows of shape \(2, 1, 8, 8\).*row_shape"),
        (lambda: Through(lambda x: (x, x)), nn.CrossEntropyLoss(), r"must put out \(B, 2\).*got a tuple for 2 rows"),
        (lambda: Through(lambda x: None), nn.CrossEntropyLoss(), "got a NoneType for 2 rows"),
        (lambda: Through(lambda x: x[:, :1]), nn.CrossEntropyLoss(), r"must put out \(B, 2\).*got \(2, 1\)"),
        (lambda: Through(lambda x: x.detach()), nn.CrossEntropyLoss(), "outputs must have a gradient.*detach"),
        (lambda: Through(lambda x: x / 0.0 * 0.0), nn.CrossEntropyLoss(), r"outputs must be finite, got \[nan"),
        (lambda: Through(lambda x: x + torch.rand_like(x)), nn.CrossEntropyLoss(), "may not draw at random"),
        (lambda: Through(lambda x: x - x.mean(0)), nn.CrossEntropyLoss(), "must compute each row by itself"),
        (cnn, nn.MSELoss(), r"loss: cannot compute from outputs \(2, 2\) and targets \(2,\) of int64"),
        (cnn, of_floats, "must be one number as a tensor.*got a float"),
        (cnn, 5, "must be a function of outputs and targets, got int"),
    ],
)
def test_what_cannot_be_trained_alike_everywhere_is_refused(module: Make, loss: Any, words: str) -> None:
    torch.manual_seed(1)
    with pytest.raises(ValueError, match=words):
        module_workload(module(), loss, images(), test_fraction=0.25)


def test_a_row_shape_that_does_not_fit_is_refused(bench: Bench) -> None:
    data: Dataset = bench.data
    with pytest.raises(ValueError, match=r"row_shape must hold the 10 features of a row, got \(3, 3\)"):
        module_workload(nn.Linear(10, 2), nn.CrossEntropyLoss(), data, row_shape=(3, 3))
