"""A surrogate behind the learner seam: what the engine does to models in virtual time, done to small states.

The order of calls and what each means is that of `hetsgd.models.learner`; a gradient belongs to the state at
`start` and takes effect at `finish` or `merge`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import numpy as np

from hetsgd.models.merging import Input, MergeState
from hetsgd.models.policy import Assign, Loss, Merge
from hetsgd.models.surrogates.dynamics import Dynamics, Vector

_NOTHING: Final[Mapping[str, float]] = {}


class Reader(Protocol):
    """Turns a state into a loss with its 90 % interval: (low, loss, high)."""

    def __call__(self, state: Vector) -> tuple[float, float, float]: ...


class Guard(Protocol):
    """Refuses work that the surrogate was not calibrated for; called once for each pair of batch and rate."""

    def __call__(self, batch: int, rate: float) -> None: ...


class _Job:
    """What is held for one assignment: the replica, what it started from, the global state then, and gradients."""

    __slots__ = ("assign", "gradients", "pieces", "read", "start", "working")

    def __init__(self, assign: Assign, read: Vector) -> None:
        self.assign = assign
        self.working: Vector | None = None
        self.start: Vector | None = None
        self.read = read
        self.pieces: dict[int, Vector] = {}
        self.gradients: list[tuple[int, Vector]] = []


class SurrogateLearner:
    """Implements `hetsgd.models.learner.Learner` with states of `dynamics`, whose loss `reader` knows.

    `intervals` has the 90 % interval of every loss so far by its update. What `guard` raises goes through.
    """

    def __init__(self, name: str, dynamics: Dynamics, reader: Reader, guard: Guard | None = None) -> None:
        self.name = name
        self.intervals: dict[int, tuple[float, float]] = {}
        self._dynamics = dynamics
        self._reader = reader
        self._guard = guard
        self._seen: set[tuple[int, float]] = set()
        self._global: Vector = dynamics.initial
        self._own: dict[str, Vector] = {}
        self._jobs: dict[int, _Job] = {}
        self._merging = MergeState()

    @property
    def state(self) -> Vector:
        """The global state (D,) as it is now; not to be changed."""
        return self._global

    @property
    def held(self) -> frozenset[int]:
        """Assignments for which anything is still held."""
        return frozenset(self._jobs)

    # -- the learner seam -----------------------------------------------------------------------------------------

    def begin(self) -> Loss:
        """The loss of the initial model."""
        return self.evaluate(at_s=0.0, epoch=0, update=0)

    def pull(self, assign: Assign) -> None:
        """The working replica becomes what it reads."""
        job = self._job(assign)
        own = self._own.get(assign.seat.worker, self._dynamics.initial)
        job.start = job.working = own if assign.work.read == "own" else self._global

    def start(self, assign: Assign, lane: int, step: int) -> None:
        """The piece is of the state as it is now."""
        job = self._jobs.get(assign.id)
        if job is None:
            job = self._job(assign)
        job.pieces[lane] = self._global if job.working is None else job.working

    def finish(self, assign: Assign, lane: int, step: int) -> None:
        """The piece takes effect, or waits for its merge."""
        job = self._jobs[assign.id]
        read, work = job.pieces.pop(lane), assign.work
        rows = work.batch
        left = assign.stop - assign.start - (step * assign.lanes + lane) * rows
        if left < rows:
            rows = left
        if work.write == "gradient":
            job.gradients.append((rows, read))
        elif job.working is None:
            self._global = self._dynamics.step(self._global, read, work.rate, rows)
        else:
            job.working = self._dynamics.step(job.working, read, work.rate, rows)

    def push(self, assign: Assign) -> None:
        """The working replica overwrites the global state."""
        working = self._jobs[assign.id].working
        if working is not None:
            self._global = working

    def result(self, assign: Assign) -> Mapping[str, float]:
        """Handed in: a `keep` replica is the worker's own from now on. No statistics."""
        write = assign.work.write
        if write == "in_place":
            self._jobs.pop(assign.id, None)
        elif write == "keep":
            working = self._jobs[assign.id].working
            if working is not None:
                self._own[assign.seat.worker] = working
        return _NOTHING

    def merge(self, merge: Merge) -> None:
        """The merge takes effect on the global state, and on the replicas that it moves or writes back to."""
        if merge.rule == "discard":
            self.drop(merge.inputs)
            return
        jobs = [self._jobs.pop(key) for key in merge.inputs]
        if merge.rule == "gradient" and not merge.momentum:
            self._merging.forget_velocity()
            self._step_by(merge, jobs)
        else:
            self._apply(merge, jobs)
        for worker in merge.write_back:
            self._own[worker] = self._global

    def drop(self, ids: Iterable[int]) -> None:
        """Results are discarded, or assignments lost."""
        for key in ids:
            self._jobs.pop(key, None)

    def evaluate(self, *, at_s: float, epoch: int, update: int) -> Loss:
        """The predicted training loss of the global state; test loss and scores are not predicted."""
        low, loss, high = self._reader(self._global)
        self.intervals[update] = (low, high)
        return Loss(at_s=at_s, epoch=epoch, update=update, end_s=at_s, train=loss)

    # -- merges ---------------------------------------------------------------------------------------------------

    def _job(self, assign: Assign) -> _Job:
        work = assign.work
        if self._guard is not None and (work.batch, work.rate) not in self._seen:
            if work.write != "gradient":  # the rate of a gradient is its merge's
                self._guard(work.batch, work.rate)
            self._seen.add((work.batch, work.rate))
        job = self._jobs[assign.id] = _Job(assign, self._global)
        return job

    def _step_by(self, merge: Merge, jobs: list[_Job]) -> None:
        """A gradient merge without memory: a step for each piece, weighted by its rows."""
        if merge.compensate:
            raise ValueError(
                f"surrogate: delay compensation (merge {merge.id}, compensate {merge.compensate:g}) squares gradients "
                "entry by entry, which a surrogate has none of; use --learner replay"
            )
        counts = [self._rows(job, merge) for job in jobs]
        whole = sum(counts), merge.rate * sum(merge.weights)
        if self._guard is not None and whole not in self._seen:
            self._guard(*whole)
            self._seen.add(whole)
        for job, weight, rows in zip(jobs, merge.weights, counts, strict=True):
            for piece, read in job.gradients:
                rate = merge.rate * weight * piece / rows
                self._global = self._dynamics.step(self._global, read, rate, piece)

    def _rows(self, job: _Job, merge: Merge) -> int:
        if not job.gradients:
            raise ValueError(
                f"merge {merge.id}: rule 'gradient' needs results of write 'gradient', got {job.assign.work.write!r}"
            )
        return sum(piece for piece, _ in job.gradients)

    def _apply(self, merge: Merge, jobs: list[_Job]) -> None:
        """Any other merge, by the rules of `hetsgd.models.merging`, on copies: states are never changed in place."""
        inputs, moved = [], {}
        for job in jobs:
            if merge.rule == "gradient":
                rows = self._rows(job, merge)
                parts = [self._dynamics.gradient(read, piece) * (piece / rows) for piece, read in job.gradients]
                inputs.append(Input(gradient=np.sum(parts, axis=0), read=job.read))
                continue
            worker = job.assign.seat.worker
            if job.assign.work.write == "keep":
                if worker not in moved:
                    moved[worker] = self._own[worker].copy()
                replica = moved[worker]
            elif job.working is not None:
                replica = job.working.copy()
            else:
                raise ValueError(f"merge {merge.id}: rule {merge.rule!r} needs replicas, got a result without")
            inputs.append(Input(replica=replica, start=job.start, read=job.read))
        model = self._global.copy()
        self._merging.apply(merge, model, inputs)
        self._global = model
        if merge.rule == "elastic":
            self._own.update(moved)
