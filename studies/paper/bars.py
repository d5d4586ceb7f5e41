"""How far a prediction may be from a published figure, and how errors are counted.

Errors of times and epochs are relative (predicted / published - 1), those of shares and utilizations differences.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hetsgd.studies.paper.prediction import Predicted
from hetsgd.studies.paper.published import METRICS, Key, figure

_RELATIVE: Final = frozenset({"epoch_s", "time_to_0.9_s", "epochs_to_0.9"})
EPOCH_BAR: Final = 0.30
SHARE_BAR: Final = 0.10
_BARS: Final = {
    ("epoch_s", "cpu"): 0.25,
    ("epoch_s", "gpu"): 0.25,
    ("epoch_s", "cpu+gpu"): EPOCH_BAR,
    ("epoch_s", "adaptive"): EPOCH_BAR,
    ("cpu_update_share", "cpu+gpu"): 0.03,
    ("cpu_update_share", "adaptive"): SHARE_BAR,
    **{("utilization_cpu", name): 0.10 for name in ("cpu", "tensorflow", "cpu+gpu", "adaptive")},
    **{("utilization_gpu", name): 0.10 for name in ("tensorflow", "cpu+gpu", "adaptive")},
}
SHARE_AIM: Final = 0.05
ROWS_FACTOR: Final = 1.5
ROWS_SHARE: Final = 0.96
"""Up to this share of the updates the published share says something of the CPU's speed: it must fit ROWS_FACTOR."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A predicted figure beside a published one; `bar` is None where no accuracy is asked for."""

    key: Key
    published: float
    predicted: float
    bar: float | None

    @property
    def error(self) -> float:
        """The error as the metric counts it."""
        return error_of(self.key.metric, self.predicted, self.published)

    @property
    def holds(self) -> bool:
        """Whether the error is within the bar, if there is one."""
        return self.bar is None or abs(self.error) <= self.bar


def error_of(metric: str, predicted: float, published: float) -> float:
    """The error of a prediction.

    >>> error_of("epoch_s", 3.0, 2.0), error_of("cpu_update_share", 0.5, 0.75)
    (0.5, -0.25)
    """
    return predicted / published - 1.0 if metric in _RELATIVE else predicted - published


def checks(gpu: str, dataset: str, algorithm: str, predicted: Predicted) -> list[Check]:
    """All that is published of a cell and predicted, metric by metric."""
    found = []
    for metric in METRICS:
        known, value = figure(dataset, gpu, algorithm, metric).number, predicted.value(metric)
        if known is not None and value is not None:
            bar = _BARS.get((metric, algorithm))
            found.append(Check(key=Key(dataset, gpu, algorithm, metric), published=known, predicted=value, bar=bar))
    return found


def cpu_rows_ratio(gpu: str, dataset: str, predicted: Predicted) -> float | None:
    """Predicted rows/s of the CPU in CPU+GPU over those that the published share implies.

    Implied: share / (1 - share) x GPU batches of an epoch / published epoch; each CPU update is one row. None where
    the share is not published or so close to 1 that it says nothing.
    """
    share = figure(dataset, gpu, "cpu+gpu", "cpu_update_share").number
    epoch_s = figure(dataset, gpu, "cpu+gpu", "epoch_s").number
    if share is None or epoch_s is None or share > ROWS_SHARE:
        return None
    return predicted.cpu_rows_per_s / (share / (1.0 - share) * predicted.gpu_updates / epoch_s)


def misfit(found: Iterable[Check]) -> float:
    """The largest error in units of its bar: at most 1 where all bars hold; 0 where there is none."""
    return max((abs(check.error) / check.bar for check in found if check.bar is not None), default=0.0)
