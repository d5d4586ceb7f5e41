"""What is reported of a run, computed from its trace by one function for both engines.

Everything here follows from the running totals, the evaluations, the epochs and the faults, which every trace level
keeps. Two figures gain from the finer tables: the batch-size history needs assignments (`summary`), and the epoch of
a loss is counted in rows where results were kept, else interpolated over the times of the epochs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hetsgd.models.energy import NOT_KNOWN, Spent, spent
from hetsgd.models.loss_curve import LEVELS, LossPoint, LossReference, loss_curve, time_to_levels
from hetsgd.models.machine import Machine
from hetsgd.models.plan import Plan
from hetsgd.models.policy import Kind
from hetsgd.models.trace import SPAN_KINDS, SpanKind, Trace
from hetsgd.models.workload import Precision

KINDS: Final[tuple[Kind, ...]] = ("cpu", "accelerator")


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """Staleness of a class's updates: mean, median, 95th percentile (nearest rank) and largest."""

    mean: float
    p50: int
    p95: int
    max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceBusy:
    """What one place did with the time of the run: share of each span kind, and of all but waiting."""

    place: str
    worker: str | None
    kind: str
    share: Mapping[SpanKind, float]
    busy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStep:
    """From `t_s` on this worker was given batches of this size (rows per lane)."""

    t_s: float
    worker: str
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSeen:
    """A worker or lane that was lost during the run, with the rows that went with it."""

    at_s: float
    worker: str
    lane: int
    kind: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Everything reported of one run. Mappings by class have both classes; one that took no part has 0.

    - `loss`: the loss curve; `time_to_loss_s`: seconds to each level, None where it was not reached; empty without
      a reference.
    - `examples`: rows whose gradients came in; `rows` by fate; `epochs`: examples over the rows of an epoch (nan
      where these are unknown); `epoch_s`: seconds of each finished epoch, blocking evaluation included.
    - `updates`, `update_share` by class (a merge counts for its inputs' classes in equal parts), `steps`: local
      steps, `overwritten`: updates that a copy-back destroyed.
    - `batch`: last batch size of each worker, `batches`: where it changed (empty at trace level `none`).
    - `utilization`: computing over elapsed time and the places (lanes, devices) of the class;
      `cpu_of_machine`: computing of the CPU team over all logical CPUs of the machine; `accelerator_driver`: share
      of time with any kernel running, as drivers count it; `cpu_s`: processor seconds.
    - `busy`: every place's shares. `flops`: useful operations per second, `flops_of_peak`: over the peak of the
      machine's processors of that class (nan without a plan).
    - `bytes`: moved by place, `memory`: high-water mark by tier. `notes`: what to know when reading these figures.
    - `spent`: energy and cost until the end and to each level, where the machine gives watts and price.
    """

    elapsed_s: float
    status: str
    stop_reason: str
    loss: tuple[LossPoint, ...]
    time_to_loss_s: Mapping[float, float | None]
    examples: int
    epochs: float
    epoch_s: tuple[float, ...]
    rows: Mapping[str, int]
    updates: Mapping[Kind, float]
    update_share: Mapping[Kind, float]
    steps: Mapping[Kind, int]
    overwritten: int
    batch: Mapping[str, int]
    batches: tuple[BatchStep, ...]
    staleness: Mapping[Kind, Staleness]
    utilization: Mapping[Kind, float]
    cpu_of_machine: float
    accelerator_driver: float
    cpu_s: Mapping[str, float]
    busy: tuple[PlaceBusy, ...]
    flops: Mapping[Kind, float]
    flops_of_peak: Mapping[Kind, float]
    bytes: Mapping[str, int]
    memory: Mapping[str, int]
    events: int
    faults: tuple[FaultSeen, ...] = ()
    notes: tuple[str, ...] = ()
    spent: Spent = NOT_KNOWN

    @property
    def last_train(self) -> float:
        """Training loss of the last evaluation; nan where none was computed."""
        return self.loss[-1].train if self.loss else math.nan

    @property
    def best_train(self) -> float:
        """Lowest finite training loss; nan where there is none."""
        return min((point.train for point in self.loss if math.isfinite(point.train)), default=math.nan)


def metrics(
    trace: Trace,
    *,
    plan: Plan | None = None,
    loss_reference: LossReference | None = None,
    levels: Sequence[float] = LEVELS,
) -> Metrics:
    """Everything reported of a run, from its trace.

    `plan` gives the rows of an epoch and the peak rates of the machine; without it the rows are those of the first
    finished epoch and shares of peak are nan. `loss_reference` gives the meaning of `levels` (each in (0, 1]).
    """
    totals, elapsed_s = trace.totals, trace.elapsed_s
    examples = sum(totals.rows[fate] for fate in ("in_place", "merged", "discarded", "held"))
    rows = plan.workload.rows if plan is not None else _rows_of_epoch(trace)
    curve = loss_curve(trace, rows, examples)
    flops = {kind: _over(totals.flops.get(kind, 0.0), elapsed_s) for kind in KINDS}
    updates = {kind: totals.updates.get(kind, 0.0) for kind in KINDS}
    utilization = {kind: class_share(trace, kind, ("compute",)) for kind in KINDS}
    times = time_to_levels(curve, loss_reference, levels)
    return Metrics(
        elapsed_s=elapsed_s,
        status=trace.status,
        stop_reason=trace.stop_reason,
        notes=tuple(trace.notes),
        loss=curve,
        time_to_loss_s=times,
        examples=examples,
        epochs=examples / rows if rows else math.nan,
        epoch_s=tuple(float(row["end_s"] - row["start_s"]) for row in trace["epochs"]),
        rows=dict(totals.rows),
        updates=updates,
        update_share={kind: _over(count, sum(updates.values())) for kind, count in updates.items()},
        steps={kind: totals.steps[kind] for kind in KINDS},
        overwritten=totals.overwritten,
        batch=dict(totals.batch),
        batches=_batch_steps(trace),
        staleness={kind: staleness_of(totals.staleness[kind]) for kind in KINDS if totals.staleness.get(kind)},
        utilization=utilization,
        cpu_of_machine=_over(_busy_s(trace, "cpu", ("compute",)), elapsed_s * trace.logical_cpus),
        accelerator_driver=_driver_share(trace),
        cpu_s=dict(totals.cpu_s),
        busy=_places_busy(trace),
        flops=flops,
        flops_of_peak=_shares_of_peak(flops, plan),
        bytes=dict(totals.bytes),
        memory=dict(totals.memory),
        events=totals.events,
        faults=_faults(trace),
        spent=NOT_KNOWN if plan is None else spent(trace, plan.machine, times),
    )


# -- batches and staleness ---------------------------------------------------------------------------------------


def _rows_of_epoch(trace: Trace) -> int | None:
    """Rows of the first finished epoch, where assignments were kept."""
    assigned = trace["assignments"]
    if not len(assigned) or not len(trace["epochs"]):
        return None
    first = int(trace["epochs"]["epoch"][0])
    return int(assigned["stop"][assigned["epoch"] == first].max(initial=0)) or None


def _batch_steps(trace: Trace) -> tuple[BatchStep, ...]:
    """Where the batch size of a worker changed, in the order of time."""
    assigned = trace["assignments"]
    steps = []
    for code in np.unique(assigned["worker_text"]):
        own = assigned[assigned["worker_text"] == code]
        changed = np.concatenate([[True], own["batch"][1:] != own["batch"][:-1]])
        worker = trace.texts[int(code)]
        steps += [BatchStep(t_s=float(row["asked_s"]), worker=worker, batch=int(row["batch"])) for row in own[changed]]
    return tuple(sorted(steps, key=lambda step: (step.t_s, step.worker)))


def staleness_of(histogram: Counter[int]) -> Staleness:
    """Mean, percentiles (nearest rank: the smallest value with at least that share at or below it) and maximum.

    >>> staleness_of(Counter({0: 5, 1: 4, 20: 1}))
    Staleness(mean=2.4, p50=0, p95=20, max=20)
    """
    values = np.array(sorted(histogram), dtype=np.int64)
    counts = np.array([histogram[int(value)] for value in values], dtype=np.int64)
    ranks = np.cumsum(counts)
    total = int(ranks[-1])

    def percentile(share: float) -> int:
        return int(values[np.searchsorted(ranks, math.ceil(share * total))])

    mean = float((values * counts).sum()) / total
    return Staleness(mean=mean, p50=percentile(0.5), p95=percentile(0.95), max=int(values[-1]))


# -- utilization -------------------------------------------------------------------------------------------------


def class_share(trace: Trace, kind: Kind, spans: Sequence[str]) -> float:
    """Share of the time that the places of a class spent on these span kinds; 0 where it has no place."""
    places = sum(place.kind == kind for place in trace.places.values())
    return _over(_busy_s(trace, kind, spans), trace.elapsed_s * places)


def _busy_s(trace: Trace, kind: Kind, spans: Sequence[str]) -> float:
    own = {place.name for place in trace.places.values() if place.kind == kind}
    return sum(seconds for (place, span), seconds in trace.totals.busy_s.items() if place in own and span in spans)


def _driver_share(trace: Trace) -> float:
    """Share of time with any kernel running, over all devices; without an own figure: computing or evaluating."""
    devices = sum(place.kind == "accelerator" for place in trace.places.values())
    measured = trace.totals.driver_busy_s
    if not measured:
        return class_share(trace, "accelerator", ("compute", "evaluate"))
    return _over(sum(measured.values()), trace.elapsed_s * devices)


def _places_busy(trace: Trace) -> tuple[PlaceBusy, ...]:
    busy = []
    for place in trace.places.values():
        share = {
            span: _over(trace.totals.busy_s[place.name, span], trace.elapsed_s)
            for span in SPAN_KINDS
            if (place.name, span) in trace.totals.busy_s
        }
        working = sum(part for span, part in share.items() if span != "wait")
        busy.append(PlaceBusy(place=place.name, worker=place.worker, kind=place.kind, share=share, busy=working))
    return tuple(busy)


def peak_flops(machine: Machine, precision: Precision) -> dict[Kind, float]:
    """Peak floating-point operations per second of the machine's processors, by class."""
    cpu = sum(socket.cores * getattr(socket, f"core_flops_{precision}") for socket in machine.sockets)
    accelerator = sum(getattr(device, f"flops_{precision}") for device in machine.accelerators)
    return {"cpu": cpu, "accelerator": accelerator}


def _shares_of_peak(flops: Mapping[Kind, float], plan: Plan | None) -> dict[Kind, float]:
    if plan is None:
        return dict.fromkeys(KINDS, math.nan)
    peak = peak_flops(plan.machine, plan.workload.precision)
    return {kind: _over(flops[kind], peak[kind]) for kind in KINDS}


def _faults(trace: Trace) -> tuple[FaultSeen, ...]:
    return tuple(
        FaultSeen(
            at_s=float(row["at_s"]),
            worker=trace.texts[row["worker_text"]],
            lane=int(row["lane"]),
            kind=trace.texts[row["kind_text"]],
            rows=int(row["rows"]),
        )
        for row in trace["faults"]
    )


def _over(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
