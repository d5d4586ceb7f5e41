"""How far a predicted loss curve is from replayed ones, beside how far one replay is from the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hetsgd.models import loss_curve
from hetsgd.studies.fidelity_configurations import Configuration

Curve = NDArray[np.float64]
LEVELS: Final = (0.5, 0.7, 0.8, 0.9, 0.95)
RANKED: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One configuration. `errors` and `floors`: |t / t_true - 1| per level that the truth reaches; `rms` and
    `floor_rms`: of log loss; `covered`: share of replayed points within the interval; `times_s`: (predicted, true) at
    level `RANKED`; `spread_s`: its lowest and highest time over seeds.
    """

    configuration: Configuration
    errors: Mapping[float, float]
    floors: tuple[float, ...]
    rms: float
    floor_rms: float
    covered: float
    times_s: tuple[float | None, float | None]
    spread_s: tuple[float, float]


def score(
    configuration: Configuration, times_s: Sequence[float], replays: Sequence[Curve], predicted: Curve,
    low: Curve, high: Curve,
) -> Score:  # fmt: skip
    """Score one configuration: replays (seeds, N) and a prediction (N,) at common times (N,).

    Levels are shares of the way from the first to the lowest loss of the mean of the replays. A level that the
    prediction never reaches counts as an infinite error.
    """
    table = np.array(replays)
    truth = table.mean(axis=0)
    start, best = float(truth[0]), float(truth.min())
    targets = {level: start - level * (start - best) for level in LEVELS}
    true_s = {level: _time_to(times_s, truth, target) for level, target in targets.items()}
    errors, floors = {}, []
    for level, target in targets.items():
        wanted = true_s[level]
        if not wanted:
            continue
        found = _time_to(times_s, predicted, target)
        errors[level] = abs(found / wanted - 1.0) if found is not None else math.inf
        for index in range(len(table)):
            rest = _time_to(times_s, np.delete(table, index, axis=0).mean(axis=0), target)
            one = _time_to(times_s, table[index], target)
            if rest and one is not None:
                floors.append(abs(one / rest - 1.0))
            elif rest:
                floors.append(math.inf)
    rest_means = [np.delete(table, index, axis=0).mean(axis=0) for index in range(len(table))]
    singles = [_time_to(times_s, row, targets[RANKED]) or math.inf for row in table]
    return Score(
        configuration=configuration,
        errors=errors,
        floors=tuple(floors),
        rms=_rms(np.log(predicted[1:] / truth[1:])),
        floor_rms=_rms(np.concatenate([np.log(a[1:] / b[1:]) for a, b in zip(table, rest_means, strict=True)])),
        covered=float(np.mean((table >= low) & (table <= high))),
        times_s=(_time_to(times_s, predicted, targets[RANKED]), true_s[RANKED]),
        spread_s=(min(singles), max(singles)),
    )


def _time_to(times_s: Sequence[float], losses: Curve, target: float) -> float | None:
    return loss_curve.time_to_loss(times_s, losses.tolist(), target)


def _rms(values: Curve) -> float:
    return float(np.sqrt(np.mean(np.minimum(np.abs(values), 1e3) ** 2)))


def quantile(values: Sequence[float], share: float) -> float:
    """A quantile of numbers of which some may be infinite; nan of none.

    >>> quantile([0.1, 0.2, math.inf], 0.5)
    0.2
    """
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def ranking(scores: Sequence[Score]) -> tuple[float, int]:
    """Kendall's tau over configurations of one machine and workload by time to `RANKED`, and how many pairs.

    Pairs whose replayed times overlap over the seeds are left out; a level never reached comes last.
    """
    signs = []
    for a, b in combinations(scores, 2):
        same = (a.configuration.machine, a.configuration.workload) == (
            b.configuration.machine,
            b.configuration.workload,
        )
        apart = a.spread_s[1] < b.spread_s[0] or b.spread_s[1] < a.spread_s[0]
        if same and apart:
            predicted = (a.times_s[0] or math.inf, b.times_s[0] or math.inf)
            right = (predicted[0] < predicted[1]) == (a.spread_s[1] < b.spread_s[0])
            signs.append(1.0 if right else -1.0)
    return (sum(signs) / len(signs), len(signs)) if signs else (math.nan, 0)
