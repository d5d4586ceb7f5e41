"""Replay against its own network calls in a bare loop: what virtual time, reads and writes in order cost on top.

The calls of a run are recorded once; the loop then makes the same calls with the same batching on one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Final
from unittest.mock import patch

import torch
from torch import Tensor

import hetsgd.real.replay as replay_module
from benchmarks.hogwild import random_dataset
from benchmarks.pairs import Comparison, Group, Rate
from benchmarks.processes import network_shape
from hetsgd.models.machine_file import load_machine
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.policy import LaneMode
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.real.features import Batch
from hetsgd.real.network import Network
from hetsgd.real.replay import ReplayLearner, TorchThreads
from hetsgd.sim import simulate

_UPDATES: Final = {"hogbatch": 1000, "ringmaster": 200}
_LANES: Final = 8
Call = tuple[str, int]
"""A method of the network and the rows it was called with."""


@cache
def _plan(policy: str, lanes_mode: LaneMode) -> Plan:
    keys = {"accelerator_batch": 512} if policy == "hogbatch" else {}
    return Plan(
        machine=load_machine("aws-p3.16xlarge", {"cpu_lanes": _LANES}),
        workload=replace(network_shape(), test_rows=64),
        policy=policy,
        recipe=recipe(policy, **keys),
        run=RunSettings(
            stop=StopRule(updates=_UPDATES[policy]), evaluation="deferred", lanes=lanes_mode, learning_rate=1e-3
        ),
    )


def _replayed(policy: str, lanes_mode: LaneMode) -> tuple[float, list[Call]]:
    """Seconds of a simulated run with replay, initial and final losses left out, and its network calls."""
    calls: list[Call] = []
    losses_s = 0.0

    class Recording(Network):
        def step(self, w_P: Tensor, x_BF: Batch, y: Tensor, rate: float, decay: float = 0.0) -> None:
            before = len(calls)
            super().step(w_P, x_BF, y, rate, decay)
            calls[before:] = [("step", x_BF.shape[0])]  # what a step calls itself is part of it

        def gradient(self, w_P: Tensor, x_BF: Batch, y: Tensor, out_P: Tensor) -> None:
            calls.append(("gradient", x_BF.shape[0]))
            super().gradient(w_P, x_BF, y, out_P)

        def factors(self, w_P: Tensor, y: Tensor, workspace: Any, rows: int) -> None:
            calls.append(("factors", rows))
            super().factors(w_P, y, workspace, rows)

        def accumulate(self, target_P: Tensor, workspace: Any, first: int, stop: int, *factors: float) -> None:
            calls.append(("accumulate", stop - first))
            super().accumulate(target_P, workspace, first, stop, *factors)

        def loss(self, w_P: Tensor, x_BF: Batch, y: Tensor) -> Any:
            nonlocal losses_s
            start_s = time.perf_counter()
            result = super().loss(w_P, x_BF, y)
            losses_s += time.perf_counter() - start_s
            return result

    plan, dataset = _plan(policy, lanes_mode), random_dataset()
    with patch.object(replay_module, "Network", Recording):
        learner = ReplayLearner(plan, dataset)
        start_s = time.perf_counter()
        simulate(plan, learner)
        return time.perf_counter() - start_s - losses_s, calls


@cache
def _calls(policy: str, lanes_mode: LaneMode) -> tuple[Call, ...]:
    return tuple(_replayed(policy, lanes_mode)[1])


def _bare_s(calls: tuple[Call, ...]) -> float:
    """Seconds of the same network calls in a loop."""
    workload = network_shape()
    most = max(rows for _, rows in calls)
    network = Network(workload, max_batch=most)
    w_P, out_P, workspace = network.vector().normal_(0.0, 0.02), network.vector(), network.workspace(most)
    x = torch.from_numpy(random_dataset().train_x)
    y = torch.from_numpy(random_dataset().train_y)
    workspace.views(0, most).x_BF.copy_(x[:most])
    network.factors(w_P, y[:most], workspace, most)

    def make(name: str, rows: int) -> Callable[[], None]:
        made: dict[str, Callable[[], None]] = {
            "step": lambda: network.step(w_P, x[:rows], y[:rows], 1e-3),
            "gradient": lambda: network.gradient(w_P, x[:rows], y[:rows], out_P),
            "factors": lambda: network.factors(w_P, y[:rows], workspace, rows),
            "accumulate": lambda: network.accumulate(w_P, workspace, 0, rows, -1e-6, 1.0),
        }
        return made[name]

    with TorchThreads(1):
        loop = [make(*call) for call in calls]
        start_s = time.perf_counter()
        for call in loop:
            call()
        return time.perf_counter() - start_s


def _group(policy: str, lanes_mode: LaneMode) -> Group:
    def ours() -> float:
        return _UPDATES[policy] / _replayed(policy, lanes_mode)[0]

    def bare() -> float:
        return _UPDATES[policy] / _bare_s(_calls(policy, lanes_mode))

    references: dict[str, Rate] = {"bare network calls": bare}
    name = f"replayed updates, {policy}, {_LANES} {lanes_mode} lanes"
    comparison = Comparison(name=name, unit="updates/s", reference="bare network calls", floor=1 / 1.15)
    return Group(name=f"replay: {policy}, {lanes_mode}", ours=ours, references=references, comparisons=(comparison,))


GROUPS: Final = (_group("hogbatch", "barrier"), _group("hogbatch", "free"), _group("ringmaster", "barrier"))
