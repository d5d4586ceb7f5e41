"""The one place where results enter the global model: a thread of the parent that lands merges in their order."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.merging import Input, MergeState
from hetsgd.models.policy import Merge, Write
from hetsgd.real.logs import UpdateCounter
from hetsgd.real.slots import Slots

Vector = NDArray[Any]

_LOOK_S: Final = 0.1


@dataclass(slots=True, eq=False)
class HandedIn:
    """A result that waits for its merge, in its slot or copied out of it.

    `results`: gradients of the lanes with their `rows`, or one replica. `starts`: what each was started from.
    `read`: the global model when a kept replica was read.
    """

    write: Write
    rows: tuple[int, ...]
    results: list[Vector]
    starts: list[Vector]
    read: Vector | None
    pool: SlotPool
    slot: int

    def move_out(self) -> int:
        """Copy the vectors out of the slot, whose number is returned for others to use."""
        if self.write != "keep":
            self.results = [vector.copy() for vector in self.results]
        self.starts = [vector.copy() for vector in self.starts]
        self.read = None if self.read is None else self.read.copy()
        slot, self.slot = self.slot, -1
        return slot

    def release(self) -> None:
        """Give the slot back; the vectors are not used any more."""
        if self.slot >= 0:
            self.pool.give(self.slot)
            self.slot = -1


class SlotPool:
    """The free slots of one seat. When all are taken, a result that is held moves out to private memory."""

    def __init__(self, slots: Slots, own: Vector) -> None:
        self.slots = slots
        self._own = own
        self._free: queue.LifoQueue[int] = queue.LifoQueue()
        for slot in reversed(range(slots.count)):
            self._free.put(slot)

    def take(self, held: Iterable[HandedIn], working: Callable[[], None]) -> int:
        """A free slot. `held`: results whose slots may be emptied; `working` raises when no merge will free one."""
        try:
            return self._free.get_nowait()
        except queue.Empty:
            pass
        for result in held:
            if result.pool is self and result.slot >= 0:
                return result.move_out()
        while True:
            try:
                return self._free.get(timeout=_LOOK_S)
            except queue.Empty:
                working()

    def give(self, slot: int) -> None:
        """Give a slot back."""
        self._free.put(slot)

    def handed_in(self, write: Write, slot: int, rows: tuple[int, ...]) -> HandedIn:
        """The result of lanes 0, 1, ... that handled `rows` each, which lies in the slot."""
        slots = self.slots
        lanes = len(rows) if write == "gradient" else 1
        return HandedIn(
            write=write,
            rows=rows,
            results=[self._own] if write == "keep" else [slots.result(slot, lane) for lane in range(lanes)],
            starts=[slots.start(slot, lane) for lane in range(lanes)],
            read=slots.read(slot) if write == "keep" else None,
            pool=self,
            slot=slot,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedMerge:
    """A merge that has landed as `version`; times of `perf_counter`."""

    merge: Merge
    version: int
    start_s: float
    end_s: float


@dataclass(slots=True)
class _Scratch:
    """Vectors in which the gradients of a team's lanes are averaged; they are reused from merge to merge."""

    size: int
    dtype: np.dtype[Any]
    taken: int = 0
    vectors: list[Vector] = field(default_factory=list)

    def mean(self, vectors: Sequence[Vector], rows: Sequence[int]) -> Vector:
        """The mean of vectors weighted by rows; a single one as it is."""
        if len(vectors) == 1:
            return vectors[0]
        if self.taken == len(self.vectors):
            self.vectors.append(np.empty(self.size, dtype=self.dtype))
        mean, total = self.vectors[self.taken], sum(rows)
        self.taken += 1
        with np.errstate(over="ignore", invalid="ignore"):
            np.multiply(vectors[0], rows[0] / total, out=mean)
            for vector, count in zip(vectors[1:], rows[1:], strict=True):
                mean += vector * mean.dtype.type(count / total)
        return mean


class MergePlace:
    """Applies merges to the shared parameters one after the other, in a thread of its own.

    Readers are not blocked; they may see a model in which a merge is half done. `own`: the workers' own replicas,
    `own_versions`: the versions they were last written back with. `wake` is called whenever a merge has landed.
    """

    def __init__(
        self, *, model: Vector, own: Mapping[str, Vector], own_versions: Mapping[str, NDArray[Any]],
        counter: UpdateCounter, weight_decay: float, wake: Callable[[], None],
    ) -> None:  # fmt: skip
        self._model = model
        self._own = own
        self._own_versions = own_versions
        self._counter = counter
        self._state = MergeState(weight_decay=weight_decay)
        self._scratch = _Scratch(model.size, model.dtype)
        self._wake = wake
        self._queue: queue.SimpleQueue[tuple[Merge, Sequence[HandedIn]] | None] = queue.SimpleQueue()
        self._landed: deque[LandedMerge] = deque()
        self._error: Exception | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="hetsgd-merge", daemon=True)
        self._thread.start()

    def submit(self, merge: Merge, inputs: Sequence[HandedIn]) -> None:
        """Queue a merge."""
        self._queue.put((merge, inputs))

    def landed(self) -> list[LandedMerge]:
        """Merges that have landed since the last call, in their order."""
        self.check()
        return [self._landed.popleft() for _ in range(len(self._landed))]

    def check(self) -> None:
        """Raise what a merge has raised, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def stop(self) -> None:
        """Let the merge under way land, drop those that have not begun, and end the thread."""
        self._stopping = True
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if self._stopping:
                continue
            try:
                self._land(*item)
            except Exception as error:  # noqa: BLE001 -- raised again in the thread that asked for the merge
                self._error = error
                self._wake()
                return
            self._wake()

    def _land(self, merge: Merge, inputs: Sequence[HandedIn]) -> None:
        start_s = time.perf_counter()
        self._scratch.taken = 0
        self._state.apply(merge, self._model, [self._input(merge, item) for item in inputs], self._own)
        end_s = time.perf_counter()
        # The version comes before the counter is raised, see versions.py.
        version = self._counter.version() + 1
        for name in merge.write_back:
            self._own_versions[name][0] = version
        self._counter.count()
        for item in inputs:
            item.release()
        self._landed.append(LandedMerge(merge=merge, version=version, start_s=start_s, end_s=end_s))

    def _input(self, merge: Merge, item: HandedIn) -> Input:
        if item.write != "gradient":
            return Input(replica=item.results[0], start=item.starts[0], read=item.read)
        read = self._scratch.mean(item.starts, item.rows) if merge.compensate else None
        return Input(gradient=self._scratch.mean(item.results, item.rows), read=read)
