"""From the logs of all children to the trace: spans, totals, and one strict order of all updates of the model.

Merges have got their versions as they landed: the updates counted at that moment plus one. The in-place updates
fill the numbers that are left, by (time of end, worker, lane). That is an order of all updates in which each has a
version of its own and read an older one: an update that somebody had counted ended before that reader's own did
(`logs.py`), so at most those that come earlier here were counted. What lanes really saw of each other's writes
may be torn within a vector; no lock keeps them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.policy import Kind
from hetsgd.models.trace import SCHEMA, SPAN_CODE, SPAN_KINDS, SpanKind, Trace
from hetsgd.models.workload import Workload

Records = NDArray[Any]

_SPANS: Final = np.dtype(SCHEMA["spans"])
_UPDATES: Final = np.dtype(SCHEMA["updates"])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Log:
    """The records of one child with the places of its spans: `down` and `up` are its link, `place` the rest."""

    worker: str
    kind: Kind
    lane: int
    place: str
    down: str
    up: str
    records: Records

    def place_of(self, kind: SpanKind) -> str:
        """Where a span of this kind took place."""
        if kind in ("load", "pull"):
            return self.down
        return self.up if kind == "push" else self.place


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """A merge that landed: its version and when."""

    version: int
    end_s: float


def write_logs(trace: Trace, logs: Sequence[Log], landed: Sequence[Landed], workload: Workload, zero_s: float) -> None:
    """Write spans, updates and totals of a run whose clock started at `zero_s`; merges are in the trace already."""
    for log in logs:
        log.records["start_s"] -= zero_s
        log.records["end_s"] -= zero_s
        _spans(trace, log)
        _work(trace, log, workload)
    _updates(trace, logs, landed)


def end_s(logs: Sequence[Log]) -> float:
    """The latest end in any log, on the clock of the logs; 0 without records."""
    return max((float(log.records["end_s"].max()) for log in logs if len(log.records)), default=0.0)


def _spans(trace: Trace, log: Log) -> None:
    records = log.records
    for code in np.unique(records["kind"]).tolist():
        kind = SPAN_KINDS[code]
        own, place = records[records["kind"] == code], log.place_of(kind)
        trace.totals.busy_s[place, kind] += float((own["end_s"] - own["start_s"]).sum())
        moved = int(own["bytes"].sum())
        if moved:
            trace.totals.bytes[place] += moved
        spans = np.empty(len(own), dtype=_SPANS)
        spans["kind"], spans["place_text"], spans["worker_text"] = code, trace.code(place), trace.code(log.worker)
        for column in ("id", "start_s", "end_s", "bytes"):
            spans[column] = own[column]
        trace.spans.extend(spans)


def _work(trace: Trace, log: Log, workload: Workload) -> None:
    computed = log.records[log.records["kind"] == SPAN_CODE["compute"]]
    trace.totals.flops[log.kind] += workload.step_flops(1) * int(computed["rows"].sum())
    if log.kind == "accelerator":
        busy_s = trace.totals.busy_s
        trace.totals.driver_busy_s[log.worker] += sum(
            busy_s.get((log.place, kind), 0.0) for kind in ("compute", "evaluate")
        )


def _updates(trace: Trace, logs: Sequence[Log], landed: Sequence[Landed]) -> None:
    """Number the in-place updates, and put all updates into the order of their versions."""
    own = [log.records[log.records["update"] == 1] for log in logs]
    child = np.repeat(np.arange(len(logs)), [len(records) for records in own])
    records = np.concatenate(own) if own else np.empty(0, dtype=[("end_s", "f8"), ("read", "i8")])
    order = np.lexsort((child, records["end_s"]))
    records, child = records[order], child[order]
    merged = np.array([merge.version for merge in landed], dtype=np.int64)
    versions = np.setdiff1d(np.arange(1, len(records) + len(merged) + 1), merged, assume_unique=True)
    for k, log in enumerate(logs):
        mine = child == k
        if mine.any():
            _count(trace, log, versions[mine] - 1 - records["read"][mine])
    if trace.level != "full":
        return
    rows = np.empty(len(records), dtype=_UPDATES)
    rows["version"], rows["at_s"], rows["merge"] = versions, records["end_s"], -1
    rows["worker_text"] = np.array([trace.code(log.worker) for log in logs], dtype=np.int64)[child]
    rows["lane"] = np.array([log.lane for log in logs], dtype=np.int64)[child]
    for column in ("read", "id", "rows"):
        rows[column] = records[column]
    trace.updates.extend(rows)
    trace.updates.sort("version")
    _times_rise(trace, landed)


def _count(trace: Trace, log: Log, staleness: NDArray[np.int64]) -> None:
    totals = trace.totals
    totals.updates[log.kind] += len(staleness)
    values, counts = np.unique(staleness, return_counts=True)
    totals.staleness[log.kind].update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
    if log.kind == "accelerator":
        totals.overwritten += int(staleness.sum())


def _times_rise(trace: Trace, landed: Sequence[Landed]) -> None:
    """Merges at the time they landed, not when that was noted; no update before the one it follows.

    Two updates may differ by the microseconds between reading a clock and counting.
    """
    table = trace["updates"]
    at_s = table["at_s"].copy()
    for merge in landed:
        at_s[np.searchsorted(table["version"], merge.version)] = merge.end_s
    table["at_s"] = np.maximum.accumulate(at_s)
