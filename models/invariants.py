"""What must hold of every run, checked on its trace: rows balance, places do one thing at a time, versions rise.

The numbers are those of the invariants in the documentation. Tests of both engines use this, and so may anybody
who doubts a result.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from typing import Final

import numpy as np

from hetsgd.models.policy import WRITES
from hetsgd.models.trace import FATES, SPAN_CODE, Array, Trace

_SLACK: Final = 1e-9
"""Clocks are read in seconds since the start: what differs by less than this (relative to 1 s or the run) is equal."""

_SHOWN: Final = 3


def check(trace: Trace, *, rows: int | None = None) -> list[str]:
    """What is wrong with a trace, one sentence each; empty where everything holds.

    1. Every row that was given out has exactly one fate, and every finished epoch gave out each of its `rows` (by
       default those of the first finished epoch) once. Needs level `summary`; at `none` only totals are checked.
    2. Spans of one place do not overlap, lie within the run, and sum to at most the elapsed time; transfers share a
       link and may. Whether they overlap needs level `full`.
    3. Versions rise strictly in time, each one more than the last, what an update read is older than what it wrote,
       and no seat computes while a merge of a result of its own is under way. Needs level `full`; below only the
       staleness histograms are checked.
    """
    return [
        *_rows_balance(trace, rows),
        *_places_hold(trace),
        *_versions_rise(trace),
        *_results_forward(trace),
        *_reads_own_updates(trace),
    ]


# -- 1: rows -----------------------------------------------------------------------------------------------------


def _rows_balance(trace: Trace, rows: int | None) -> list[str]:
    found = [f"1: rows {fate}: {count} is negative" for fate, count in trace.totals.rows.items() if count < 0]
    if trace.level == "none":
        return found
    assigned, fates = trace["assignments"], trace["fates"]
    found += _one_fate_each(assigned, fates)
    for code, fate in enumerate(FATES):
        counted, kept = trace.totals.rows[fate], int(fates["rows"][fates["fate"] == code].sum())
        if counted != kept:
            found.append(f"1: rows {fate}: the totals say {counted}, the fates {kept}")
    return found + _fates_fit(assigned, fates) + _epochs_complete(trace, rows) + _merged_once(trace)


def _one_fate_each(assigned: Array, fates: Array) -> list[str]:
    found = []
    ids, counts = np.unique(fates["id"], return_counts=True)
    found += [f"1: assignment {key} has {n} fates" for key, n in _first(ids[counts > 1], counts[counts > 1])]
    missing = np.setdiff1d(assigned["id"], ids)
    found += [f"1: assignment {key} has no fate" for (key,) in _first(missing)]
    unknown = np.setdiff1d(ids, assigned["id"])
    found += [f"1: assignment {key} has a fate and was never given out" for (key,) in _first(unknown)]
    given = dict(zip(assigned["id"].tolist(), (assigned["stop"] - assigned["start"]).tolist(), strict=True))
    wrong = [row for row in fates if given.get(int(row["id"]), int(row["rows"])) != int(row["rows"])]
    return found + [
        f"1: assignment {row['id']}: {given[int(row['id'])]} rows given out, {row['rows']} have a fate"
        for row in wrong[:_SHOWN]
    ]


def _fates_fit(assigned: Array, fates: Array) -> list[str]:
    """In-place work is in the model when it is reported, everything else needs a merge."""
    writes = dict(zip(assigned["id"].tolist(), assigned["write"].tolist(), strict=True))
    found = []
    for row in fates:
        in_place = WRITES[writes.get(int(row["id"]), 0)] == "in_place"
        fate = FATES[row["fate"]]
        if (fate == "in_place" and not in_place) or (fate in ("merged", "discarded", "held") and in_place):
            found.append(f"1: assignment {row['id']} ended {fate}, which its write does not allow")
    return found[:_SHOWN]


def _epochs_complete(trace: Trace, rows: int | None) -> list[str]:
    """Positions of an epoch are given out once each, from the first on; those of a finished epoch all of them."""
    found = []
    assigned, finished = trace["assignments"], set(trace["epochs"]["epoch"].tolist())
    for epoch in np.unique(assigned["epoch"]).tolist():
        own = np.sort(assigned[assigned["epoch"] == epoch], order="start")
        gaps = np.flatnonzero(own["start"] != np.concatenate([[0], own["stop"][:-1]]))
        if len(gaps):
            found.append(f"1: epoch {epoch}: rows from {own['start'][gaps[0]]} on are given out twice or left out")
        last = int(own["stop"][-1])
        if epoch in finished:
            rows = last if rows is None else rows
        if rows is not None and (last > rows or (epoch in finished and last != rows)):
            found.append(f"1: epoch {epoch}: {last} of {rows} rows were given out")
    return found


def _merged_once(trace: Trace) -> list[str]:
    """An assignment is in one merge at most, and enters the model only if its fate says so."""
    merges, inputs, fates = trace["merges"], trace["merge_inputs"], trace["fates"]
    landed = merges["id"][merges["version"] >= 0]
    ids, counts = np.unique(inputs["id"], return_counts=True)
    found = [f"1: assignment {key} was merged {n} times" for key, n in _first(ids[counts > 1], counts[counts > 1])]
    entered = np.unique(inputs["id"][np.isin(inputs["merge"], landed)])
    merged = fates["id"][fates["fate"] == FATES.index("merged")]
    odd = np.setxor1d(merged, entered)
    return found + [f"1: assignment {key}: its fate and the merges disagree" for (key,) in _first(odd)]


# -- 2: places ---------------------------------------------------------------------------------------------------


def _places_hold(trace: Trace) -> list[str]:
    slack_s = _SLACK * max(1.0, trace.elapsed_s)
    busy: dict[str, float] = {}
    found = []
    for (place, kind), seconds in trace.totals.busy_s.items():
        busy[place] = busy.get(place, 0.0) + seconds
        if not (math.isfinite(seconds) and seconds >= 0.0):
            found.append(f"2: {place}: {kind} took {seconds} s")
        if place not in trace.places:
            found.append(f"2: {place} was busy and never declared")
    for place, seconds in busy.items():
        if not _shared(trace, place) and seconds > trace.elapsed_s + slack_s:
            found.append(f"2: {place}: {seconds:.9g} s of spans in a run of {trace.elapsed_s:.9g} s")
    return found + _no_overlap(trace, slack_s)


def _shared(trace: Trace, place: str) -> bool:
    """Whether several may use the place at once."""
    declared = trace.places.get(place)
    return declared is not None and declared.kind == "link"


def _no_overlap(trace: Trace, slack_s: float) -> list[str]:
    spans = trace["spans"]
    found = []
    for code in np.unique(spans["place_text"]).tolist():
        place = trace.texts[code]
        own = spans[spans["place_text"] == code]
        own = own[np.lexsort((own["end_s"], own["start_s"]))]
        start_s, end_s = own["start_s"], own["end_s"]
        if not (np.isfinite(start_s).all() and np.isfinite(end_s).all()):
            found.append(f"2: {place}: a span has no finite time")
            continue
        if (end_s < start_s).any():
            found.append(f"2: {place}: a span ends before it starts, at {start_s[np.argmax(end_s < start_s)]:.9g} s")
        late = np.maximum.accumulate(end_s)[:-1] > start_s[1:] + slack_s
        if late.any() and not _shared(trace, place):
            found.append(f"2: {place}: spans overlap at {start_s[1:][np.argmax(late)]:.9g} s, {int(late.sum())} in all")
        if start_s[0] < -slack_s or end_s.max() > trace.elapsed_s + slack_s:
            found.append(f"2: {place}: spans from {start_s[0]:.9g} to {end_s.max():.9g} s lie outside the run")
    return found


# -- 3: versions -------------------------------------------------------------------------------------------------


def _versions_rise(trace: Trace) -> list[str]:
    found = [
        f"3: {kind}: an update of staleness {min(counts)} read what it wrote or later"
        for kind, counts in trace.totals.staleness.items()
        if counts and min(counts) < 0
    ]
    if trace.level != "full":
        return found
    updates = trace["updates"]
    updates = updates[np.lexsort((updates["version"], updates["at_s"]))]
    versions = updates["version"]
    steps = np.diff(np.concatenate([[0], versions]))
    if (steps != 1).any():
        place = int(np.argmax(steps != 1))
        before = int(versions[place - 1]) if place else 0
        found.append(
            f"3: version {before} is followed by {versions[place]} at {updates['at_s'][place]:.9g} s, "
            f"{int((steps != 1).sum())} such steps in all"
        )
    stale = updates["version"] - 1 - updates["read"]
    if (stale < 0).any():
        row = updates[np.argmax(stale < 0)]
        found.append(f"3: version {row['version']} was computed from version {row['read']}, which is not older")
    if (updates["read"] < 0).any():
        found.append("3: an update read a version below 0")
    total = sum(trace.totals.updates.values())
    if not math.isclose(total, len(updates), rel_tol=1e-9, abs_tol=1e-6):
        found.append(f"3: the totals count {total:g} updates, the table has {len(updates)}")
    return found


def _results_forward(trace: Trace) -> list[str]:
    results = trace["results"]
    back = results[results["read"] > results["wrote"]]
    return [
        f"3: assignment {key}: version {read} was read, {wrote} written"
        for key, read, wrote in _first(back["id"], back["read"], back["wrote"])
    ]


def _reads_own_updates(trace: Trace) -> list[str]:
    """No seat computes between the decision to merge a result of its own and the end of that merge."""
    assigned, spans = trace["assignments"], trace["spans"]
    seats = dict(zip(assigned["id"].tolist(), assigned[["worker_text", "lane"]].tolist(), strict=True))
    starts: dict[tuple[int, int], list[tuple[float, int]]] = defaultdict(list)
    for id_, start_s in spans[spans["kind"] == SPAN_CODE["compute"]][["id", "start_s"]].tolist():
        if id_ in seats:  # merges and evaluations have spans of their own
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
            found.append(f"3: assignment {times[late][1]} started before merge {merge} of its seat's own result landed")
    return found


def _first(*columns: Array) -> list[tuple[int, ...]]:
    """The first few entries of equally long columns, as tuples."""
    return list(zip(*(column[:_SHOWN].tolist() for column in columns), strict=True))
