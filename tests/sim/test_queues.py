"""Links and copy engines against queueing theory: M/D/1, Little's law, fair shares, and a batch at the capacity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simpy

from hetsgd.models.footprint import CapacityError, accelerator_bytes
from hetsgd.models.learner import NoLearner
from hetsgd.models.machine import Machine
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.trace import Trace
from hetsgd.models.workload import Workload
from hetsgd.sim import simulate
from hetsgd.sim.links import CopyEngines, Fabric
from hetsgd.sim.record import LOAD, Recorder
from hetsgd.sim.world import World

Make = Callable[..., Any]
SERVICE_S = 2.0


def poisson_transfers(of: Plan, rate_per_s: float, count: int, desk: Any) -> np.ndarray[Any, Any]:
    """Arrival and end of transfers that each take SERVICE_S, asked of one copy engine at random: (count, 2)."""
    world = World(of, NoLearner(), Recorder(Trace(level="none")), desk)
    down, _ = Fabric(world, world.recorder).paths(of.machine.accelerators[0])
    engines = CopyEngines(world, 0, 1)
    size_bytes = int(SERVICE_S * of.machine.links[0].pinned_bytes_per_s)
    arrivals = np.cumsum(np.random.default_rng(7).exponential(1.0 / rate_per_s, count))
    seen = np.zeros((count, 2))

    def arrive(number: int) -> None:
        def ended() -> None:
            seen[number, 1] = world.env.now

        seen[number, 0] = world.env.now
        engines.move(down, LOAD, number, size_bytes, ended)

    for number, at_s in enumerate(arrivals):
        simpy.Timeout(world.env, float(at_s), number).callbacks.append(lambda event: arrive(event.value))
    world.env.run()
    return seen


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_transfers_wait_for_an_engine_as_in_an_m_d_1_queue(machine: Make, plan: Make, load: float) -> None:
    # Pollaczek and Khinchine: mean wait = load x service / (2 (1 - load)) for constant service.
    on: Machine = machine(lanes=0, link={"latency_s": 0.0})
    of: Plan = plan(recipe("minibatch", accelerator_batch=10), on)
    seen = poisson_transfers(of, load / SERVICE_S, 20_000, None)
    waits = seen[:, 1] - seen[:, 0] - SERVICE_S
    assert waits.min() >= -1e-6
    assert waits.mean() == pytest.approx(load * SERVICE_S / (2 * (1 - load)), rel=0.06)


def test_littles_law_holds_at_an_engine(machine: Make, plan: Make) -> None:
    of: Plan = plan(recipe("minibatch", accelerator_batch=10), machine(lanes=0, link={"latency_s": 0.0}))
    seen = poisson_transfers(of, 0.35, 5_000, None)
    # The mean number that is there, counted at random times, is the rate of arrivals times the mean stay.
    span_s = seen[-1, 0]
    times = np.random.default_rng(1).uniform(0.0, span_s, 20_000)
    there = np.mean(
        np.sum((seen[None, :, 0] <= times[:2_000, None]) & (seen[None, :, 1] > times[:2_000, None]), axis=1)
    )
    stay_s = (seen[:, 1] - seen[:, 0]).mean()
    assert there == pytest.approx(len(seen) / span_s * stay_s, rel=0.1)


def test_littles_law_holds_at_every_place_of_a_run(machine: Make, plan: Make, workload: Workload) -> None:
    of = plan(recipe("hogbatch", cpu_batch=1, accelerator_batch=12), machine(lanes=3, accelerators=2), workload)
    trace = simulate(of, NoLearner())
    spans, totals = trace["spans"], trace.totals
    for place in trace.places:
        own = spans[spans["place_text"] == trace.code(place)]
        if not len(own):
            continue
        # The mean number of spans under way, by sweeping over starts and ends in the order of time.
        times = np.concatenate([own["start_s"], own["end_s"]])
        steps = np.concatenate([np.ones(len(own)), -np.ones(len(own))])
        order = np.lexsort((steps, times))
        under_way = np.cumsum(steps[order])
        mean = float(np.sum(under_way[:-1] * np.diff(times[order]))) / trace.elapsed_s
        assert under_way.max() <= 1.0, f"{place} does two things at once"
        assert mean == pytest.approx(len(own) / trace.elapsed_s * np.mean(own["end_s"] - own["start_s"]))
        busy_s = sum(seconds for (name, _), seconds in totals.busy_s.items() if name == place)
        assert mean * trace.elapsed_s == pytest.approx(busy_s)


@pytest.mark.parametrize("flows", [2, 3, 5])
def test_equal_flows_on_one_link_each_have_an_equal_part(
    machine: Make, plan: Make, workload: Workload, flows: int
) -> None:
    apart: Machine = machine(lanes=0, accelerators=flows, link={"latency_s": 0.0})
    switch = replace(apart.sockets[0], name="switch")
    trunk = replace(apart.links[0], name="trunk", ends=("cpu0", "switch"))
    leaves = tuple(replace(link, ends=("switch", link.ends[1])) for link in apart.links)
    shared = replace(apart, sockets=(*apart.sockets, switch), links=(trunk, *leaves))
    of: Plan = plan(recipe("minibatch", accelerator_batch=120 // flows), apart)
    alone, together = (simulate(replace(of, machine=on), NoLearner()).elapsed_s for on in (apart, shared))
    copy_s = (120 // flows * workload.row_bytes + 2 * workload.model_bytes) / 40.0
    assert together - alone == pytest.approx((flows - 1) * copy_s)


def test_a_batch_at_exactly_the_capacity_runs_and_a_byte_less_is_refused(
    machine: Make, plan: Make, workload: Workload
) -> None:
    needed = accelerator_bytes(workload, 30)
    rule = recipe("minibatch", accelerator_batch=30)
    fits = simulate(plan(rule, machine(lanes=0, accelerator={"memory_bytes": needed})), NoLearner())
    assert fits.totals.memory["gpu0:memory"] == needed
    with pytest.raises(CapacityError, match="a batch of 30 rows needs"):
        simulate(plan(rule, machine(lanes=0, accelerator={"memory_bytes": needed - 1})), NoLearner())
