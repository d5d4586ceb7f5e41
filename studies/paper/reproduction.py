"""The reproduction as a whole: search, predict every cell, test what carries, and write `paper.csv`."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from hetsgd.studies.failure import RunFailed
from hetsgd.studies.paper.bars import Check, checks, cpu_rows_ratio, error_of
from hetsgd.studies.paper.constants import Carried, carry
from hetsgd.studies.paper.implementation import Setting
from hetsgd.studies.paper.prediction import Predicted, predict
from hetsgd.studies.paper.published import ALGORITHMS, DATASETS, GPUS, Figure, keys, published
from hetsgd.studies.paper.search import SEARCHED, Region, search
from hetsgd.studies.pool import run_all

COLUMNS: Final = ("dataset", "gpu", "algorithm", "metric", "value", "mark", "note", "predicted", "error")
SCHEMA: Final = "hetsgd.paper/1"
_SEARCH_SHARE: Final = 0.85


class Cell(NamedTuple):
    """One bar of the paper's charts: an algorithm on a data set and a server."""

    gpu: str
    dataset: str
    algorithm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """Everything that `hetsgd paper` found. `quick`: of the settings only a few were tried."""

    settings: Mapping[str, Setting]
    cells: Mapping[Cell, Predicted]
    regions: Mapping[str, Region]
    carried: tuple[Carried, ...]
    quick: bool

    def checks(self) -> list[Check]:
        """Everything that is both published and predicted."""
        return [check for cell, predicted in self.cells.items() for check in checks(*cell, predicted)]

    def cpu_rows(self) -> dict[tuple[str, str], float]:
        """Predicted over implied rows/s of the CPU in CPU+GPU, by server and data set, where it is told."""
        found = {}
        for cell, predicted in self.cells.items():
            ratio = cpu_rows_ratio(cell.gpu, cell.dataset, predicted) if cell.algorithm == "cpu+gpu" else None
            if ratio is not None:
                found[cell.gpu, cell.dataset] = ratio
        return found

    def as_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "schema": SCHEMA,
            "quick": self.quick,
            "settings": {gpu: asdict(setting) for gpu, setting in self.settings.items()},
            "region": {
                gpu: {"tried": region.tried, "within": len(region.within)}
                for gpu, region in self.regions.items()
            },
            "checks": [
                {**check.key._asdict(), "published": check.published, "predicted": check.predicted,
                 "error": check.error, "bar": check.bar, "holds": check.holds}
                for check in self.checks()
            ],
            "cpu_rows_over_implied": {f"{gpu}, {dataset}": ratio for (gpu, dataset), ratio in self.cpu_rows().items()},
            "cells": [{**cell._asdict(), **predicted.as_json()} for cell, predicted in self.cells.items()],
        }  # fmt: skip


def reproduce(
    folder: Path, *, workers: int, quick: bool = False, progress: Callable[[float, str], None] = lambda _a, _b: None
) -> Reproduction:
    """Search the unpublished settings, then predict every cell with the best one of each server.

    `folder` keeps what was tried, so that a second call is quick. Raises RunFailed where a simulation fails.
    """
    regions = search(
        folder, GPUS, workers=workers, quick=quick, progress=lambda done: progress(_SEARCH_SHARE * done, "search")
    )
    settings = {gpu: region.best for gpu, region in regions.items()}
    cells = [Cell(gpu, dataset, algorithm) for gpu in GPUS for dataset in DATASETS for algorithm in ALGORITHMS]
    jobs: list[Any] = [_CellJob(cell, settings[cell.gpu]) for cell in cells]
    jobs = [*(_CarryJob(dataset, settings) for dataset in SEARCHED), *jobs]
    found: dict[int, Any] = {}
    for outcome in run_all(_perform, jobs, workers):
        if outcome.error:
            raise RunFailed(f"{jobs[outcome.index]}: {outcome.error}")
        found[outcome.index] = outcome.value
        progress(_SEARCH_SHARE + (1.0 - _SEARCH_SHARE) * len(found) / len(jobs), "cells")
    first = len(SEARCHED)
    return Reproduction(
        settings=settings,
        cells={cell: found[first + index] for index, cell in enumerate(cells)},
        regions=regions,
        carried=tuple(found[index] for index in range(first)),
        quick=quick,
    )


class _CellJob(NamedTuple):
    cell: Cell
    setting: Setting


class _CarryJob(NamedTuple):
    on: str
    settings: dict[str, Setting]


def _perform(job: _CellJob | _CarryJob) -> Predicted | Carried:
    """One piece of work; called in a child process."""
    if isinstance(job, _CarryJob):
        return carry(job.on, SEARCHED, job.settings)
    return predict(*job.cell, job.setting)


def table_text(cells: Mapping[Cell, Predicted]) -> str:
    """`paper.csv`: the published figures with `predicted` and `error`, a row for every combination.

    A cell without a prediction, or a metric that needs a learner, has none of the two.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    known = published()
    for key in keys():
        figure = known.get(key, Figure())
        predicted = cells.get(Cell(key.gpu, key.dataset, key.algorithm))
        value = None if predicted is None else predicted.value(key.metric)
        error = None if value is None or figure.number is None else error_of(key.metric, value, figure.number)
        writer.writerow((*key, figure.value, figure.mark, figure.note, _digits(value), _digits(error)))
    return text.getvalue()


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
