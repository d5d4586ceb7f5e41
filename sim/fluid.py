"""A capacity shared fairly by jobs, each with a rate of its own that it cannot exceed (weighted max-min fairness).

Jobs of one stream have the same cap and weight and so always the same rate: a stream keeps a virtual clock that counts
what each of its jobs has received, and a job is done when the clock has moved by its amount (generalised processor
sharing, Parekh and Gallager 1993). Joining and leaving cost a heap operation, however many jobs there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol

from hetsgd.sim.clock import Call, Clock


class Job(Protocol):
    """What a capacity serves."""

    def served(self, now_s: float) -> None:
        """The whole amount has been received, now."""
        ...


class Stream:
    """Jobs with the same cap and weight on one capacity. `count` of them are being served, each at `rate`.

    A job of weight 2 has twice the share of one of weight 1, as far as its cap allows.
    """

    __slots__ = ("cap", "clock", "count", "jobs", "rate", "weight")

    def __init__(self, cap: float, weight: float = 1.0) -> None:
        self.cap = cap
        self.weight = weight
        self.clock = 0.0
        self.count = 0
        self.rate = 0.0
        self.jobs: list[tuple[float, int, Job]] = []


def water_fill(capacity: float, demands: Sequence[tuple[float, int, float]]) -> list[float]:
    """The max-min fair rate of a job of each demand (cap of a job, number of jobs, weight), in the order given.

    >>> water_fill(10.0, [(1.0, 2, 1.0), (100.0, 2, 1.0)])
    [1.0, 4.0]
    >>> water_fill(9.0, [(100.0, 1, 1.0), (100.0, 1, 2.0)])
    [3.0, 6.0]
    """
    rates = [0.0] * len(demands)
    left, weights = capacity, sum(count * weight for _, count, weight in demands)
    for index in sorted(range(len(demands)), key=lambda i: demands[i][0] / demands[i][2]):
        cap, count, weight = demands[index]
        rate = cap if cap * weights <= left * weight else left * weight / weights
        rates[index] = rate
        left -= rate * count
        weights -= weight * count
    return rates


class Shared:
    """A capacity (units/s; inf: every job at its cap) in virtual time.

    `join`, `leave` and `recap` take effect with the next `settle`, which the caller owes at the same time.
    """

    def __init__(self, clock: Clock, capacity: float) -> None:
        self.capacity = capacity
        self._clock = clock
        self._active: list[Stream] = []
        self._last_s = 0.0
        self._scarce = False
        """Whether streams asked for more than there is when it was last shared out among several."""
        self._serving = False
        self._sequence = 0
        self._timer: Call | None = None
        self._timer_s = math.inf
        self._due_s = math.inf
        self._due: Stream | None = None

    def join(self, stream: Stream, amount: float, job: Job, now_s: float) -> None:
        """Serve `amount` (> 0 units) to this job from now on, with the others of its stream."""
        if now_s > self._last_s:
            self._advance(now_s)
        if not stream.count:
            self._active.append(stream)
        stream.count += 1
        self._sequence += 1
        heappush(stream.jobs, (stream.clock + amount, self._sequence, job))

    def join_all(self, stream: Stream, amounts: Sequence[float], jobs: Sequence[Job], now_s: float) -> None:
        """Serve these amounts to these jobs from now on; the same as joining them one after the other."""
        if now_s > self._last_s:
            self._advance(now_s)
        if not stream.count:
            self._active.append(stream)
        count, clock, queue = len(jobs), stream.clock, stream.jobs
        stream.count += count
        sequence = range(self._sequence + 1, self._sequence + 1 + count)
        self._sequence += count
        queue += [(clock + amount, key, job) for amount, key, job in zip(amounts, sequence, jobs, strict=True)]
        heapify(queue)

    def leave(self, stream: Stream, job: Job) -> None:
        """Take a job back before it is served; nothing happens if it is not there."""
        kept = [entry for entry in stream.jobs if entry[2] is not job]
        gone = len(stream.jobs) - len(kept)
        if gone:
            self._advance(self._clock.now_s)
            heapify(kept)
            stream.jobs = kept
            self._departed(stream, gone)

    def recap(self, stream: Stream, cap: float) -> None:
        """Change the cap of a stream's jobs from now on."""
        if cap != stream.cap:
            self._advance(self._clock.now_s)
            stream.cap = cap

    def missing(self, stream: Stream, job: Job) -> float:
        """What a job being served still has to receive, now."""
        self._advance(self._clock.now_s)
        return sum(entry[0] - stream.clock for entry in stream.jobs if entry[2] is job)

    def settle(self) -> None:
        """Share out the capacity after joins and departures, and wake up when the next job is done."""
        if not self._serving:
            self._look(self._clock.now_s)
            if self._due_s < self._timer_s:
                self._wake()

    def _look(self, now_s: float) -> None:
        """Share out the capacity, and see which stream's job is done next and when (inf: there is none)."""
        if len(self._active) == 1:
            stream = self._due = self._active[0]
            count, rate = stream.count, stream.cap
            if count * rate > self.capacity:
                weight = stream.weight
                rate = min(rate, self.capacity / (count * weight) * weight)
            stream.rate = rate
            delay = (stream.jobs[0][0] - stream.clock) / rate
        else:
            delay, self._due = self._shared()
        self._due_s = now_s + delay if delay > 0.0 else now_s

    def _shared(self) -> tuple[float, Stream | None]:
        """Share out the capacity among streams; when is the first job done, of which stream?"""
        delay, due = math.inf, None
        if not self._scarce:
            asked = 0.0
            for stream in self._active:
                stream.rate = cap = stream.cap
                asked += stream.count * cap
                left_s = (stream.jobs[0][0] - stream.clock) / cap
                if left_s < delay:
                    delay, due = left_s, stream
            self._scarce = asked > self.capacity
        return self._shared_scarcely() if self._scarce else (delay, due)

    def _shared_scarcely(self) -> tuple[float, Stream | None]:
        """Share out a capacity that was scarce at the last look; when is the first job done, of which stream?"""
        delay, due = math.inf, None
        weights = asked = 0.0
        for stream in self._active:
            weights += stream.count * stream.weight
            asked += stream.count * stream.cap
        self._scarce = asked > self.capacity
        fair = self.capacity / weights if self._scarce else math.inf
        for stream in self._active:
            rate = fair * stream.weight
            if stream.cap < rate:
                if self._scarce:
                    return self._shared_unevenly()
                rate = stream.cap
            stream.rate = rate
            left_s = (stream.jobs[0][0] - stream.clock) / rate
            if left_s < delay:
                delay, due = left_s, stream
        return delay, due

    def _shared_unevenly(self) -> tuple[float, Stream | None]:
        """Share out where some are content with less than their share; when is the first job done, of which stream?"""
        demands = [(stream.cap, stream.count, stream.weight) for stream in self._active]
        delay, due = math.inf, None
        for stream, rate in zip(self._active, water_fill(self.capacity, demands), strict=True):
            stream.rate = rate
            left_s = (stream.jobs[0][0] - stream.clock) / rate
            if left_s < delay:
                delay, due = left_s, stream
        return delay, due

    def _wake(self) -> None:
        """Set a timer for the next job, in the place of one that fires later."""
        self._timer_s = due_s = self._due_s
        self._timer = self._clock.call_at(due_s, self._fire)

    def _advance(self, now_s: float) -> None:
        passed = now_s - self._last_s
        if passed > 0.0:
            for stream in self._active:
                stream.clock += stream.rate * passed
            self._last_s = now_s

    def _departed(self, stream: Stream, count: int) -> None:
        stream.count -= count
        if not stream.count:
            stream.clock = 0.0
            self._active.remove(stream)

    def _fire(self, call: Call) -> None:
        """A timer: serve what is due, and go on as long as nothing else is to happen before the next job is done.

        A timer that a later change has made void serves nothing; one that is too early is set anew.
        """
        if call is not self._timer:
            return
        self._timer, self._timer_s = None, math.inf
        clock, active, now_s = self._clock, self._active, self._clock.now_s
        while (stream := self._due) is not None:
            passed = now_s - self._last_s
            for other in active:
                other.clock += other.rate * passed
            self._last_s = now_s
            if now_s >= self._due_s:
                self._serve(stream, now_s)
            if not active:
                self._due, self._due_s = None, math.inf
                return
            self._look(now_s)
            if not clock.skip_to(self._due_s):
                break
            now_s = self._due_s
        if self._due is not None:
            self._wake()

    def _serve(self, stream: Stream, now_s: float) -> None:
        """Serve the jobs of a stream that are done now."""
        jobs = stream.jobs
        # The job that the timer was set for is done by definition, whatever rounding says.
        done = jobs[0][0]
        if done < stream.clock:
            done = stream.clock
        stream.clock = done
        self._serving = True
        count = 0
        while jobs and jobs[0][0] <= done:
            count += 1
            heappop(jobs)[2].served(now_s)
        self._serving = False
        stream.count -= count
        if not stream.count:
            stream.clock = 0.0
            self._active.remove(stream)
