"""Which policy gets there first: times to one level of loss on one machine, ranked, with a verdict in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hetsgd.studies.interval import Interval, mean_interval, percent, ratio_interval, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One policy: seconds to the level by seed (None: not reached within the run)."""

    label: str
    times_s: Mapping[int, float | None]

    @property
    def reached(self) -> int:
        """Seeds in which the level was reached."""
        return sum(time is not None for time in self.times_s.values())

    @property
    def always(self) -> bool:
        """Whether every seed reached the level."""
        return self.reached == len(self.times_s)

    @property
    def interval(self) -> Interval | None:
        """Mean time over seeds with its interval; None unless every seed reached the level."""
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
        """Whether the interval over seeds excludes a tie."""
        return self.ratio.low > 1.0


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
        """The answer for this machine in one or two sentences."""
        first = self.first
        if first is None or first.interval is None:
            best = max(self.entries, key=lambda entry: entry.reached)
            return (
                f"On {self.machine} no policy reached {percent(self.level)} of the way to the best loss in every seed "
                f"({best.label}: {best.reached} of {len(best.times_s)})."
            )
        level = f"{percent(self.level)} of the way to the best loss"
        text = f"On {self.machine}, {first.label} is predicted first: {level} after {_time(first.interval)}"
        leads = self.leads
        if not leads:
            return f"{text}; no other policy got there in every seed."
        runner = leads[0]
        if runner.established:
            return f"{text}, {_factor(runner.ratio)} sooner than {runner.other}, the next."
        tied = [lead.other for lead in leads if not lead.established]
        behind = next((lead for lead in leads if lead.established), None)
        text = f"{text}, but the seeds do not tell it apart from {_list(tied)} ({_factor(runner.ratio)})"
        return f"{text}." if behind is None else f"{text}; {behind.other} is {_factor(behind.ratio)} behind."


def rank(
    machine: str, workload: str, level: float, times_s: Mapping[str, Mapping[int, float | None]],
    final_loss: Mapping[str, float],
) -> Ranking:  # fmt: skip
    """Rank policies by mean time to the level; those that missed it in some seed come last, by final loss."""

    def order(entry: Entry) -> tuple[int, float]:
        interval = entry.interval
        if interval is not None:
            return 0, interval.mean
        loss = final_loss.get(entry.label, math.inf)
        return 1, loss if math.isfinite(loss) else math.inf

    entries = [Entry(label=label, times_s=dict(times)) for label, times in times_s.items()]
    return Ranking(machine=machine, workload=workload, level=level, entries=tuple(sorted(entries, key=order)))


def _ratio(slower: Entry, faster: Entry) -> Interval:
    slow, fast = _by_seed(slower), _by_seed(faster)
    seeds = sorted(set(slow) & set(fast))
    return ratio_interval([slow[seed] for seed in seeds], [fast[seed] for seed in seeds])


def _by_seed(entry: Entry) -> dict[int, float]:
    # A level reached at time 0 would make a ratio without meaning; such a level says nothing about policies.
    return {seed: max(time, 1e-12) for seed, time in entry.times_s.items() if time is not None}


def _time(interval: Interval) -> str:
    if math.isnan(interval.low):
        return f"{seconds(interval.mean)} (one seed, no interval)"
    return f"{seconds(interval.mean)} (95 % interval {seconds(max(interval.low, 0.0))} to {seconds(interval.high)})"


def _factor(ratio: Interval) -> str:
    if math.isnan(ratio.low):
        return f"{ratio.mean:.2f} times (one seed, no interval)"
    return f"{ratio.mean:.2f} times ({ratio.low:.2f} to {ratio.high:.2f})"


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
