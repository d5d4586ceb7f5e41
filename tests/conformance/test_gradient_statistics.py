"""Gradient statistics in both engines: the same figures at the same weights, in the view, and paid for in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from hetsgd.models.gradient_noise import BIG_SQ, SMALL_SQ
from hetsgd.models.initial import initial_parameters
from hetsgd.models.plan import Plan
from hetsgd.models.policies.hogbatch import Hogbatch
from hetsgd.models.policy import Fleet, Merge, Result, View, Work
from hetsgd.models.run import StopRule
from hetsgd.models.streams import row_order
from hetsgd.models.trace import Trace
from hetsgd.real.network import Network
from hetsgd.real.replay import ReplayLearner
from hetsgd.sim import simulate
from tests.real.small_runs import Bench
from tests.real.small_runs import bench as bench
from tests.real.small_runs import watchdog as watchdog

KEYS = {"accelerator_batch": 64}


def stats_of(trace: Trace) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    for id_, name, value in trace["stats"].tolist():
        found.setdefault(id_, {})[trace.texts[name]] = value
    return found


def test_the_norms_are_those_of_the_model_that_is_read(bench: Bench) -> None:
    of = bench.plan("minibatch", keys=KEYS, gradient_stats=1)
    first = stats_of(simulate(of, ReplayLearner(of, bench.data)))[0]
    network = Network(of.workload, max_batch=64)
    w, out = torch.from_numpy(initial_parameters(of.workload, 3)), network.vector()
    order = row_order(3, 0, bench.data.rows, "shuffled")
    assert order is not None
    for rows, key in ((64, BIG_SQ), (32, SMALL_SQ)):
        index = order[:rows]
        x, y = torch.from_numpy(bench.data.train_x[index]), torch.from_numpy(bench.data.train_y[index])
        network.gradient(w, x, y, out)
        assert first[key] == pytest.approx(float(out.double().square().sum()), rel=1e-5)


@pytest.mark.usefixtures("watchdog")
@pytest.mark.parametrize(
    ("policy", "keys", "lanes"),
    [
        ("minibatch", KEYS, 0),
        ("hogwild", {"cpu_batch": 8}, 1),
        ("synchronous", {"cpu_batch": 8, "accelerator_batch": 16}, 2),
        ("easgd", {"steps": 2, "accelerator_batch": 16, "cpu_batch": 8, "alpha": 0.1}, 1),
    ],
)
def test_both_engines_measure_the_same(bench: Bench, policy: str, keys: dict[str, Any], lanes: int) -> None:
    accelerators = () if policy == "hogwild" else ("acc0",)
    of = bench.plan(
        policy, keys=keys, lanes=max(lanes, 1), accelerators=accelerators, gradient_stats=3, stop=StopRule(epochs=1)
    )
    measured, simulated = stats_of(bench.run(of).trace), stats_of(simulate(of, ReplayLearner(of, bench.data)))
    # Asynchronous replicas meet other models in another order; what starts from the initial model is the same.
    same = [0] if policy == "easgd" else sorted(simulated)
    assert same
    assert sorted(measured)[0] == 0
    for id_ in same:
        assert measured[id_] == pytest.approx(simulated[id_], rel=2e-3), id_


@pytest.mark.parametrize("lanes", [1, 3])
def test_measuring_takes_its_time_in_the_simulator(bench: Bench, lanes: int) -> None:
    without = bench.plan("hogbatch", lanes=lanes, keys={"cpu_batch": 16, **KEYS}, stop=StopRule(epochs=10))

    def computing_s(place: str, every: int) -> float:
        """Seconds of computing per assignment of the worker."""
        of = replace(without, run=replace(without.run, gradient_stats=every))
        trace = simulate(of, ReplayLearner(of, bench.data))
        seats = [trace.texts[code] for code in trace["assignments"]["worker_text"]]
        return trace.totals.busy_s[place, "compute"] / seats.count(place.partition("[")[0])

    for place in ("cpu[0]", "acc0"):
        always, seldom, never = (computing_s(place, every) for every in (1, 3, 0))
        assert 2.0 * never < always < 4.0 * never
        assert never < seldom < always


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watching(Hogbatch):
    """Notes what the view shows of each worker."""

    seen: ClassVar[list[Mapping[str, float]]] = []

    def begin(self, fleet: Fleet) -> Any:
        inner, seen = Hogbatch.begin(self, fleet), self.seen

        class Schedule:
            def next(self, view: View, worker: str) -> Any:
                seen.append(view.workers[worker].stats)
                found: Work = inner.next(view, worker)  # type: ignore[assignment]  # Hogbatch never waits
                return found

            def on_result(self, view: View, result: Result) -> Sequence[Merge]:
                return inner.on_result(view, result)

        return Schedule()


def test_a_policy_sees_them(bench: Bench) -> None:
    of: Plan = bench.plan(_Watching(cpu_batch=8, **KEYS), gradient_stats=2)
    _Watching.seen.clear()
    simulate(of, ReplayLearner(of, bench.data))
    assert _Watching.seen[0] == {}
    assert np.isfinite(_Watching.seen[-1][BIG_SQ])
