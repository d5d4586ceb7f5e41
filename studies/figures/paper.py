"""Figures of the reproduction: published beside predicted, cell by cell."""

from __future__ import annotations

from typing import Final

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from hetsgd.studies.figures.style import legend_below, panels, themed

_PUBLISHED: Final = "#8c8c8c"
_PREDICTED: Final = "#0b6e99"
_HALF: Final = 0.19


def paired_figure(pairs: pd.DataFrame, words: str, *, log: bool, columns: int) -> Figure:
    """A panel per `panel`, in it a published and a predicted bar per `label`; `log`: a logarithmic axis.

    Columns panel, label, published (nan: nothing is published), predicted. `words` names the axis.
    """
    with themed():
        titles = list(dict.fromkeys(pairs["panel"]))
        rows = int(pairs.groupby("panel")["label"].nunique().max())
        figure, axes = panels(titles, height=1.0 + 0.34 * rows, columns=columns, share_y=False)
        for axis, title in zip(axes, titles, strict=True):
            own = pairs[pairs["panel"] == title]
            places = range(len(own))
            for shift, name, colour in ((-_HALF, "published", _PUBLISHED), (_HALF, "predicted", _PREDICTED)):
                axis.barh([place + shift for place in places], own[name], height=2 * _HALF, color=colour, label=name)
            axis.set_yticks(list(places), list(own["label"]))
            axis.set_ylim(len(own) - 0.4, -0.6)
            axis.grid(visible=False, axis="y")
            axis.set_xlabel(words)
            if log:
                values = pd.concat([own["published"], own["predicted"]]).dropna()
                axis.set_xscale("log")
                axis.set_xlim(0.5 * values.min(), 2.0 * values.max())
                axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            else:
                axis.set_xlim(0.0, 1.0)
                axis.xaxis.set_major_formatter(PercentFormatter(1.0))
        legend_below(figure, axes[0])
    return figure


def region_figure(tried: pd.DataFrame) -> Figure:
    """Every setting that was tried: its worst error in units of the bars against the CPU threshold.

    Columns panel, cpu_upper, lower, worst. At most 1: every figure lies within its bar.
    """
    with themed():
        titles = list(dict.fromkeys(tried["panel"]))
        figure, axes = panels(titles, columns=2)
        lowers, uppers = sorted(tried["lower"].unique()), sorted(tried["cpu_upper"].unique())
        for axis, title in zip(axes, titles, strict=True):
            own = tried[tried["panel"] == title]
            for number, lower in enumerate(lowers):
                points = own[own["lower"] == lower]
                places = [
                    uppers.index(upper) + 0.17 * (number - (len(lowers) - 1) / 2) for upper in points["cpu_upper"]
                ]
                axis.plot(places, points["worst"], "o", markersize=4, alpha=0.55, label=f"GPU batch at least {lower}")
            axis.axhline(1.0, color="0.3", linestyle="--", linewidth=1, label="within all bars below")
            axis.set_xticks(range(len(uppers)), [str(upper) for upper in uppers])
            axis.set_yscale("log")
            axis.set_yticks([0.25, 0.5, 1, 2, 4, 8], ["0.25", "0.5", "1", "2", "4", "8"])
            axis.yaxis.set_minor_formatter(lambda value, _: "")
            axis.set_ylim(0.18, 8.0)
            axis.set(xlabel="upper threshold of the rows per CPU thread", ylabel="worst error over its bar")
        legend_below(figure, axes[0])
    return figure
