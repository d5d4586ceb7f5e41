"""A lane and a `cpu` accelerator in one run, against the loops of both side by side without any coordinator."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Final

import numpy as np

from benchmarks.hogwild import keep_warm, random_dataset
from benchmarks.pairs import Comparison, Group, Rate
from benchmarks.processes import RATE, loops, network_shape
from hetsgd.models.machine import Machine
from hetsgd.models.machine_file import load_machine
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.run import Progress, RunSettings, StopRule
from hetsgd.models.trace import Trace
from hetsgd.real import train

_SECONDS: Final = 2.0
_LANE_BATCH: Final = 16
_ACCELERATOR_BATCH: Final = 512
_WORKERS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid:
    """One run: rows per second of all workers, and two shares of the time of the clock.

    `between`: of the worker that spends most of its time between two assignments. `coordinator`: processor time of
    the process that coordinates.
    """

    rows_per_s: float
    between: float
    coordinator: float


@cache
def hybrid_machine() -> Machine:
    """This machine with one lane and one accelerator that the CPU stands in for."""
    return replace(load_machine("local"), cpu_lanes=1)


def hybrid(lookahead: int, steps: int = 1) -> Hybrid:
    """Hogbatch on one lane, which takes `steps` steps an assignment, and the stand-in."""
    keep_warm()
    plan = Plan(
        machine=hybrid_machine(),
        workload=replace(network_shape(), test_rows=64),
        policy="hogbatch",
        recipe=recipe(
            "hogbatch", cpu_batch=_LANE_BATCH, cpu_steps=steps, accelerator_batch=_ACCELERATOR_BATCH
        ),
        run=RunSettings(
            stop=StopRule(seconds=_SECONDS), learning_rate=RATE, lookahead=lookahead, evaluation="deferred",
            evaluate_every_s=1e6, trace="full",
        ),
    )  # fmt: skip
    told: list[tuple[float, float]] = []

    def note(progress: Progress) -> None:
        told.append((progress.now_s, time.thread_time()))

    trace = train(plan, random_dataset(), progress=note).trace
    (first_s, first_spent_s), (last_s, last_spent_s) = told[0], told[-2]
    return Hybrid(
        rows_per_s=rows_per_s(trace),
        between=max(_between(trace)),
        coordinator=(last_spent_s - first_spent_s) / (last_s - first_s),
    )


def rows_per_s(trace: Trace) -> float:
    """Rows of all workers per second, each from its first update to its last: what a stop cuts off does not count."""
    updates, total = trace["updates"], 0.0
    for worker in np.unique(updates["worker_text"]):
        own = updates[updates["worker_text"] == worker]
        total += own["rows"][1:].sum() / (own["at_s"][-1] - own["at_s"][0])
    return float(total)


def _between(trace: Trace) -> list[float]:
    """For each worker, the share of its time between the end of one assignment and the start of the next."""
    results, assignments = trace["results"], trace["assignments"]
    worker_of = dict(zip(assignments["id"].tolist(), assignments["worker_text"].tolist(), strict=True))
    spans: dict[int, list[tuple[float, float]]] = {}
    for row in np.sort(results, order="start_s"):
        spans.setdefault(worker_of[int(row["id"])], []).append((float(row["start_s"]), float(row["end_s"])))
    return [
        sum(max(after[0] - before[1], 0.0) for before, after in pairwise(own)) / (own[-1][1] - own[0][0])
        for own in spans.values()
    ]


def _side_by_side() -> float:
    jobs = [("bare", _LANE_BATCH), ("stand-in", _ACCELERATOR_BATCH)]
    samples = loops(_WORKERS).together(jobs, _SECONDS)
    return sum(batch * sample.per_s for (_, batch), sample in zip(jobs, samples, strict=True))


def _share(name: str, ours: Rate, floor: float | None) -> Group:
    comparison = Comparison(name=name, unit="of the time", reference="all of it", floor=floor)
    return Group(name=name, ours=ours, references={"all of it": lambda: 1.0}, comparisons=(comparison,), rounds=3)


_NAME: Final = f"hybrid rows, lane batch {_LANE_BATCH}, stand-in batch {_ACCELERATOR_BATCH}"
GROUPS: Final = (
    Group(
        name=_NAME,
        ours=lambda: hybrid(16).rows_per_s,
        references={"bare loops side by side": _side_by_side},
        comparisons=(Comparison(name=_NAME, unit="rows/s", reference="bare loops side by side", floor=0.95),),
        rounds=7,
    ),
    _share("a worker at its assignments, lookahead 1, 8 lane steps each", lambda: 1.0 - hybrid(1, 8).between, 0.98),
    _share("a worker at its assignments, lookahead 1, 1 lane step each", lambda: 1.0 - hybrid(1).between, None),
    _share(
        "the coordinator's processor idle, lookahead 1, 1 lane step each", lambda: 1.0 - hybrid(1).coordinator, None
    ),
)
