"""What all figures share: size, type, colours, one panel per machine, and how a figure becomes a file."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import matplotlib as mpl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH: Final = 10.6
PANEL_HEIGHT: Final = 3.2
CLASS_WORDS: Final = {"cpu": "CPU team", "accelerator": "accelerator"}
_OCHRE: Final = (0.45, 0.4, 0.1)
CLASS_COLOURS: Final = {"cpu": "#4c72b0", "accelerator": "#dd8452"}

_RC: Final[dict[Any, Any]] = {
    "font.size": 10, "axes.titlesize": 11, "axes.labelsize": 10, "legend.fontsize": 9, "xtick.labelsize": 9,
    "ytick.labelsize": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "hetsgd",
    "savefig.dpi": 150, "figure.constrained_layout.use": True,
}  # fmt: skip


# A dash and a marker for each policy beside its colour: lines that lie over each other still show all of them.
_DASHES: Final[tuple[Any, ...]] = (
    "-",
    (0, (5, 2)),
    (0, (1, 1.4)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (8, 3)),
    (0, (3, 1, 1, 1, 1, 1)),
)
_MARKERS: Final = "os^Dvp*X"


@contextmanager
def themed() -> Iterator[None]:
    """The look of all figures, without touching the settings of a caller's notebook."""
    with mpl.rc_context(), sns.axes_style("whitegrid", {"axes.edgecolor": "0.3", "grid.color": "0.9"}):
        for name, value in _RC.items():
            mpl.rcParams[name] = value
        yield


def colours(labels: Sequence[str]) -> dict[str, Any]:
    """One colour per policy, by its place in the study."""
    palette = list(sns.color_palette("colorblind" if len(labels) <= 10 else "husl", max(len(labels), 1)))
    # The yellow of the colour-blind palette is too light for thin lines on white.
    readable = [_OCHRE if min(red, green) > 0.85 and blue < 0.5 else (red, green, blue) for red, green, blue in palette]
    return dict(zip(labels, readable, strict=False))


def dashes(labels: Iterable[str]) -> dict[str, Any]:
    """A line style per policy, by its place in the study."""
    return {label: _DASHES[number % len(_DASHES)] for number, label in enumerate(labels)}


def markers(labels: Iterable[str]) -> dict[str, str]:
    """A marker per policy, by its place in the study."""
    return {label: _MARKERS[number % len(_MARKERS)] for number, label in enumerate(labels)}


def panels(
    titles: Sequence[str], *, height: float = PANEL_HEIGHT, share_y: bool = True, columns: int = 3
) -> tuple[Figure, list[Axes]]:
    """A figure of one width with one panel per title, at most `columns` in a row."""
    columns = min(len(titles), columns)
    rows = -(-len(titles) // columns)
    # A lone panel need not be stretched over the whole page.
    figure = Figure(figsize=(WIDTH if columns > 1 else 0.62 * WIDTH, height * rows + 0.35))
    layout = figure.get_layout_engine()
    if layout is not None:
        layout.set(w_pad=0.1, h_pad=0.08, wspace=0.03, hspace=0.04)  # type: ignore[call-arg]  # constrained
    grid = figure.subplots(rows, columns, squeeze=False, sharey=share_y)
    axes = [grid[index // columns][index % columns] for index in range(len(titles))]
    for index in range(len(titles), rows * columns):
        grid[index // columns][index % columns].set_axis_off()
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title, loc="left", weight="bold")
    return figure, axes


def legend_below(figure: Figure, axis: Axes, title: str = "") -> None:
    """One legend for the whole figure, under the panels, from the handles of `axis`."""
    handles, labels = axis.get_legend_handles_labels()
    for each in figure.axes:
        old = each.get_legend()
        if old is not None:
            old.remove()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 7), frameon=False,
                      columnspacing=1.4, title=title or None)  # fmt: skip


def picture(figure: Figure, kind: str) -> bytes:
    """The figure as a `png` or `svg` file; the same bytes for the same figure."""
    buffer = io.BytesIO()
    metadata: Mapping[str, Any] = {"Date": None} if kind == "svg" else {"Software": None}
    with themed():
        figure.savefig(buffer, format=kind, metadata=dict(metadata))
    return buffer.getvalue()
