"""Predicted against measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from hetsgd.studies.figures.style import legend_below, panels, themed

_THOUSANDS: Final = EngFormatter(sep="")


def prediction_figure(points: pd.DataFrame, palette: Mapping[str, Any]) -> Figure:
    """A panel per metric: predicted over the measured mean, a bar over the repeats, the line of no error.

    Columns metric (with its unit), policy, predicted, measured, low, high.
    """
    with themed():
        titles = list(dict.fromkeys(points["metric"]))
        figure, axes = panels(titles, height=3.3, share_y=False)
        for axis, title in zip(axes, titles, strict=True):
            own = points[points["metric"] == title]
            for label, colour in palette.items():
                row = own[own["policy"] == label]
                axis.plot([], [], "o", color=colour, label=label)
                if row.empty:
                    continue
                spread = [row["measured"] - row["low"], row["high"] - row["measured"]]
                axis.errorbar(row["measured"], row["predicted"], xerr=spread, fmt="o", color=colour,
                              capsize=3, markersize=6)  # fmt: skip
            _line_of_no_error(axis, own)
            for scale in (axis.xaxis, axis.yaxis):
                scale.set_major_formatter(_tick)
            axis.set(xlabel="measured (bar: lowest to highest repeat)", ylabel="predicted")
        legend_below(figure, axes[0])
    return figure


def _tick(value: float, _: float | None) -> str:
    """Plain numbers, and k or M where they would be long."""
    return _THOUSANDS(value) if abs(value) >= 1000 else f"{value:g}"


def _line_of_no_error(axis: Any, points: pd.DataFrame) -> None:
    values = pd.concat([points["predicted"], points["measured"], points["low"], points["high"]])
    top = float(values.max()) * 1.1 if len(values) and values.max() > 0 else 1.0
    axis.plot([0, top], [0, top], color="0.5", linewidth=1, linestyle="--", label="no error")
    axis.set(xlim=(0, top), ylim=(0, top))
