"""Ensemble replay: every replica is its own single run, whatever the policy writes and merges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.machine import Noise
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.policies.hogwild import Hogwild
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.workload import Workload
from hetsgd.real.ensemble import EnsembleReplay
from hetsgd.real.replay import ReplayLearner
from hetsgd.sim import simulate
from tests.uneven_machine import uneven_machine

ROWS = 150
SEEDS = (4, 5, 9)
TOLERANCE = {"float64": 1e-11, "float32": 2e-4}


def plan(
    policy: str, keys: dict[str, Any] | None = None, *, load: dict[str, Any] | None = None, noise: float = 0.0,
    accelerators: int = 2, **run: Any,
) -> Plan:  # fmt: skip
    shape: dict[str, Any] = {"hidden": (7, 5), "activation": "tanh", "precision": "float64"}
    workload = Workload(name="w", dataset="d", rows=ROWS, test_rows=20, features=6, outputs=3, **(shape | (load or {})))
    values: dict[str, Any] = {"stop": StopRule(epochs=2), "seed": SEEDS[0], "learning_rate": 0.1}
    machine = uneven_machine(3, accelerators, Noise(cpu_sigma=noise, accelerator_sigma=noise))
    return Plan(
        machine=machine, workload=workload, policy=policy,
        recipe=recipe(policy, **(keys or {})), run=RunSettings(**(values | run)),
    )  # fmt: skip


def dataset(*, multilabel: bool = False) -> Dataset:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(ROWS + 20, 6))
    y: Any = np.argmax(x[:, :3] + x[:, 3:], axis=1)
    if multilabel:
        y = (x[:, :3] + x[:, 3:] > 0.3).astype(np.float32)
    return Dataset(
        name="d", train_x=x[:ROWS], train_y=y[:ROWS], test_x=x[ROWS:], test_y=y[ROWS:], classes=3,
        multilabel=multilabel, source="random",
    )  # fmt: skip


POLICIES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("hogwild", {"cpu_batch": 1, "cpu_steps": 3}, {}),
    ("hogwild", {"cpu_batch": 4}, {"order": "file"}),
    ("hogwild", {"cpu_batch": 2}, {"lanes": "free"}),
    ("hogbatch", {"cpu_batch": 2, "accelerator_batch": 20}, {}),
    ("minibatch", {"accelerator_batch": 30}, {}),
    ("adaptive-hogbatch", {"cpu_batch": 1, "accelerator_batch": 8, "accelerator_lower": 4}, {}),
    ("synchronous", {"cpu_batch": 4, "accelerator_batch": 16}, {"momentum": 0.5}),
    ("easgd", {"steps": 3, "cpu_batch": 2, "accelerator_batch": 8, "alpha": 0.2}, {}),
    ("ringmaster", {"cpu_batch": 2, "accelerator_batch": 16}, {}),
    ("backup-workers", {"cpu_batch": 2, "accelerator_batch": 16}, {}),
]


def check_each(of: Plan, data: Dataset, ensemble: EnsembleReplay, tolerance: float) -> None:
    """Every replica against a single run with its seed and rate; without noise their orders of events are the same."""
    trace = simulate(of, ensemble)
    assert not ensemble.held
    for index, (seed, rate) in enumerate(zip(ensemble.seeds, ensemble.learning_rates, strict=True)):
        single = replace(of, run=replace(of.run, seed=seed, learning_rate=rate))
        learner = ReplayLearner(single, data)
        alone = simulate(single, learner)
        assert len(alone["updates"]) == len(trace["updates"])
        np.testing.assert_allclose(ensemble.parameters[index], learner.parameters, rtol=tolerance, atol=tolerance)
        curve = [loss.train for loss in ensemble.curves[index]]
        np.testing.assert_allclose(curve, alone["evaluations"]["train"], rtol=tolerance)


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize(("policy", "keys", "run"), POLICIES)
def test_each_replica_is_its_own_single_run(policy: str, keys: dict[str, Any], run: Any, precision: str) -> None:
    of, data = plan(policy, keys, load={"precision": precision}, **run), dataset()
    check_each(of, data, EnsembleReplay(of, data, seeds=SEEDS), TOLERANCE[precision])


@pytest.mark.parametrize(
    ("policy", "keys", "run"),
    [*POLICIES, ("easgd", {"steps": 3, "cpu_batch": 2, "accelerator_batch": 8, "rho": 2.0}, {})],
)
def test_each_replica_may_have_a_learning_rate_of_its_own(policy: str, keys: dict[str, Any], run: Any) -> None:
    of, data = plan(policy, keys, **run), dataset()
    check_each(of, data, EnsembleReplay(of, data, seeds=SEEDS, learning_rates=(0.1, 0.02, 0.15)), 1e-9)


@pytest.mark.parametrize("hidden", [(), (300,)])
def test_other_shapes_and_losses(hidden: tuple[int, ...]) -> None:
    load = {"hidden": hidden, "loss": "sigmoid", "bias": bool(hidden), "activation": "relu"}
    of, data = plan("hogbatch", {"cpu_batch": 3, "accelerator_batch": 90}, load=load), dataset(multilabel=True)
    check_each(of, data, EnsembleReplay(of, data, seeds=SEEDS), 1e-10)


def test_weight_decay_goes_with_the_one_rate_of_all() -> None:
    of, data = plan("hogbatch", {"cpu_batch": 3, "accelerator_batch": 30}, weight_decay=0.01), dataset()
    check_each(of, data, EnsembleReplay(of, data, seeds=SEEDS), 1e-10)
    with pytest.raises(ValueError, match="weight decay goes with the learning rate; give all replicas the same rate"):
        EnsembleReplay(of, data, seeds=SEEDS, learning_rates=(0.1, 0.2, 0.3))


def test_with_noise_all_replicas_have_the_timing_of_the_plan() -> None:
    of, data = plan("hogbatch", {"cpu_batch": 2, "accelerator_batch": 20}, noise=0.3), dataset()
    ensemble = EnsembleReplay(of, data, seeds=SEEDS)
    trace = simulate(of, ensemble)
    for index, seed in enumerate(SEEDS):
        learner = ReplayLearner(replace(of, run=replace(of.run, seed=seed)), data)
        alone = simulate(of, learner)
        assert alone.elapsed_s == trace.elapsed_s
        np.testing.assert_allclose(ensemble.parameters[index], learner.parameters, rtol=1e-10, atol=1e-11)


def test_the_engine_is_told_the_mean_of_what_is_finite() -> None:
    load = {"precision": "float32", "activation": "relu"}
    of, data = plan("hogwild", {"cpu_batch": 4}, load=load), dataset()
    ensemble = EnsembleReplay(of, data, seeds=(4, 5), learning_rates=(0.1, 1e30))
    trace = simulate(of, ensemble)
    assert trace.status == "done"
    assert ensemble.curves[1][-1].diverged
    assert trace["evaluations"]["train"][-1] == ensemble.curves[0][-1].train
    both = EnsembleReplay(of, data, seeds=(4, 5), learning_rates=(1e30, 1e30))
    assert simulate(of, both).status == "diverged"


class _Greedy(Hogwild):
    reads_losses: ClassVar[bool] = True


def test_runs_whose_events_depend_on_their_losses_are_refused() -> None:
    of, data = plan("hogwild"), dataset()
    with pytest.raises(ValueError, match="policy hogwild decides by the losses of its run"):
        EnsembleReplay(replace(of, recipe=_Greedy()), data, seeds=SEEDS)
    target = replace(of, run=replace(of.run, stop=StopRule(epochs=1, target_loss=0.1)))
    with pytest.raises(ValueError, match="a target loss ends each run at a time of its own"):
        EnsembleReplay(target, data, seeds=SEEDS)


def test_what_is_asked_for_must_fit_together() -> None:
    of, data = plan("hogwild"), dataset()
    with pytest.raises(ValueError, match="seeds must name at least one"):
        EnsembleReplay(of, data, seeds=())
    with pytest.raises(ValueError, match="one learning rate for each seed, got 1 for 3"):
        EnsembleReplay(of, data, seeds=SEEDS, learning_rates=(0.1,))
    with pytest.raises(ValueError, match="learning rates must be > 0 and finite"):
        EnsembleReplay(of, data, seeds=(1,), learning_rates=(-0.1,))
