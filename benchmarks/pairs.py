"""Interleaved measurements: these machines are shared, so that only ratios measured side by side mean anything."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Rate = Callable[[], float]
"""Measures one sample of a rate, in units per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Our rate against a reference's. `floor` and `aim` bound the ratio from below (None: reported only)."""

    name: str
    unit: str
    reference: str
    floor: float | None = None
    aim: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Measurements that belong together: ours, and the references it is compared with, run in turn."""

    name: str
    ours: Rate
    references: dict[str, Rate]
    comparisons: tuple[Comparison, ...]
    rounds: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """The outcome of one comparison: medians over rounds, and the ratio of each round."""

    name: str
    unit: str
    reference: str
    ours_per_s: float
    reference_per_s: float
    ratio: float
    low: float
    high: float
    floor: float | None
    aim: float | None
    rounds: list[float] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """Where the median ratio stands."""
        if self.aim is not None and self.ratio >= self.aim:
            return "aim"
        if self.floor is not None and self.ratio < self.floor:
            return "below floor"
        return "ok" if self.floor is not None else ""


def measure(group: Group, *, rounds: int | None = None, say: Callable[[str], None]) -> list[Ratio]:
    """Run every round of a group: ours and each reference once, the order reversed from round to round."""
    samples: dict[str, list[float]] = {"ours": [], **{name: [] for name in group.references}}
    measures = {"ours": group.ours, **group.references}
    for turn in range(rounds or group.rounds):
        names = list(measures) if turn % 2 == 0 else list(reversed(measures))
        for name in names:
            samples[name].append(measures[name]())
        say(f"{group.name}: round {turn + 1} of {rounds or group.rounds}")
    return [_ratio(comparison, samples["ours"], samples[comparison.reference]) for comparison in group.comparisons]


def _ratio(comparison: Comparison, ours: Sequence[float], reference: Sequence[float]) -> Ratio:
    rounds = sorted(a / b for a, b in zip(ours, reference, strict=True))
    return Ratio(
        name=comparison.name,
        unit=comparison.unit,
        reference=comparison.reference,
        ours_per_s=statistics.median(ours),
        reference_per_s=statistics.median(reference),
        ratio=statistics.median(rounds),
        low=rounds[0],
        high=rounds[-1],
        floor=comparison.floor,
        aim=comparison.aim,
        rounds=rounds,
    )
