"""The report of a study: the answer first, then what is not established, figures, tables and inputs."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsgd.studies.answer import answer_lines, not_established
from hetsgd.studies.campaign import StudyResult
from hetsgd.studies.case import versions
from hetsgd.studies.input_tables import input_tables
from hetsgd.studies.interval import percent
from hetsgd.studies.presented import presented
from hetsgd.studies.tables import result_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Plate:
    """A figure of a report with its file name, title and caption."""

    name: str
    title: str
    caption: str
    figure: Figure


def write_report(folder: Path, result: StudyResult) -> Path:
    """Write `report.html`, `report.md` and `figures/` into the folder of a study; returns the path of the first."""
    shown = presented(result)
    return render(folder, draw(shown), _content(shown))


def render(folder: Path, plates: Sequence[Plate], content: Mapping[str, Any], *, template: str = "report") -> Path:
    """Write figures and both reports by the templates of this name; returns the path of `report.html`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    from hetsgd.studies.figures.style import picture

    images = folder / "figures"
    images.mkdir(parents=True, exist_ok=True)
    sources = {}
    for plate in plates:
        svg = picture(plate.figure, "svg")
        (images / f"{plate.name}.svg").write_bytes(svg)
        plate.figure.set_layout_engine("none")  # it is laid out by now, and laying out is slow
        (images / f"{plate.name}.png").write_bytes(picture(plate.figure, "png"))
        sources[plate.name] = "data:image/svg+xml;base64," + base64.b64encode(svg).decode("ascii")
    environment = Environment(
        loader=PackageLoader("hetsgd.studies"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        autoescape=select_autoescape(["html.j2"]),
    )  # fmt: skip
    full = {**content, "plates": plates, "sources": sources}
    page = folder / "report.html"
    page.write_text(environment.get_template(f"{template}.html.j2").render(full), encoding="utf-8")
    (folder / "report.md").write_text(environment.get_template(f"{template}.md.j2").render(full), encoding="utf-8")
    return page


def _content(result: StudyResult) -> dict[str, Any]:
    study = result.study
    return {
        "study": study,
        "answers": answer_lines(result),
        "limits": not_established(result),
        "results": result_tables(result),
        "inputs": input_tables(result),
        "versions": versions(),
        "counts": _counts(result),
    }


def _counts(result: StudyResult) -> str:
    roles = [case.role for case in result.found]
    words = (("pilot", "pilot runs"), ("run", "simulated runs"), ("measured", "real runs"))
    return ", ".join(f"{roles.count(role)} {text}" for role, text in words if role in roles)


def draw(result: StudyResult) -> list[Plate]:
    """The figures that this study has data for."""
    from hetsgd.studies.figures.style import colours
    from hetsgd.studies.frames import curve_frame, share_frame, staleness_frame, time_frames

    labels = list(dict.fromkeys(choice.label for choice in result.choices))
    palette = colours(labels)
    seeds, first = len(result.study.seeds), result.study.seeds[0]
    curves, (busy, batches) = curve_frame(result), time_frames(result)
    plates = _loss_plates(result, curves, palette, seeds)
    asked = result.study.metrics
    if not busy.empty and "utilization" in asked:
        from hetsgd.studies.figures.work import utilization_figure

        note = (
            f"Share of the lanes or devices that compute, seed {first}; each axis ends at the busiest. Gaps are waits, "
            "copies and evaluations."
        )
        plates.append(_plate("utilization", "Utilization over time", note, utilization_figure, busy, palette))
    shares = share_frame(result)
    if not shares.empty and "update_share" in asked:
        from hetsgd.studies.figures.work import share_figure

        note = "A merge counts for the workers whose results are in it, in equal parts. Mean over seeds."
        plates.append(_plate("update_share", "Who makes the updates", note, share_figure, shares))
    if not batches.empty:
        from hetsgd.studies.figures.work import batch_figure

        note = (
            f"Rows per step of an accelerator, rows per step and lane of the CPU team, seed {first}. Policies are "
            "drawn up to a tenth apart, so that equal sizes do not hide each other."
        )
        plates.append(_plate("batch", "Batch sizes over time", note, batch_figure, batches, palette))
    staleness = staleness_frame(result)
    if not staleness.empty and "staleness" in asked:
        from hetsgd.studies.figures.work import staleness_figure

        note = "How many updates the model had received between the read and the write of an update. Mean over seeds."
        plates.append(_plate("staleness", "Staleness of the updates", note, staleness_figure, staleness))
    return plates + _prediction_plates(result, palette) + machine_plates(result)


def _loss_plates(result: StudyResult, curves: Any, palette: Mapping[str, Any], seeds: int) -> list[Plate]:
    from hetsgd.studies.figures.loss import loss_figure
    from hetsgd.studies.frames import panel_title

    if curves.empty:
        return []
    level, workloads = result.study.level, len(result.study.workloads)
    references = {
        panel_title(panel, workloads): panel.reference for panel in result.panels if panel.reference is not None
    }
    band = (
        f"Mean over {seeds} seeds; the band reaches from the lowest to the highest seed. What lies above the initial "
        "loss is cut off: an arrow names the policy and where it leaves."
    )
    dots = f"Dotted: {percent(level)} of the way from the initial to the lowest loss."
    return [
        _plate("loss_time", "Loss over time", f"{band} {dots}", loss_figure, curves, palette, "t_s", references, level),
        _plate("loss_epochs", "Loss over epochs", band, loss_figure, curves, palette, "epoch", references, level),
    ]


def _prediction_plates(result: StudyResult, palette: Mapping[str, Any]) -> list[Plate]:
    from hetsgd.studies.figures.prediction import prediction_figure
    from hetsgd.studies.frames import prediction_frame

    plates = []
    for number, validation in enumerate(result.validations):
        points = prediction_frame(validation)
        if not points.empty:
            note = (
                f"Each point is a policy on {validation.machine}: the mean of the simulated runs against that of "
                f"{validation.repeats} real runs, whose range is the bar. Axes leave out zero "
                "where it is far from all."
            )
            name = "prediction" if number == 0 else f"prediction_{number + 1}"
            plates.append(_plate(name, "Predicted against measured", note, prediction_figure, points, palette))
    return plates


def machine_plates(result: StudyResult) -> list[Plate]:
    """A drawing of each machine of a study with its figures."""
    from hetsgd.studies.figures.machine import machine_figure

    machines = {case.machine: run.resolved["machine"] for case, run in result.found.items() if case.role != "pilot"}
    plates = []
    for number, (name, resolved) in enumerate(machines.items(), 1):
        note = f"{resolved['description']}. Every figure with its source is in the inputs below."
        title = f"Machine {name}"
        plates.append(_plate(f"machine_{number}", title, note, machine_figure, resolved))
    return plates


def _plate(name: str, title: str, caption: str, make: Callable[..., Figure], *data: Any) -> Plate:
    return Plate(name=name, title=title, caption=caption, figure=make(*data))
