"""What arXiv:2004.08771 published, as read off its figures; `SOURCE.md` beside the file says what the columns mean."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

DATASETS: Final = ("covtype", "w8a", "delicious", "real-sim")
GPUS: Final = ("K80", "V100")
ALGORITHMS: Final = ("cpu", "gpu", "tensorflow", "cpu+gpu", "adaptive")
METRICS: Final = (
    "epoch_s", "cpu_update_share", "time_to_0.9_s", "epochs_to_0.9", "utilization_cpu", "utilization_gpu",
)  # fmt: skip
PUBLISHED: Final = Path(__file__).with_name("published.csv")


class Key(NamedTuple):
    """What a figure is of."""

    dataset: str
    gpu: str
    algorithm: str
    metric: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A published figure: its value as written, the mark that says how it is known, and a note."""

    value: str = ""
    mark: str = ""
    note: str = ""

    @property
    def number(self) -> float | None:
        """The value, or None where nothing or only a bound is published.

        >>> Figure(value="0.5").number, Figure(value=">40").number, Figure().number
        (0.5, None, None)
        """
        return None if not self.value or self.value.startswith(">") else float(self.value)


def keys() -> Iterator[Key]:
    """Every combination of data set, server, algorithm and metric, in the order of the tables."""
    return (Key(*parts) for parts in product(DATASETS, GPUS, ALGORITHMS, METRICS))


@lru_cache(maxsize=1)
def published() -> Mapping[Key, Figure]:
    """The published figures; keys that are not there have none."""
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return MappingProxyType(
        {
            Key(row["dataset"], row["gpu"], row["algorithm"], row["metric"]): Figure(
                value=row["value"], mark=row["mark"], note=row["note"]
            )
            for row in rows
        }
    )


def figure(dataset: str, gpu: str, algorithm: str, metric: str) -> Figure:
    """The published figure of a combination; an empty one where nothing is published.

    >>> figure("covtype", "K80", "gpu", "epoch_s").number
    3.5
    """
    return published().get(Key(dataset, gpu, algorithm, metric), Figure())
