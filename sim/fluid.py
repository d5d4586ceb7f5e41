"""A capacity shared fairly by jobs, each with a rate of its own that it cannot exceed (max-min fairness).

Jobs of one stream have the same cap and so always the same rate: a stream keeps a virtual clock that counts what each
of its jobs has received, and a job is done when the clock has moved by its amount (generalised processor sharing,
Parekh and Gallager 1993). Joining and leaving cost a heap operation, however many jobs there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol

import simpy


class Job(Protocol):
    """What a capacity serves."""

    def served(self) -> None:
        """The whole amount has been received, now."""
        ...


class Stream:
    """Jobs with the same cap on one capacity. `count` of them are being served, each at `rate`."""

    __slots__ = ("cap", "clock", "count", "jobs", "rate")

    def __init__(self, cap: float) -> None:
        self.cap = cap
        self.clock = 0.0
        self.count = 0
        self.rate = 0.0
        self.jobs: list[tuple[float, int, Job]] = []


def water_fill(capacity: float, demands: Sequence[tuple[float, int]]) -> list[float]:
    """The max-min fair rate of a job of each demand (cap of a job, number of jobs), in the order given.

    >>> water_fill(10.0, [(1.0, 2), (100.0, 2)])
    [1.0, 4.0]
    """
    rates = [0.0] * len(demands)
    left, jobs = capacity, sum(count for _, count in demands)
    for index in sorted(range(len(demands)), key=lambda i: demands[i][0]):
        cap, count = demands[index]
        rate = cap if cap * jobs <= left else left / jobs
        rates[index] = rate
        left -= rate * count
        jobs -= count
    return rates


class Shared:
    """A capacity (units/s; inf: every job at its cap) in virtual time.

    `join`, `leave` and `recap` take effect with the next `settle`, which the caller owes at the same time.
    """

    def __init__(self, env: simpy.Environment, capacity: float) -> None:
        self.capacity = capacity
        self.events = 0
        self._env = env
        self._active: list[Stream] = []
        self._last_s = 0.0
        self._changed = False
        self._serving = False
        self._sequence = 0
        self._timer: simpy.Event | None = None
        self._timer_s = math.inf
        self._due_s = math.inf
        self._due: Stream | None = None

    def join(self, stream: Stream, amount: float, job: Job) -> None:
        """Serve `amount` (> 0 units) to this job, with the others of its stream."""
        now = self._env.now
        if now > self._last_s:
            self._advance(now)
        if not stream.count:
            self._active.append(stream)
        stream.count += 1
        self._changed = True
        self._sequence += 1
        heappush(stream.jobs, (stream.clock + amount, self._sequence, job))

    def leave(self, stream: Stream, job: Job) -> None:
        """Take a job back before it is served; nothing happens if it is not there."""
        kept = [entry for entry in stream.jobs if entry[2] is not job]
        gone = len(stream.jobs) - len(kept)
        if gone:
            self._advance(self._env.now)
            heapify(kept)
            stream.jobs = kept
            self._departed(stream, gone)

    def recap(self, stream: Stream, cap: float) -> None:
        """Change the cap of a stream's jobs from now on."""
        if cap != stream.cap:
            self._advance(self._env.now)
            stream.cap = cap
            self._changed = True

    def missing(self, stream: Stream, job: Job) -> float:
        """What a job being served still has to receive, now."""
        self._advance(self._env.now)
        return sum(entry[0] - stream.clock for entry in stream.jobs if entry[2] is job)

    def settle(self) -> None:
        """Share out the capacity after joins and departures, and wake up when the next job is done."""
        if self._serving:
            return
        if self._changed:
            self._share()
        delay, due = math.inf, None
        for stream in self._active:
            left_s = (stream.jobs[0][0] - stream.clock) / stream.rate
            if left_s < delay:
                delay, due = left_s, stream
        self._due = due
        if due is None:
            self._due_s = math.inf
            return
        if delay < 0.0:
            delay = 0.0
        # The same sum as the environment forms, so that it equals the time at which the timer fires.
        due_s = self._due_s = self._env.now + delay
        if self._timer_s > due_s:
            self._arm(delay, due_s)

    def _arm(self, delay: float, at_s: float) -> None:
        self.events += 1
        timer = self._env.timeout(delay)
        timer.callbacks.append(self._fire)
        self._timer, self._timer_s = timer, at_s

    def _advance(self, now: float) -> None:
        passed = now - self._last_s
        if passed > 0.0:
            for stream in self._active:
                stream.clock += stream.rate * passed
            self._last_s = now

    def _share(self) -> None:
        self._changed = False
        active = self._active
        if len(active) == 1:
            stream = active[0]
            fair = self.capacity / stream.count
            stream.rate = stream.cap if stream.cap < fair else fair
        else:
            rates = water_fill(self.capacity, [(stream.cap, stream.count) for stream in active])
            for stream, rate in zip(active, rates, strict=True):
                stream.rate = rate

    def _departed(self, stream: Stream, count: int) -> None:
        stream.count -= count
        self._changed = True
        if not stream.count:
            stream.clock = 0.0
            self._active.remove(stream)

    def _fire(self, event: simpy.Event) -> None:
        """A timer: serve what is due. One that a later change has made void or too early serves nothing."""
        if event is not self._timer:
            return
        self._timer, self._timer_s = None, math.inf
        stream, now = self._due, self._env.now
        if stream is None:
            return
        if now < self._due_s:
            self._advance(now)
            self.settle()
            return
        self._advance(now)
        jobs = stream.jobs
        # The job that the timer was set for is done by definition, whatever rounding says.
        clock = stream.clock = max(jobs[0][0], stream.clock)
        done = [heappop(jobs)[2]]
        while jobs and jobs[0][0] <= clock:
            done.append(heappop(jobs)[2])
        self._serving = True
        for job in done:
            job.served()
        self._serving = False
        self._departed(stream, len(done))
        self.settle()
