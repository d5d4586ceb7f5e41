"""Message latency and decision cost of the executor, from short runs with the real children."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import numpy as np

from hetsgd.models.machine import Machine
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.run import Progress, RunSettings, StopRule
from hetsgd.models.step_table import Shape
from hetsgd.models.trace import Trace
from hetsgd.models.workload import Workload
from hetsgd.real.engine import train
from hetsgd.real.step_rig import random_data

_ROWS: Final = 4096
_CPU_BATCH: Final = 16
_ACCELERATOR_BATCH: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrip:
    """Seconds: `gap_s` between two assignments of one seat, `decision_s` of the coordinator's processor for each."""

    gap_s: float
    decision_s: float

    @property
    def message_s(self) -> float:
        """One way: half of what the decision leaves of the gap."""
        return max((self.gap_s - self.decision_s) / 2.0, 1e-7)


def round_trip(machine: Machine, seconds: float) -> RoundTrip | None:
    """Train a network of short steps for so long, without lookahead; None when too little happened or it was stopped.

    Every worker waits for its next assignment, so that the gaps between them are two messages and a decision.
    """
    workload = Workload(
        name="round trips", dataset="random", rows=_ROWS, test_rows=1, features=54, outputs=2, hidden=(256, 256, 256)
    )
    run = RunSettings(
        stop=StopRule(seconds=seconds), learning_rate=1e-9, evaluation="deferred", evaluate_every_s=1e6, lookahead=0
    )
    policy = recipe("hogbatch", cpu_batch=_CPU_BATCH, accelerator_batch=_ACCELERATOR_BATCH)
    plan = Plan(machine=machine, workload=workload, policy="hogbatch", recipe=policy, run=run)
    spent: list[tuple[float, int]] = []

    def note(progress: Progress) -> None:
        spent.append((time.thread_time(), progress.updates))

    trace = train(plan, random_data(Shape.of(workload), workload.rows), progress=note).trace
    given, updates = len(trace["assignments"]), int(sum(trace.totals.updates.values()))
    gaps = _gaps(trace)
    # The first and the last report are made before the clock starts and after it has stopped.
    inside = spent[1:-1] if len(spent) > 3 else spent
    if trace.status != "done" or len(gaps) < 10 or len(inside) < 2 or inside[-1][1] == inside[0][1]:
        return None
    per_update = (inside[-1][0] - inside[0][0]) / (inside[-1][1] - inside[0][1])
    return RoundTrip(gap_s=float(np.median(gaps)), decision_s=per_update * updates / given)


def _gaps(trace: Trace) -> list[float]:
    """Seconds from the end of one assignment to the start of the next, for each seat."""
    assignments, results = trace["assignments"], trace["results"]
    seats = {int(row["id"]): (int(row["worker_text"]), int(row["lane"])) for row in assignments}
    gaps: list[float] = []
    ends: dict[tuple[int, int], float] = {}
    for row in results[np.argsort(results["start_s"], kind="stable")]:
        seat = seats[int(row["id"])]
        if seat in ends:
            gaps.append(float(row["start_s"]) - ends[seat])
        ends[seat] = float(row["end_s"])
    return gaps
