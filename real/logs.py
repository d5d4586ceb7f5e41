"""Logs of single-writer records in shared memory: what each child did and when, with no lock and no message.

Every child has a ring of records that it alone writes and counters that it alone raises: `updates` (updates of the
global model it has made) and `records`. The parent copies new records out now and then and says how far it has
come, which is the only thing it writes here. A version of the global model is the sum of all update counters, the
merge place's included, so that reading one takes no lock either.

Counters are read and written through memoryviews, ten times as fast as numpy's scalars: a lane does it every step.

A record is written before its counters are raised, and its time of end is taken before that: whoever has counted
an update ends a later one of its own at a later time. `versions.py` relies on it.
"""

from __future__ import annotations

import os
import struct
import time
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.trace import SPAN_CODE, SpanKind
from hetsgd.real.shared_memory import Shape, SharedMemory

RECORD: Final = np.dtype(
    [
        ("sequence", "i8"), ("kind", "i4"), ("update", "i4"), ("start_s", "f8"), ("end_s", "f8"), ("read", "i8"),
        ("id", "i8"), ("rows", "i8"), ("bytes", "i8"),
    ]
)  # fmt: skip
"""`kind`: a code of SPAN_KINDS; `update`: 1 when this was an update of the global model; `read`: its version read."""

RING_RECORDS: Final = 1 << 14
_pack_into: Final = struct.Struct("=qiiddqqqq").pack_into
_RECORD_BYTES: Final = RECORD.itemsize
_PADDED: Final = 8  # numbers in a cache line: counters of different writers do not share one
_FULL_PAUSE_S: Final = 0.001


def log_arrays(children: int) -> dict[str, tuple[Shape, str]]:
    """The shared arrays of this module; row `children` of `updates` belongs to the merge place."""
    return {
        "updates": ((children + 1, _PADDED), "i8"),
        "records": ((children, _PADDED), "i8"),
        "drained": ((children, _PADDED), "i8"),
        "rings": ((children, RING_RECORDS * RECORD.itemsize), "u1"),
    }


class UpdateCounter:
    """The update counters: the version of the model is their sum, and each has one writer."""

    def __init__(self, memory: SharedMemory, index: int) -> None:
        counters = memory["updates"]
        self._all = counters[:, 0].data
        self._mine = counters[index].data

    def version(self) -> int:
        """Updates that the global model has received, as far as they can be seen now."""
        return sum(self._all.tolist())

    def count(self) -> None:
        """One more update by this writer."""
        self._mine[0] += 1

    @property
    def mine(self) -> int:
        """Updates made by this writer."""
        count: int = self._mine[0]
        return count


class LogWriter:
    """The child's end of its ring."""

    def __init__(self, memory: SharedMemory, index: int) -> None:
        self._ring = memory["rings"][index].data
        self._published = memory["records"][index].data
        self._drained = memory["drained"][index].data
        self._written = 0
        self._room = RING_RECORDS
        self._parent = os.getppid()

    def add(
        self, kind: SpanKind, start_s: float, end_s: float, *, id_: int, read: int = 0, rows: int = 0, bytes_: int = 0,
        update: bool = False,
    ) -> None:  # fmt: skip
        """Append a record and publish it; waits when the parent has fallen a whole ring behind."""
        written = self._written
        if written >= self._room:
            self._wait_for_room()
        place = (written % RING_RECORDS) * _RECORD_BYTES
        _pack_into(self._ring, place, written, SPAN_CODE[kind], update, start_s, end_s, read, id_, rows, bytes_)
        self._written = self._published[0] = written + 1

    def _wait_for_room(self) -> None:
        while True:
            self._room = self._drained[0] + RING_RECORDS
            if self._written < self._room:
                return
            if os.getppid() != self._parent:
                raise SystemExit(1)
            time.sleep(_FULL_PAUSE_S)


class LogReader:
    """The parent's end of one child's ring; keeps all records of the run."""

    def __init__(self, memory: SharedMemory, index: int) -> None:
        self._ring = memory["rings"][index].view(RECORD)
        self._published = memory["records"][index]
        self._drained = memory["drained"][index]
        self._read = 0
        self._chunks: list[NDArray[Any]] = []

    @property
    def published(self) -> int:
        """Records that the child has written so far: a sign that it is at work."""
        return int(self._published[0])

    def drain(self) -> NDArray[Any] | None:
        """Copy out what is new and make room for more; the new records, if there are any."""
        published = int(self._published[0])
        if published == self._read:
            return None
        places = np.arange(self._read, published) % RING_RECORDS
        new: NDArray[Any] = self._ring[places]
        # On a processor that reorders stores a counter may be seen before its record: that one waits.
        whole = int(np.argmin(np.append(new["sequence"] == np.arange(self._read, published), False)))
        written: NDArray[Any] = new[:whole]
        self._chunks.append(written)
        self._read += whole
        self._drained[0] = self._read
        return written

    def discard(self) -> None:
        """Forget what was recorded so far: it was before the clock started."""
        self.drain()
        self._chunks.clear()

    def records(self) -> NDArray[Any]:
        """All records of the run, in the order in which they were written."""
        self.drain()
        return np.concatenate(self._chunks) if self._chunks else np.empty(0, dtype=RECORD)
