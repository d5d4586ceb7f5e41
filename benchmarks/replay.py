"""Replay against its own network calls in a bare loop: what virtual time, reads and writes in order cost on top.

The calls of a run are recorded once; the loop then makes the same calls with the same batching. Both have one thread
and are timed by the processor time of it, which programs beside them do not stretch as much.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
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
from hetsgd.models.workload import Workload
from hetsgd.real.features import Batch
from hetsgd.real.network import Network
from hetsgd.real.replay import ReplayLearner
from hetsgd.real.torch_threads import TorchThreads
from hetsgd.sim import simulate

Call = tuple[str, int]
"""A method of the network and the rows it was called with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A policy with its keys, and how many updates a sample has."""

    policy: str
    updates: int
    lanes: int = 8
    lanes_mode: LaneMode = "barrier"
    keys: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        """The case in words."""
        keys = "".join(f", {key} {value}" for key, value in self.keys)
        return f"replayed updates, {self.policy}, {self.lanes} {self.lanes_mode} lanes{keys}"


@cache
def _plan(case: Case) -> Plan:
    return Plan(
        machine=load_machine("aws-p3.16xlarge", {"cpu_lanes": case.lanes}),
        workload=replace(network_shape(), test_rows=64),
        policy=case.policy,
        recipe=recipe(case.policy, **dict(case.keys)),
        run=RunSettings(
            stop=StopRule(updates=case.updates), evaluation="deferred", lanes=case.lanes_mode, learning_rate=1e-3
        ),
    )


def _replayed(case: Case) -> tuple[float, list[Call]]:
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

        def accumulate_and_factors(self, w_P: Tensor, source: Any, first: int, stop: int, *rest: Any) -> None:
            calls.extend([("accumulate", stop - first), ("factors", rest[-1])])
            super().accumulate_and_factors(w_P, source, first, stop, *rest)

        def loss(self, w_P: Tensor, x_BF: Batch, y: Tensor) -> Any:
            nonlocal losses_s
            start_s = time.thread_time()
            result = super().loss(w_P, x_BF, y)
            losses_s += time.thread_time() - start_s
            return result

    def recording(workload: Workload, **settings: Any) -> Recording:
        return Recording(workload, **settings)

    plan, dataset = _plan(case), random_dataset()
    with patch.object(replay_module, "network_of", recording):
        learner = ReplayLearner(plan, dataset)
        start_s = time.thread_time()
        simulate(plan, learner)
        return time.thread_time() - start_s - losses_s, calls


@cache
def _calls(case: Case) -> tuple[Call, ...]:
    return tuple(_replayed(case)[1])


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
        start_s = time.thread_time()
        for call in loop:
            call()
        return time.thread_time() - start_s


def _group(case: Case) -> Group:
    def ours() -> float:
        return case.updates / _replayed(case)[0]

    def bare() -> float:
        return case.updates / _bare_s(_calls(case))

    references: dict[str, Rate] = {"bare network calls": bare}
    comparison = Comparison(name=case.name, unit="updates/s", reference="bare network calls", floor=1 / 1.15)
    return Group(name=case.name, ours=ours, references=references, comparisons=(comparison,))


CASES: Final = (
    Case(policy="hogwild", updates=1000, lanes=16, lanes_mode="free"),
    Case(policy="hogbatch", updates=400, keys=(("accelerator_batch", 512),)),
    Case(policy="hogbatch", updates=400, lanes_mode="free", keys=(("accelerator_batch", 512),)),
    Case(policy="adaptive-hogbatch", updates=200, keys=(("accelerator_batch", 1024), ("accelerator_upper", 1024))),
    Case(policy="ringmaster", updates=80),
    Case(policy="synchronous", updates=16),
    Case(policy="minibatch", updates=60, keys=(("accelerator_batch", 256),)),
    Case(policy="minibatch", updates=6, keys=(("accelerator_batch", 4096),)),
)
GROUPS: Final = tuple(_group(case) for case in CASES)
