"""Which policy gets there first: times to one level of loss on one machine, ranked, with a verdict in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hetsgd.studies.interval import LEAST, Interval, mean_interval, number, percent, ratio_interval, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One policy: seconds to the level by seed (None: not reached within the run), and in how many seeds it diverged.

    A run whose loss ends above where it began diverged, whatever level it passed before.
    """

    label: str
    times_s: Mapping[int, float | None]
    diverged: int = 0

    @property
    def reached(self) -> int:
        """Seeds in which the level was reached."""
        return sum(time is not None for time in self.times_s.values())

    @property
    def always(self) -> bool:
        """Whether every seed reached the level and none diverged."""
        return self.reached == len(self.times_s) and not self.diverged

    @property
    def shortfall(self) -> str:
        """How it fell short of the level, in words: `reached in 1 of 3, diverged in 2`."""
        reached = f"reached in {self.reached} of {len(self.times_s)}"
        if not self.diverged:
            return reached
        diverged = f"diverged in {self.diverged}"
        return f"{reached}, {diverged}" if self.reached else f"{diverged} of {len(self.times_s)}"

    @property
    def interval(self) -> Interval | None:
        """Mean time over seeds with its interval; None unless every seed reached the level and none diverged."""
        times = [time for time in self.times_s.values() if time is not None]
        return mean_interval(times) if times and self.always else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """How far `first` is ahead of `other`: the ratio of their times, paired by seed."""

    first: str
    other: str
    ratio: Interval

    @property
    def established(self) -> bool:
        """Whether the interval over seeds, of which there must be three for one, excludes a tie."""
        return self.ratio.n >= LEAST and self.ratio.low > 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The policies on one machine with one workload, the first to reach the level first."""

    machine: str
    workload: str
    level: float
    entries: tuple[Entry, ...]

    @property
    def first(self) -> Entry | None:
        """The policy that is first on average; None when none reached the level in every seed."""
        return self.entries[0] if self.entries and self.entries[0].always else None

    @property
    def leads(self) -> tuple[Lead, ...]:
        """The lead of the first over each other policy that always reached the level."""
        first = self.first
        if first is None:
            return ()
        return tuple(
            Lead(first=first.label, other=entry.label, ratio=_ratio(entry, first))
            for entry in self.entries[1:]
            if entry.always
        )

    def verdict(self) -> str:
        """The answer for this machine in one or two sentences, with those that diverged."""
        return f"{self._order()}{self._diverged()}"

    def _order(self) -> str:
        first, level = self.first, f"{percent(self.level)} of the way to the best loss"
        if first is None or first.interval is None:
            best = max(self.entries, key=lambda entry: entry.reached)
            return f"On {self.machine} no policy reached {level} in every seed ({best.label}: {best.shortfall})."
        text = f"On {self.machine}, {first.label} is predicted first: {level} after {_time(first.interval)}"
        leads = self.leads
        if not leads:
            return f"{text}; no other policy got there in every seed."
        if leads[0].established:
            return f"{text}, {_factor(leads[0].ratio)} sooner than {leads[0].other}, the next."
        tied = listed([f"{lead.other} ({_factor(lead.ratio, ';')})" for lead in leads if not lead.established])
        behind = next((lead for lead in leads if lead.established), None)
        text = f"{text}, but the seeds do not tell it apart from {tied}"
        return f"{text}." if behind is None else f"{text}; {behind.other} takes {_factor(behind.ratio)} as long."

    def _diverged(self) -> str:
        gone = [
            f"{entry.label} in {entry.diverged} of {len(entry.times_s)}" for entry in self.entries if entry.diverged
        ]
        return f" Diverged, with a loss that ends above where it began: {listed(gone)} seeds." if gone else ""


def rank(
    machine: str, workload: str, level: float, times_s: Mapping[str, Mapping[int, float | None]],
    final_loss: Mapping[str, float], diverged: Mapping[str, int],
) -> Ranking:  # fmt: skip
    """Rank policies by mean time to the level; those that missed it or diverged in some seed come last, by final loss.

    `diverged`: in how many seeds a policy diverged; one that is not named there did in none.
    """

    def order(entry: Entry) -> tuple[int, float]:
        interval = entry.interval
        if interval is not None:
            return 0, interval.mean
        loss = final_loss.get(entry.label, math.inf)
        return 1, loss if math.isfinite(loss) else math.inf

    entries = [
        Entry(label=label, times_s=dict(times), diverged=diverged.get(label, 0)) for label, times in times_s.items()
    ]
    return Ranking(machine=machine, workload=workload, level=level, entries=tuple(sorted(entries, key=order)))


def _ratio(slower: Entry, faster: Entry) -> Interval:
    slow, fast = _by_seed(slower), _by_seed(faster)
    seeds = sorted(set(slow) & set(fast))
    return ratio_interval([slow[seed] for seed in seeds], [fast[seed] for seed in seeds])


def _by_seed(entry: Entry) -> dict[int, float]:
    # A level reached at time 0 would make a ratio without meaning; such a level says nothing about policies.
    return {seed: max(time, 1e-12) for seed, time in entry.times_s.items() if time is not None}


def _time(interval: Interval) -> str:
    between = interval.silent or f"95 % interval {seconds(interval.low)} to {seconds(interval.high)}"
    return f"{seconds(interval.mean)} ({between})"


def _factor(ratio: Interval, joint: str = "") -> str:
    """`1.05 times (0.77 to 1.43)`; inside brackets, with a joint, `1.05 times; 0.77 to 1.43`."""
    times = f"{number(ratio.mean)} times"
    if ratio.n < LEAST:
        return times  # that there are too few seeds stands beside the time
    between = ratio.silent or f"{number(ratio.low)} to {number(ratio.high)}"
    return f"{times}{joint} {between}" if joint else f"{times} ({between})"


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
