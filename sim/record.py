"""What the simulator writes into a trace: spans and in-place updates by code, totals summed up at the end."""

from __future__ import annotations

from collections import defaultdict

from hetsgd.models.policy import Kind
from hetsgd.models.trace import SPAN_CODE, SPAN_KINDS, Place, Trace

WAIT, PULL, LOAD, COMPUTE, PUSH, MERGE, EVALUATE = (SPAN_CODE[kind] for kind in SPAN_KINDS)


class PlaceLog:
    """A place with its busy seconds by span kind and the bytes that went through it."""

    __slots__ = ("busy_s", "bytes", "code", "name")

    def __init__(self, name: str, code: int) -> None:
        self.name = name
        self.code = code
        self.busy_s = [0.0] * len(SPAN_KINDS)
        self.bytes = 0


class Recorder:
    """Writes one simulated run. Totals are kept here, by small integers, and handed to the trace by `close`."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.overwritten = 0
        self.flops: dict[Kind, float] = {"cpu": 0.0, "accelerator": 0.0}
        self.staleness: dict[Kind, defaultdict[int, int]] = {"cpu": defaultdict(int), "accelerator": defaultdict(int)}
        self.full = trace.spans.enabled
        self.add_span, self.span_row = trace.spans.buffer.append, trace.spans.packed
        self.add_update, self.update_row = trace.updates.buffer.append, trace.updates.packed
        self._places: list[PlaceLog] = []

    def place(self, place: Place) -> PlaceLog:
        """Declare a place and get what its spans are written with."""
        self.trace.place(place)
        log = PlaceLog(place.name, self.trace.code(place.name))
        self._places.append(log)
        return log

    def span(
        self, kind: int, place: PlaceLog, worker: int, id_: int, start_s: float, end_s: float, size_bytes: int = 0
    ) -> None:
        """Record that a place was busy for a worker (its code) with an assignment, merge or evaluation."""
        place.busy_s[kind] += end_s - start_s
        place.bytes += size_bytes
        if self.full:
            self.add_span(self.span_row(kind, place.code, worker, id_, start_s, end_s, size_bytes))

    def update(
        self, kind: Kind, version: int, read: int, at_s: float, worker: int, lane: int, id_: int, rows: int
    ) -> None:
        """Record an in-place update: version written, version read. Lanes do the same by themselves."""
        self.staleness[kind][version - 1 - read] += 1
        if self.full:
            self.add_update(self.update_row(version, read, at_s, worker, lane, id_, -1, rows))

    def trim(self) -> None:
        """Keep the buffers short that lanes write into; to be called now and then."""
        self.trace.spans.trim()
        self.trace.updates.trim()

    def memory(self, tier: str, size_bytes: int) -> None:
        """Record what a memory holds: the high-water mark is kept."""
        memory = self.trace.totals.memory
        if size_bytes > memory.get(tier, 0):
            memory[tier] = size_bytes

    def close(self) -> None:
        """Add the sums of the run to the totals of the trace. Called once, last."""
        self.trim()
        totals = self.trace.totals
        for place in self._places:
            for code, span in enumerate(SPAN_KINDS):
                if place.busy_s[code]:
                    totals.busy_s[place.name, span] += place.busy_s[code]
            if place.bytes:
                totals.bytes[place.name] += place.bytes
        for kind, histogram in self.staleness.items():
            if histogram:
                totals.updates[kind] += sum(histogram.values())
                totals.staleness[kind].update(histogram)
        for kind, flops in self.flops.items():
            if flops:
                totals.flops[kind] += flops
        totals.overwritten += self.overwritten
