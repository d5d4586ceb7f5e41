"""Event-order replay: a simulated order gives back its own losses, a real one the losses that were measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hetsgd.models.run import StopRule
from hetsgd.real.event_order import event_order_replay
from hetsgd.real.replay import ReplayLearner
from hetsgd.sim import simulate
from hetsgd.sim.faults import Injected
from tests.real.small_runs import Bench
from tests.real.test_ensemble import POLICIES, dataset, plan

OWN_STEPS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("hogbatch", {"cpu_batch": 2, "accelerator_batch": 20}, {"lanes": "free", "lookahead": 1}),
    ("hogbatch", {"cpu_batch": 2, "accelerator_batch": 20}, {"evaluation": "concurrent", "evaluate_every_s": 1e-5}),
    ("hogbatch", {"cpu_batch": 2, "accelerator_batch": 20}, {"evaluation": "deferred", "stop": StopRule(seconds=3e-4)}),
    ("easgd", {"steps": 1, "cpu_batch": 2, "accelerator_batch": 8, "alpha": 0.2}, {}),
    ("ringmaster", {"cpu_batch": 2, "accelerator_batch": 16, "threshold": 1}, {}),
]


@pytest.mark.parametrize(("policy", "keys", "run"), [*(case for case in POLICIES if case[0] != "easgd"), *OWN_STEPS])
def test_a_simulated_order_gives_back_the_losses_of_its_simulation(
    policy: str, keys: dict[str, Any], run: dict[str, Any]
) -> None:
    of, data = plan(policy, keys, noise=0.4, **run), dataset()
    trace = simulate(of, ReplayLearner(of, data))
    losses = event_order_replay(trace, of, data)
    recorded = trace["evaluations"]
    np.testing.assert_allclose([loss.train for loss in losses], recorded["train"], rtol=1e-9)
    assert [loss.at_s for loss in losses] == recorded["at_s"].tolist()
    assert len(losses) > 2


def test_steps_of_lanes_on_a_replica_are_close_where_only_their_span_is_recorded() -> None:
    of = plan("easgd", {"steps": 6, "cpu_batch": 2, "accelerator_batch": 8, "alpha": 0.2}, noise=0.4)
    data = dataset()
    trace = simulate(of, ReplayLearner(of, data))
    losses = event_order_replay(trace, of, data)
    np.testing.assert_allclose([loss.train for loss in losses], trace["evaluations"]["train"], rtol=0.02)


def test_order_matters() -> None:
    of, data = plan("hogbatch", {"cpu_batch": 2, "accelerator_batch": 20}, noise=0.4), dataset()
    trace = simulate(of, ReplayLearner(of, data))
    table = trace["updates"]
    table["read"] = np.maximum(table["read"] - 8, 0)  # everything staler than it was
    losses = event_order_replay(trace, of, data)
    assert abs(losses[-1].train / trace["evaluations"]["train"][-1] - 1.0) > 1e-3


@pytest.mark.parametrize(
    ("policy", "keys"),
    [
        ("hogbatch", {"cpu_batch": 4, "accelerator_batch": 64}),
        ("synchronous", {"cpu_batch": 4, "accelerator_batch": 64}),
        ("easgd", {"steps": 4, "cpu_batch": 4, "accelerator_batch": 16, "alpha": 0.2}),
        ("ringmaster", {"cpu_batch": 4, "accelerator_batch": 64}),
    ],
)
@pytest.mark.usefixtures("watchdog")
def test_the_recorded_order_of_a_real_run_implies_its_losses(bench: Bench, policy: str, keys: dict[str, Any]) -> None:
    of = bench.plan(policy, lanes=2, keys=keys, stop=StopRule(epochs=8))
    trained = bench.run(of)
    measured = trained.trace["evaluations"]["train"]
    implied = [loss.train for loss in event_order_replay(trained.trace, of, bench.data)]
    assert measured[-1] < 0.8 * measured[0]
    np.testing.assert_allclose(implied, measured, rtol=0.03)


def test_what_cannot_be_replayed_is_refused() -> None:
    of, data = plan("hogwild", trace="summary"), dataset()
    with pytest.raises(ValueError, match="only level 'full' keeps, got level 'summary'"):
        event_order_replay(simulate(of, ReplayLearner(of, data)), of, data)
    of = plan("hogwild")
    trace = simulate(of, ReplayLearner(of, data), faults=[Injected(worker="cpu", at_s=1e-4, lane=1)])
    with pytest.raises(ValueError, match="lost workers or lanes cannot be replayed"):
        event_order_replay(trace, of, data)
