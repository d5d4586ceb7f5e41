"""What the simulator says of one cell: epoch time, shares and utilization."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsgd.studies.paper.implementation import Setting, plan_of

if TYPE_CHECKING:
    from hetsgd.models.machine import Machine
    from hetsgd.models.plan import Plan
    from hetsgd.models.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """One simulated cell; times without the evaluations at the ends of epochs, as the paper's epochs are.

    `epochs_s` of each epoch, `epoch_s` their mean; `cpu_share` of the updates; `cpu_rows_per_s`: rows of the CPU over
    the time; `utilization_cpu`: of all logical CPUs, with the thread that drives the GPU; `utilization_gpu`: share of
    the time with a kernel running; `gpu_updates`: of one epoch; `evaluation_s`: of one epoch.
    """

    epochs_s: tuple[float, ...]
    cpu_share: float
    cpu_rows_per_s: float
    gpu_updates: float
    utilization_cpu: float
    utilization_gpu: float
    evaluation_s: float

    @property
    def epoch_s(self) -> float:
        """Mean seconds of an epoch."""
        return math.fsum(self.epochs_s) / len(self.epochs_s)

    def value(self, metric: str) -> float | None:
        """The figure of a published metric; None for those that need a learner."""
        figures = {
            "epoch_s": self.epoch_s,
            "cpu_update_share": self.cpu_share,
            "utilization_cpu": self.utilization_cpu,
            "utilization_gpu": self.utilization_gpu,
        }
        return figures.get(metric)

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Predicted:
        """The inverse of `as_json`."""
        return cls(**{**content, "epochs_s": tuple(content["epochs_s"])})


def predict(gpu: str, dataset: str, algorithm: str, setting: Setting, *, machine: Machine | None = None) -> Predicted:
    """Simulate a cell of the paper's evaluation (timing only)."""
    from hetsgd.models.learner import NoLearner
    from hetsgd.sim import simulate

    plan = plan_of(gpu, dataset, algorithm, setting, machine=machine)
    return measure(plan, simulate(plan, NoLearner()))


def measure(plan: Plan, trace: Trace) -> Predicted:
    """The figures of a run: what happened outside its evaluations."""
    evaluations = [(float(row["at_s"]), float(row["end_s"])) for row in trace["evaluations"]]
    evaluated_s = math.fsum(end - start for start, end in evaluations)
    training_s = trace.elapsed_s - evaluated_s
    epochs_s = tuple(_outside(float(row["start_s"]), float(row["end_s"]), evaluations) for row in trace["epochs"])
    totals, rows = trace.totals, plan.workload.rows
    done = sum(totals.rows[fate] for fate in ("in_place", "merged", "discarded"))
    epochs = done / rows
    cards = [place.name for place in trace.places.values() if place.kind == "accelerator"]
    lanes_s = sum(totals.busy_s.get((p.name, "compute"), 0.0) for p in trace.places.values() if p.kind == "cpu")
    kernels_s = sum(totals.busy_s.get((name, "compute"), 0.0) for name in cards)
    gpu_updates = totals.steps["accelerator"] / epochs
    cpu_updates = totals.updates.get("cpu", 0.0) / epochs
    cpu_rows = _cpu_rows(trace)
    return Predicted(
        epochs_s=epochs_s or (training_s / epochs,),
        cpu_share=cpu_updates / (cpu_updates + gpu_updates),
        cpu_rows_per_s=cpu_rows / training_s,
        gpu_updates=gpu_updates,
        # Copies, launches and waits for kernels keep the thread busy that drives the GPU.
        utilization_cpu=(lanes_s / training_s + len(cards)) / trace.logical_cpus,
        utilization_gpu=kernels_s / (training_s * len(cards)) if cards else 0.0,
        evaluation_s=evaluated_s / epochs,
    )


def _outside(start_s: float, end_s: float, evaluations: list[tuple[float, float]]) -> float:
    """Seconds of a span that no evaluation took."""
    taken_s = math.fsum(max(0.0, min(end, end_s) - max(start, start_s)) for start, end in evaluations)
    return end_s - start_s - taken_s


def _cpu_rows(trace: Trace) -> int:
    """Rows that the CPU team computed."""
    codes = [code for code, text in enumerate(trace.texts) if trace.workers.get(text) == "cpu"]
    assigned, results = trace["assignments"], trace["results"]
    own = assigned["id"][np.isin(assigned["worker_text"], codes)]
    return int(results["rows"][np.isin(results["id"], own)].sum())
