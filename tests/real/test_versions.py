"""One strict order of all updates out of logs that nobody locked, for any interleaving."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsgd.models.invariants import check
from hetsgd.models.trace import SPAN_CODE, Place, Trace
from hetsgd.models.workload import Workload
from hetsgd.real.logs import RECORD
from hetsgd.real.versions import Landed, Log, write_logs

LOAD = Workload(name="w", dataset="d", rows=10, test_rows=0, features=3, outputs=2, hidden=(4,))


class Children:
    """Lanes and a merge place whose single actions a test interleaves: reading counters, ending, counting."""

    def __init__(self, lanes: int) -> None:
        self.now_s = 0.0
        self.counts = [0] * (lanes + 1)
        self.reads: list[tuple[float, int] | None] = [None] * lanes
        self.ended: list[tuple[float, float, int] | None] = [None] * lanes
        self.records: list[list[tuple[float, float, int]]] = [[] for _ in range(lanes)]
        self.cut: int | None = None
        self.landed: list[Landed] = []

    def act(self, who: int) -> None:
        """The next action of lane `who`, or of the merge place (the last)."""
        self.now_s += 1.0
        if who == len(self.reads):
            self._merge()
            return
        begun, ended = self.reads[who], self.ended[who]
        if begun is None:
            self.reads[who] = (self.now_s, sum(self.counts))
        elif ended is None:
            self.ended[who] = (begun[0], self.now_s, begun[1])
        else:
            self.records[who].append(ended)
            self.counts[who] += 1
            self.reads[who] = self.ended[who] = None

    def _merge(self) -> None:
        if self.cut is None:
            self.cut = sum(self.counts) + 1
            return
        self.landed.append(Landed(version=self.cut, end_s=self.now_s))
        self.counts[-1] += 1
        self.cut = None


def written(lanes: Children) -> Trace:
    trace = Trace()
    logs = []
    for lane, records in enumerate(lanes.records):
        rows = np.zeros(len(records), dtype=RECORD)
        for row, (start_s, end_s, read) in zip(rows, records, strict=True):
            row["kind"], row["update"], row["rows"], row["read"] = SPAN_CODE["compute"], 1, 2, read
            row["start_s"], row["end_s"] = start_s + 100.0, end_s + 100.0
        place = f"cpu[{lane}]"
        trace.place(Place(name=place, worker="cpu", kind="cpu", cpus=1))
        logs.append(Log(worker="cpu", kind="cpu", lane=lane, place=place, down=place, up=place, records=rows))
    for merge in lanes.landed:
        trace.updates.add((merge.version, 0, merge.end_s, trace.code(""), -1, -1, 0, 0))
        trace.totals.updates["accelerator"] += 1
    write_logs(trace, logs, lanes.landed, LOAD, zero_s=100.0)
    trace.elapsed_s = lanes.now_s
    return trace


@given(st.integers(1, 4).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n), max_size=80))))
def test_versions_rise_by_one_and_what_was_read_is_older(case: tuple[int, list[int]]) -> None:
    """Whatever the order in which lanes read counters, end and count, and merges look and land."""
    count, order = case
    lanes = Children(count)
    for who in order:
        lanes.act(who)
    trace = written(lanes)
    assert check(trace) == []
    updates = trace["updates"]
    assert updates["version"].tolist() == list(range(1, len(updates) + 1))
    assert (updates["read"] < updates["version"]).all()
    merged = updates[updates["merge"] == 0]
    assert merged["version"].tolist() == [merge.version for merge in lanes.landed]


def test_spans_and_totals_are_those_of_the_logs() -> None:
    lanes = Children(2)
    for who in (0, 1, 0, 0, 1, 1):
        lanes.act(who)
    trace = written(lanes)
    assert trace.totals.busy_s["cpu[0]", "compute"] == pytest.approx(2.0)
    assert trace.totals.flops["cpu"] == LOAD.step_flops(4)
    assert trace.totals.updates["cpu"] == 2
    assert dict(trace.totals.staleness["cpu"]) == {0: 1, 1: 1}
    assert trace["spans"]["start_s"].tolist() == [1.0, 2.0]
