"""The trace: what happened in a run, in columns, the same from both engines.

Level `full` keeps every table, `summary` leaves out spans, updates, calls and statistics, `none` keeps only
evaluations, epochs and faults. The running totals in `Totals` are kept at every level, so that the reported
figures do not depend on it.

Times are seconds on the clock of the run, sizes bytes, versions updates of the global model.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.policy import Kind, PolicyError
from hetsgd.models.run import TraceLevel

SpanKind = Literal["wait", "pull", "load", "compute", "push", "merge", "evaluate"]
SPAN_KINDS: Final[tuple[SpanKind, ...]] = ("wait", "pull", "load", "compute", "push", "merge", "evaluate")
SPAN_CODE: Final = {kind: code for code, kind in enumerate(SPAN_KINDS)}

Fate = Literal["in_place", "merged", "discarded", "lost", "held", "in_flight"]
FATES: Final[tuple[Fate, ...]] = ("in_place", "merged", "discarded", "lost", "held", "in_flight")

Call = Literal["request", "finished", "merged", "evaluated", "failed", "stop", "snapshot", "tick"]
CALLS: Final[tuple[Call, ...]] = (
    "request", "finished", "merged", "evaluated", "failed", "stop", "snapshot", "tick",
)  # fmt: skip
ANSWERS: Final = ("none", "assign", "evaluate", "wait", "stop", "merge")

# One dtype per table. Names ending in `_text` are codes into `Trace.texts`.
SCHEMA: Final[dict[str, list[tuple[str, str]]]] = {
    # What was given out: positions [start, stop) of the epoch's row order; read/write are codes into
    # policy.READS and policy.WRITES.
    "assignments": [
        ("id", "i8"), ("call", "i8"), ("asked_s", "f8"), ("worker_text", "i4"), ("lane", "i4"), ("epoch", "i4"),
        ("start", "i8"), ("stop", "i8"), ("lanes", "i4"), ("batch", "i4"), ("steps", "i4"), ("rate", "f8"),
        ("read", "i1"), ("write", "i1"), ("reason_text", "i4"),
    ],
    "results": [
        ("id", "i8"), ("start_s", "f8"), ("end_s", "f8"), ("read", "i8"), ("wrote", "i8"), ("rows", "i8"),
        ("updates", "i4"), ("steps", "i4"),
    ],
    # What became of the rows of an assignment: fate is a code into FATES, `merge` the merge or -1.
    "fates": [("id", "i8"), ("fate", "i1"), ("at_s", "f8"), ("merge", "i8"), ("rows", "i8"), ("reason_text", "i4")],
    # Statistics of results (squared gradient norms and the like), one row each.
    "stats": [("id", "i8"), ("name_text", "i4"), ("value", "f8")],
    # `place` is what was busy: a lane, a copy engine, a link, a merge place.
    "spans": [
        ("kind", "i1"), ("place_text", "i4"), ("worker_text", "i4"), ("id", "i4"), ("start_s", "f8"),
        ("end_s", "f8"), ("bytes", "i8"),
    ],
    # One row per update of the global model: `merge` is -1 for an in-place write, `id` -1 for a merge.
    "updates": [
        ("version", "i8"), ("read", "i8"), ("at_s", "f8"), ("worker_text", "i4"), ("lane", "i4"), ("id", "i4"),
        ("merge", "i4"), ("rows", "i4"),
    ],
    # Every merge that was decided, at call number `call`, in the order in which they ended. version is -1 where it
    # is no update: a discard, or a merge that had not landed at the stop (its start and end are nan).
    # write_back_text: the workers whose replica it replaces, joined by commas.
    "merges": [
        ("id", "i8"), ("call", "i8"), ("rule", "i1"), ("decided_s", "f8"), ("start_s", "f8"), ("end_s", "f8"),
        ("version", "i8"), ("rate", "f8"), ("momentum", "f8"), ("compensate", "f8"), ("at_read", "i4"),
        ("write_back_text", "i4"), ("reason_text", "i4"),
    ],
    "merge_inputs": [("merge", "i8"), ("id", "i8"), ("weight", "f8"), ("staleness", "i8")],
    "evaluations": [
        ("id", "i8"), ("epoch", "i4"), ("update", "i8"), ("at_s", "f8"), ("end_s", "f8"), ("train", "f8"),
        ("test", "f8"), ("train_score", "f8"), ("test_score", "f8"),
    ],
    "epochs": [("epoch", "i4"), ("start_s", "f8"), ("end_s", "f8")],
    "faults": [("at_s", "f8"), ("worker_text", "i4"), ("lane", "i4"), ("kind_text", "i4"), ("rows", "i8")],
    # Every call of the coordinator with its answer: call and answer are codes into CALLS and ANSWERS, `id` what
    # the call was about (assignment, merge, evaluation; lanes left of a fault; -1 none), `answer_id` what it
    # returned (`merged`: the version, `failed`: 1 where half applied), `detail_text` the reason of a Wait or Stop,
    # or the kind of a fault, `until_s` and `events` (bits in the order of policy.EVENTS) what a Wait waits for.
    "calls": [
        ("call", "i1"), ("at_s", "f8"), ("worker_text", "i4"), ("lane", "i4"), ("id", "i8"), ("answer", "i1"),
        ("answer_id", "i8"), ("detail_text", "i4"), ("until_s", "f8"), ("events", "i4"),
    ],
}  # fmt: skip

_LEVELS: Final[dict[TraceLevel, frozenset[str]]] = {
    "none": frozenset({"evaluations", "epochs", "faults"}),
    "summary": frozenset(SCHEMA) - {"spans", "updates", "calls", "stats"},
    "full": frozenset(SCHEMA),
}
_CHUNK_ROWS: Final = 8192
_STRUCT_CODES: Final = {"i1": "b", "i4": "i", "i8": "q", "f8": "d"}

Array = NDArray[Any]


def _check_text(text: object) -> None:
    """What has no UTF-8 could not be written at the end of the run: PolicyError, since only a reason may be so."""
    try:
        if isinstance(text, str):
            text.encode()
            return
    except UnicodeEncodeError:
        pass
    raise PolicyError(f"reason must be a text that has UTF-8 (no lone surrogates), got {text!r:.80}")


class Table:
    """Rows that are appended as tuples and read as one structured array.

    A row is packed into the bytes of its columns at once and joined to an array a chunk at a time: an append costs
    little more than a list's, and the rows are nothing that the garbage collector would have to look through.
    """

    __slots__ = ("_chunks", "_dtype", "_rows", "enabled", "packed")

    def __init__(self, columns: list[tuple[str, str]], *, enabled: bool = True) -> None:
        self._dtype = np.dtype(columns)
        # Rows lie in memory as numpy lays out the dtype: without padding. Several times faster than np.array.
        self.packed = struct.Struct("=" + "".join(_STRUCT_CODES[kind] for _, kind in columns)).pack
        self.enabled = enabled
        self._rows: list[bytes] = []
        self._chunks: list[Array] = []

    def add(self, row: tuple[Any, ...]) -> None:
        """Append one row: a value per column, in the order of the schema."""
        if self.enabled:
            self._rows.append(self.packed(*row))
            self.trim()

    @property
    def buffer(self) -> list[bytes]:
        """The rows added last, for a writer on a hot path: it appends `packed(...)`, and calls `trim` now and then.

        Only where the table is `enabled`.
        """
        return self._rows

    def trim(self) -> None:
        """Join the buffer if it has grown long."""
        if len(self._rows) >= _CHUNK_ROWS:
            self._join()

    def extend(self, rows: Array) -> None:
        """Append many rows at once: a structured array with the columns of the schema."""
        if self.enabled and len(rows):
            self._join()
            self._chunks.append(rows.astype(self._dtype))

    def sort(self, column: str) -> None:
        """Put the rows into the order of a column; rows that are equal there stay as they are."""
        rows = self.array()
        self._chunks = [rows[np.argsort(rows[column], kind="stable")]]

    def _join(self) -> None:
        if self._rows:
            # A bytearray, since arrays of its bytes can be written to.
            self._chunks.append(np.frombuffer(bytearray().join(self._rows), dtype=self._dtype))
            self._rows.clear()

    def array(self) -> Array:
        """All rows as a structured array (a copy is made only when rows were added since the last call)."""
        self._join()
        if len(self._chunks) != 1:
            packed = np.concatenate(self._chunks) if self._chunks else np.empty(0, dtype=self._dtype)
            self._chunks = [packed]
        return self._chunks[0]

    def __len__(self) -> int:
        return sum(len(chunk) for chunk in self._chunks) + len(self._rows)


@dataclass(slots=True)
class Totals:
    """Running totals of a run, kept at every trace level.

    `busy_s` [(place, span kind)] seconds, `bytes` [place], `updates` [class] (a merge
    counts for the classes of its inputs in equal parts), `steps` [class], `rows` [fate],
    `staleness` [class] a histogram, `batch` [worker] the last batch size, `memory` [tier] the high-water mark in
    bytes, `overwritten` updates that a copy-back destroyed, `flops` useful floating-point operations per class,
    `cpu_s` processor seconds per class (measured or modelled), `driver_busy_s` seconds with any kernel running,
    `events` engine events.
    """

    busy_s: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    bytes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    updates: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    steps: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    staleness: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    batch: dict[str, int] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    flops: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    cpu_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    driver_busy_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    overwritten: int = 0
    events: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Something that can be busy: its worker (or none), its class and how many logical CPUs it takes."""

    name: str
    worker: str | None
    kind: Kind | Literal["link", "merge"]
    cpus: int = 0


class Trace:
    """What happened in one run. Engines and the coordinator write it; `metrics` and reports read it."""

    def __init__(self, *, level: TraceLevel = "full") -> None:
        self.level: TraceLevel = level
        self.totals = Totals()
        self.places: dict[str, Place] = {}
        self.workers: dict[str, Kind] = {}
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}
        kept = _LEVELS[level]
        self.tables: dict[str, Table] = {name: Table(columns, enabled=name in kept) for name, columns in SCHEMA.items()}
        self.spans = self.tables["spans"]
        self.updates = self.tables["updates"]
        self.elapsed_s = 0.0
        self.logical_cpus = 0
        self.status = "done"
        self.stop_reason = ""
        self.notes: list[str] = []
        """What a reader of the run's figures should know, such as a machine used beyond its calibration."""

    def code(self, text: str) -> int:
        """The code of a text in the tables; the same text has one code."""
        code = self._codes.get(text)
        if code is None:
            _check_text(text)
            code = self._codes[text] = len(self.texts)
            self.texts.append(text)
        return code

    def __getitem__(self, table: str) -> Array:
        return self.tables[table].array()

    def place(self, place: Place) -> None:
        """Declare something that spans can be recorded on."""
        self.places[place.name] = place

    def span(
        self, kind: SpanKind, place: str, worker: str, id_: int, start_s: float, end_s: float, bytes_: int = 0
    ) -> None:
        """Record that `place` was busy for `worker` with assignment (merge, evaluation) `id_`."""
        self.totals.busy_s[place, kind] += end_s - start_s
        if bytes_:
            self.totals.bytes[place] += bytes_
        if self.level == "full":
            row = (SPAN_CODE[kind], self.code(place), self.code(worker), id_, start_s, end_s, bytes_)
            self.spans.add(row)

    def update(
        self, kind: Kind, version: int, read: int, at_s: float, worker: str, lane: int, id_: int, rows: int
    ) -> None:
        """Record an in-place update: version written, version read."""
        totals = self.totals
        totals.updates[kind] += 1
        totals.staleness[kind][version - 1 - read] += 1
        if self.level == "full":
            self.updates.add((version, read, at_s, self.code(worker), lane, id_, -1, rows))
