"""Simulator speed against bare SimPy timeouts: what the engine adds to the events that it cannot do without."""

from __future__ import annotations

import time
from collections.abc import Generator

import simpy

from benchmarks.pairs import Comparison, Group
from hetsgd.models.learner import NoLearner
from hetsgd.models.machine_file import load_machine
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.workload import Workload
from hetsgd.sim import simulate

_TIMEOUTS = 200_000
_ASSIGNMENTS = 20_000
_LANE_UPDATES = 64_000


def bare_timeouts() -> float:
    """Timeouts per second of one process that does nothing else."""

    def clock(env: simpy.Environment) -> Generator[simpy.Event, None, None]:
        for _ in range(_TIMEOUTS):
            yield env.timeout(1.0)

    env = simpy.Environment()
    env.process(clock(env))
    start_s = time.perf_counter()
    env.run()
    return _TIMEOUTS / (time.perf_counter() - start_s)


def covtype_net() -> Workload:
    """The paper's network for covtype, as a shape: 54-512x6-2, float64, no bias."""
    return Workload(
        name="covtype",
        dataset="covtype",
        rows=581_012,
        test_rows=0,
        features=54,
        outputs=2,
        hidden=(512,) * 6,
        bias=False,
        precision="float64",
    )


def _plan(policy: str, lanes: int, updates: int) -> Plan:
    return Plan(
        machine=load_machine("aws-p3.16xlarge", {"cpu_lanes": lanes}),
        workload=covtype_net(),
        policy=policy,
        recipe=recipe(policy),
        run=RunSettings(stop=StopRule(updates=updates), evaluation="deferred", trace="full"),
    )


def assignments() -> float:
    """Assignments per second with two single-lane workers and a full trace."""
    plan = _plan("hogbatch", 1, _ASSIGNMENTS)
    start_s = time.perf_counter()
    trace = simulate(plan, NoLearner())
    return len(trace["assignments"]) / (time.perf_counter() - start_s)


def lane_updates() -> float:
    """Lane updates per second of a barrier team of 64 lanes with a full trace."""
    plan = _plan("hogwild", 64, _LANE_UPDATES)
    start_s = time.perf_counter()
    trace = simulate(plan, NoLearner())
    return len(trace["updates"]) / (time.perf_counter() - start_s)


GROUPS = (
    Group(
        name="simulator: assignments",
        ours=assignments,
        references={"bare SimPy timeouts": bare_timeouts},
        comparisons=(
            Comparison(
                name="simulated assignments, two single-lane workers, full trace",
                unit="assignments/s",
                reference="bare SimPy timeouts",
                floor=0.02,
                aim=0.05,
            ),
        ),
    ),
    Group(
        name="simulator: lane updates",
        ours=lane_updates,
        references={"bare SimPy timeouts": bare_timeouts},
        comparisons=(
            Comparison(
                name="simulated lane updates, team of 64, full trace",
                unit="updates/s",
                reference="bare SimPy timeouts",
                floor=0.08,
                aim=0.25,
            ),
        ),
    ),
)
