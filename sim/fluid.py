"""A capacity shared fairly by jobs, each with a rate of its own that it cannot exceed (weighted max-min fairness).

Jobs of one stream have the same cap and weight and so always the same rate: a stream keeps a virtual clock that counts
what each of its jobs has received, and a job is done when the clock has moved by its amount (generalised processor
sharing, Parekh and Gallager 1993). Joining and leaving cost a heap operation, however many jobs there are, and while
there is enough for all they concern no stream but their own. A job that is alone on its stream has a timer of its own
then (`carry`), and is shared out with the others only once there is too little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol

from hetsgd.sim.clock import NORMAL, Call, Clock


class Job(Protocol):
    """What a capacity serves."""

    def served(self, now_s: float) -> None:
        """The whole amount has been received, now."""
        ...


class Stream:
    """Jobs with the same cap and weight on one capacity. `count` of them are being served, each at `rate`.

    A job of weight 2 has twice the share of one of weight 1, as far as its cap allows. At `at_s` the virtual clock
    stood at `clock`; at this rate the next job is done at `due_s`. A stream whose jobs have changed stands still
    (rate 0) until the capacity is shared out anew, at the same time. `timer` is of a stream that is carried, whose
    `due_s` is inf for it needs no watching; at any other rate than its cap it is watched like the others.
    """

    __slots__ = ("at_s", "cap", "clock", "count", "due_s", "jobs", "rate", "timer", "weight")

    def __init__(self, cap: float, weight: float = 1.0) -> None:
        self.cap = cap
        self.weight = weight
        self.clock = 0.0
        self.at_s = 0.0
        self.count = 0
        self.rate = 0.0
        self.due_s = math.inf
        self.jobs: list[tuple[float, int, Job]] = []
        self.timer: Call | None = None

    def pace(self, rate: float, now_s: float) -> None:
        """Go on at this rate from now on."""
        if self.rate:
            self.clock += self.rate * (now_s - self.at_s)
        self.at_s, self.rate, self.timer = now_s, rate, None
        left_s = (self.jobs[0][0] - self.clock) / rate
        self.due_s = now_s + left_s if left_s > 0.0 else now_s

    def halt(self, now_s: float) -> None:
        """Stand still: the jobs change."""
        self.clock += self.rate * (now_s - self.at_s)
        self.rate, self.timer = 0.0, None


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
        self._serving = False
        self._scarce = False
        self._sequence = 0
        self._due: Stream | None = None
        self._due_s = math.inf
        # When timers fire, the next one last: another is set only where none fires as early.
        self._timers = [math.inf]

    def join(self, stream: Stream, amount: float, job: Job, now_s: float) -> None:
        """Serve `amount` (> 0 units) to this job from now on, with the others of its stream."""
        if stream.rate:
            stream.halt(now_s)
        if not stream.count:
            self._active.append(stream)
        stream.count += 1
        self._sequence += 1
        heappush(stream.jobs, (stream.clock + amount, self._sequence, job))

    def carry(self, stream: Stream, amount: float, job: Job, now_s: float) -> None:
        """`join` and `settle` for a job that is alone on its stream: while there is enough for all it has a timer."""
        if not (stream.count or self._scarce):
            cap, active = stream.cap, self._active
            asked = cap
            for other in active:
                asked += other.count * other.cap
            if asked <= self.capacity:
                active.append(stream)
                stream.count = 1
                stream.at_s, stream.rate, stream.due_s = now_s, cap, math.inf
                stream.jobs.append((amount, 0, job))
                timer = stream.timer
                if timer is None:
                    timer = stream.timer = Call(self._carried, stream)
                clock = self._clock
                # What `Clock.put` does, for most of what is put.
                heappush(clock.calls, (now_s + amount / cap, NORMAL, next(clock.numbers), timer))
                return
        self.join(stream, amount, job, now_s)
        self.settle()

    def _carried(self, timer: Call) -> None:
        """The job of a stream that is alone is done, unless its rate has changed since the timer was set."""
        stream: Stream = timer.value
        if stream.timer is timer:
            self._active.remove(stream)
            stream.count, stream.rate = 0, 0.0
            stream.jobs.pop()[2].served(self._clock.now_s)

    def join_all(self, stream: Stream, amounts: Sequence[float], jobs: Sequence[Job], now_s: float) -> None:
        """Serve these amounts to these jobs from now on; the same as joining them one after the other."""
        stream.halt(now_s)
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
            stream.halt(self._clock.now_s)
            heapify(kept)
            stream.jobs = kept
            stream.count -= gone
            if not kept:
                stream.clock = 0.0
                self._active.remove(stream)

    def recap(self, stream: Stream, cap: float) -> None:
        """Change the cap of a stream's jobs from now on."""
        stream.cap = cap

    def missing(self, stream: Stream, job: Job) -> float:
        """What a job being served still has to receive, now."""
        clock = stream.clock + stream.rate * (self._clock.now_s - stream.at_s)
        return sum(entry[0] - clock for entry in stream.jobs if entry[2] is job)

    def settle(self) -> None:
        """Share out the capacity after joins and departures, and wake up when the next job is done."""
        if not self._serving:
            self._look(self._clock.now_s)
            if self._due_s < self._timers[-1]:
                self._wake()

    def _look(self, now_s: float) -> None:
        """Share out the capacity, and see which stream's job is done next and when (inf: there is none)."""
        active = self._active
        if len(active) == 1:
            stream = self._due = active[0]
            count, rate = stream.count, stream.cap
            self._scarce = count * rate > self.capacity
            if self._scarce:
                rate = min(rate, self.capacity / count)
            if stream.rate != rate:
                stream.pace(rate, now_s)
            self._due_s = stream.due_s
            return
        asked = 0.0
        for stream in active:
            asked += stream.count * stream.cap
        scarce = self._scarce = asked > self.capacity
        if scarce:
            self._ration(now_s)
        self._due, self._due_s = None, math.inf
        for stream in active:
            if stream.rate != stream.cap and not scarce:
                stream.pace(stream.cap, now_s)
            if stream.due_s < self._due_s:
                self._due, self._due_s = stream, stream.due_s

    def _ration(self, now_s: float) -> None:
        """Share out a capacity that is less than what is asked for."""
        active = self._active
        fair = self.capacity / sum([stream.count * stream.weight for stream in active])
        rates = [fair * stream.weight for stream in active]
        if any(stream.cap < rate for stream, rate in zip(active, rates, strict=True)):
            # Some are content with less than their share.
            rates = water_fill(self.capacity, [(stream.cap, stream.count, stream.weight) for stream in active])
        for stream, rate in zip(active, rates, strict=True):
            # What leaves while there is too little must be noticed: nothing is carried then.
            if stream.rate != rate or stream.due_s == math.inf:
                stream.pace(rate, now_s)

    def _wake(self) -> None:
        """Set a timer for the next job."""
        self._timers.append(self._due_s)
        self._clock.call_at(self._due_s, self._fire)

    def _fire(self, _: Call) -> None:
        """A timer: serve what is due, and go on as long as nothing else is to happen before the next job is done.

        A timer may be early, when jobs have joined after it was set.
        """
        self._timers.pop()
        clock = self._clock
        now_s = clock.now_s
        while (stream := self._due) is not None:
            if now_s >= self._due_s:
                self._serve(stream, now_s)
                self._look(now_s)
            if not clock.skip_to(self._due_s):
                break
            now_s = self._due_s
        if self._due_s < self._timers[-1]:
            self._wake()

    def _serve(self, stream: Stream, now_s: float) -> None:
        """Serve the jobs of a stream that are done now."""
        jobs, clock = stream.jobs, stream.clock + stream.rate * (now_s - stream.at_s)
        # The job that the timer was set for is done by definition, whatever rounding says.
        done = jobs[0][0]
        if done < clock:
            done = clock
        stream.clock, stream.rate = done, 0.0
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
