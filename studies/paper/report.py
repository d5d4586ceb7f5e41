"""The folder of the reproduction: `paper.csv`, `paper.json`, `report.html`, `report.md` and figures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsgd.studies.case import versions
from hetsgd.studies.paper.published import ALGORITHMS, DATASETS, GPUS, figure
from hetsgd.studies.paper.reproduction import Cell, Reproduction, table_text
from hetsgd.studies.paper.tables import input_tables, result_tables
from hetsgd.studies.paper.words import answer_lines, limits
from hetsgd.studies.record import to_json
from hetsgd.studies.report import Plate, render

if TYPE_CHECKING:
    import pandas as pd

_QUESTION = "How much of what arXiv:2004.08771 published does the simulator predict?"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heading:
    """What the templates print of a study."""

    name: str
    question: str


def write_reproduction(folder: Path, study: Reproduction) -> Path:
    """Write everything; returns the path of `report.html`."""
    (folder / "paper.csv").write_text(table_text(study.cells), encoding="utf-8")
    (folder / "paper.json").write_text(to_json(study.as_json()) + "\n", encoding="utf-8")
    content = {
        "study": _Heading(name="paper", question=_QUESTION),
        "about": "The timing half of the paper's evaluation: two servers, four data sets, five algorithms, simulated "
        "with its implementation beside the figures that could be read off its charts.",
        "answers": answer_lines(study),
        "limits": limits(study),
        "results": result_tables(study),
        "inputs": input_tables(study),
        "versions": versions(),
    }
    return render(folder, draw(study), content, template="paper")


def draw(study: Reproduction) -> list[Plate]:
    """Epoch times, shares, utilizations, and the settings that were tried."""
    from hetsgd.studies.figures.paper import paired_figure, region_figure

    note = "Grey: read off the paper's charts (where a bar is missing, nothing is published here). Blue: predicted."
    titles = [(dataset, gpu) for gpu in GPUS for dataset in DATASETS]
    epochs = [(f"{d}, {gpu}", algorithm, Cell(gpu, d, algorithm), "epoch_s")
              for d, gpu in titles for algorithm in ALGORITHMS]  # fmt: skip
    shares = [(f"{algorithm}, {gpu}", d, Cell(gpu, d, algorithm), "cpu_update_share")
              for algorithm in ("cpu+gpu", "adaptive") for gpu in GPUS for d in DATASETS]  # fmt: skip
    busy = [(f"{words}, covtype, K80", algorithm, Cell("K80", "covtype", algorithm), metric)
            for words, metric in (("CPU", "utilization_cpu"), ("GPU", "utilization_gpu"))
            for algorithm in ALGORITHMS]  # fmt: skip
    plates = [
        Plate(name="epochs", title="Time of an epoch", caption=note,
              figure=paired_figure(_pairs(study, epochs), "seconds (log)", log=True, columns=4)),
        Plate(name="shares", title="The CPU's share of the updates", caption=note,
              figure=paired_figure(_pairs(study, shares), "share of the updates", log=False, columns=4)),
        Plate(name="utilization", title="Utilization", caption=f"{note} Away from the ends of epochs.",
              figure=paired_figure(_pairs(study, busy), "share of the time", log=False, columns=2)),
    ]  # fmt: skip
    tried = _tried(study)
    if not tried.empty:
        caption = "Each point is a setting of Adaptive: its worst error over epochs, shares and utilizations of " \
                  "covtype and w8a, in units of the bars. Settings that were hopeless on w8a are left out."  # fmt: skip
        plates.append(Plate(name="region", title="Which unpublished settings explain Adaptive's figures",
                            caption=caption, figure=region_figure(tried)))  # fmt: skip
    return plates


def _pairs(study: Reproduction, rows: list[tuple[str, str, Cell, str]]) -> pd.DataFrame:
    import pandas as pd

    found: list[dict[str, Any]] = []
    for panel, label, cell, metric in rows:
        known = figure(cell.dataset, cell.gpu, cell.algorithm, metric).number
        value = study.cells[cell].value(metric)
        found.append({"panel": panel, "label": label, "published": math.nan if known is None else known,
                      "predicted": math.nan if value is None else value})  # fmt: skip
    return pd.DataFrame(found)


def _tried(study: Reproduction) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(
        [
            {"panel": f"{region.gpu} server", "cpu_upper": t.setting.cpu_upper, "lower": t.setting.lower,
             "worst": t.worst}
            for region in study.regions.values()
            for t in region.settings
        ]
    )  # fmt: skip
