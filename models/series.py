"""What changed during a run, in bins of time: the data of figures, from the tables of a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.policy import Kind
from hetsgd.models.trace import SPAN_CODE, Array, SpanKind, Trace

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """Values over time: `edges_s` (bins + 1,) of equal bins from 0 to the end of the run, each value (bins,)."""

    edges_s: Floats
    values: Mapping[str, Floats]

    @property
    def middles_s(self) -> Floats:
        """Middle of each bin, (bins,)."""
        middles: Floats = (self.edges_s[1:] + self.edges_s[:-1]) / 2.0
        return middles


def utilization_series(trace: Trace, *, bins: int = 100, spans: Sequence[SpanKind] = ("compute",)) -> Series:
    """Share of the places of each class that was busy with these spans, by class. Needs trace level `full`."""
    edges_s = _edges(trace, bins, "full")
    kept = trace["spans"]
    kept = kept[np.isin(kept["kind"], [SPAN_CODE[kind] for kind in spans])]
    values: dict[str, Floats] = {}
    for kind in _kinds(trace):
        own = [place.name for place in trace.places.values() if place.kind == kind]
        codes = [code for code, text in enumerate(trace.texts) if text in own]
        mine = kept[np.isin(kept["place_text"], codes)]
        busy_s = _busy_before(edges_s, mine["start_s"], mine["end_s"])
        values[kind] = np.diff(busy_s) / (np.diff(edges_s) * len(own))
    return Series(edges_s=edges_s, values=values)


def update_share_series(trace: Trace, *, bins: int = 100) -> Series:
    """Share of the updates of each bin that each class made; nan in a bin without updates. Needs level `full`.

    A merge counts for the classes of its inputs in equal parts.
    """
    edges_s = _edges(trace, bins, "full")
    counts = {kind: np.zeros(bins) for kind in _kinds(trace)}
    for kind, at_s, weight in _updates(trace):
        if kind in counts:
            counts[kind] += np.histogram(at_s, edges_s, weights=weight)[0]
    total = sum(counts.values(), np.zeros(bins))
    with np.errstate(invalid="ignore"):
        return Series(edges_s=edges_s, values={kind: count / total for kind, count in counts.items()})


def batch_series(trace: Trace, *, bins: int = 100) -> Series:
    """Batch size (rows per lane) last given to each worker by the end of each bin; nan before its first.

    Needs trace level `summary` or `full`.
    """
    edges_s = _edges(trace, bins, "summary")
    assigned = trace["assignments"]
    values: dict[str, Floats] = {}
    for worker in trace.workers:
        own = assigned[assigned["worker_text"] == _code(trace, worker)]
        order = np.argsort(own["asked_s"], kind="stable")
        before = np.searchsorted(own["asked_s"][order], edges_s[1:], side="right")
        sizes = np.concatenate([[np.nan], own["batch"][order].astype(np.float64)])
        values[worker] = sizes[before]
    return Series(edges_s=edges_s, values=values)


def _edges(trace: Trace, bins: int, needed: str) -> Floats:
    if bins < 1:
        raise ValueError(f"series: bins must be >= 1, got {bins}")
    if trace.level == "none" or (needed == "full" and trace.level != "full"):
        raise ValueError(f"series: needs a trace of level {needed}, got {trace.level!r}; set run.trace={needed}")
    if not trace.elapsed_s > 0.0:
        raise ValueError(f"series: the run must have taken time, got elapsed_s {trace.elapsed_s}")
    return np.linspace(0.0, trace.elapsed_s, bins + 1)


def _kinds(trace: Trace) -> tuple[Kind, ...]:
    """The classes that took part, CPU first."""
    present = {place.kind for place in trace.places.values()}
    kinds: tuple[Kind, ...] = ("cpu", "accelerator")
    return tuple(kind for kind in kinds if kind in present)


def _code(trace: Trace, text: str) -> int:
    return trace.texts.index(text) if text in trace.texts else -1


def _busy_before(edges_s: Floats, start_s: Array, end_s: Array) -> Floats:
    """Seconds of these spans that lie before each edge."""
    return _time_since(edges_s, start_s) - _time_since(edges_s, end_s)


def _time_since(edges_s: Floats, times_s: Array) -> Floats:
    """For each edge the sum of max(0, edge - time) over all times."""
    times = np.sort(times_s)
    sums = np.concatenate([[0.0], np.cumsum(times)])
    before = np.searchsorted(times, edges_s, side="right")
    since: Floats = before * edges_s - sums[before]
    return since


def _updates(trace: Trace) -> list[tuple[Kind, Array, Array]]:
    """Times and weights of the updates of each class: in-place writes, then the inputs of merges."""
    table = trace["updates"]
    found: list[tuple[Kind, Array, Array]] = []
    in_place = table[table["merge"] < 0]
    for worker, kind in trace.workers.items():
        at_s = in_place["at_s"][in_place["worker_text"] == _code(trace, worker)]
        found.append((kind, at_s, np.ones(len(at_s))))
    merged = table[table["merge"] >= 0]
    if not len(merged):
        return found
    inputs, assigned = trace["merge_inputs"], trace["assignments"]
    inputs = inputs[np.isin(inputs["merge"], merged["merge"])]
    order = np.argsort(merged["merge"])
    place = order[np.searchsorted(merged["merge"][order], inputs["merge"])]
    share = 1.0 / np.bincount(place, minlength=len(merged))[place]
    by_id = np.argsort(assigned["id"])
    worker_text = assigned["worker_text"][by_id[np.searchsorted(assigned["id"][by_id], inputs["id"])]]
    for worker, kind in trace.workers.items():
        own = worker_text == _code(trace, worker)
        found.append((kind, merged["at_s"][place[own]], share[own]))
    return found
