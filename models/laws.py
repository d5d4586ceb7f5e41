"""The laws that every run keeps, whatever its policy, engine or faults: what a trace must not show.

Their numbers are those of the invariants in the documentation: 1 rows balance, 2 spans do not overlap, 3 versions
rise; besides, no seat reads the model while a merge of its own results is under way. A trace of level `full` is
needed.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict

import numpy as np

from hetsgd.models.policy import WRITES
from hetsgd.models.trace import FATES, SPAN_CODE, Array, Trace


def violations(trace: Trace, rows: int) -> list[str]:
    """What the trace of a run over `rows` rows an epoch breaks, in words; empty: nothing."""
    return [
        *_rows_balance(trace, rows),
        *_one_at_a_time(trace),
        *_versions_rise(trace),
        *_reads_own_updates(trace),
    ]


def _rows_balance(trace: Trace, rows: int) -> list[str]:
    """Invariant 1: every row that was given out has one fate, and no epoch gives a row out twice or leaves one."""
    assigned, fates = trace["assignments"], trace["fates"]
    counts = Counter(fates["id"].tolist())
    ids = assigned["id"].tolist()
    found = [f"1: assignment {id_} has {counts[id_]} fates, not one" for id_ in ids if counts[id_] != 1]
    found.extend(f"1: fate of {id_}, which was never given out" for id_ in set(counts).difference(ids))
    given = {row["id"]: int(row["stop"] - row["start"]) for row in assigned}
    found.extend(
        f"1: assignment {row['id']} of {given[row['id']]} rows ended with {row['rows']}"
        for row in fates
        if given.get(row["id"]) not in (None, int(row["rows"]))
    )
    merged = trace["merge_inputs"]["id"]
    if len(np.unique(merged)) != len(merged):
        found.append("1: a result was merged twice")
    last = int(assigned["epoch"].max()) if len(assigned) else 0
    for epoch in range(last + 1):
        part = np.sort(assigned[assigned["epoch"] == epoch], order="start")
        edges = [0, *part["stop"].tolist()]
        if edges[:-1] != part["start"].tolist():
            found.append(f"1: epoch {epoch} gives out rows twice or leaves some")
        elif epoch < last and edges[-1] != rows:
            found.append(f"1: epoch {epoch} gives out {edges[-1]} of {rows} rows")
    return found + _fates_fit(trace, assigned, fates)


def _fates_fit(trace: Trace, assigned: Array, fates: Array) -> list[str]:
    """In-place work is in the model when it is reported, everything else needs a merge."""
    writes = dict(zip(assigned["id"].tolist(), assigned["write"].tolist(), strict=True))
    wrong = []
    for row in fates:
        in_place = WRITES[writes.get(int(row["id"]), 0)] == "in_place"
        fate = FATES[row["fate"]]
        if (fate == "in_place" and not in_place) or (fate in ("merged", "discarded", "held") and in_place):
            wrong.append(f"1: assignment {row['id']} ended {fate}, which its write does not allow")
    if sum(trace.totals.rows.values()) != int(fates["rows"].sum()):
        wrong.append("1: the totals of rows are not those of the fates")
    return wrong


def _one_at_a_time(trace: Trace) -> list[str]:
    """Invariant 2: the spans of one place never overlap, and lie within the run."""
    found, spans = [], trace["spans"]
    for place in np.unique(spans["place_text"]).tolist():
        name = trace.texts[place]
        declared = trace.places.get(name)
        if declared is not None and declared.kind == "link":
            continue  # transfers share a link
        part = np.sort(spans[spans["place_text"] == place], order=["start_s", "end_s"])
        if np.any(part["start_s"][1:] < part["end_s"][:-1]):
            found.append(f"2: spans of {name} overlap")
        if len(part) and (part["start_s"].min() < 0.0 or np.any(part["end_s"] < part["start_s"])):
            found.append(f"2: a span of {name} ends before it starts, or starts before the run")
    return found


def _versions_rise(trace: Trace) -> list[str]:
    """Invariant 3: versions rise strictly, and nothing reads a version that it or a later update wrote."""
    found, updates, results = [], trace["updates"], trace["results"]
    if np.any(np.diff(np.sort(updates["version"])) < 1):
        found.append("3: a version was written twice")
    order = np.lexsort((updates["version"], updates["at_s"]))
    if np.any(np.diff(updates["version"][order]) < 1):
        found.append("3: versions do not rise with time")
    if np.any(updates["read"] >= updates["version"]):
        found.append("3: an update read a version that was not there yet")
    if np.any(results["read"] > results["wrote"]):
        found.append("3: a result wrote before it read")
    return found


def _reads_own_updates(trace: Trace) -> list[str]:
    """No seat computes between the decision to merge a result of its own and the end of that merge."""
    assigned, spans = trace["assignments"], trace["spans"]
    seats = dict(zip(assigned["id"].tolist(), assigned[["worker_text", "lane"]].tolist(), strict=True))
    starts: dict[tuple[int, int], list[tuple[float, int]]] = defaultdict(list)
    for id_, start_s in spans[spans["kind"] == SPAN_CODE["compute"]][["id", "start_s"]].tolist():
        starts[seats[id_]].append((start_s, id_))
    for times in starts.values():
        times.sort()
    ends = np.nan_to_num(trace["merges"]["end_s"], nan=np.inf).tolist()  # nan: it had not landed at the stop
    under_way = dict(
        zip(trace["merges"]["id"].tolist(), zip(trace["merges"]["decided_s"].tolist(), ends, strict=True), strict=True)
    )
    found = []
    for merge, id_ in trace["merge_inputs"][["merge", "id"]].tolist():
        decided_s, end_s = under_way[merge]
        times = starts[seats[id_]]
        late = bisect_right(times, (decided_s, math.inf))
        if late < len(times) and times[late][0] < end_s:
            found.append(f"assignment {times[late][1]} started before merge {merge} of its seat's own result landed")
    return found
