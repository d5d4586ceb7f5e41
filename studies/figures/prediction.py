"""Predicted against measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from hetsgd.studies.figures.style import legend_below, markers, panels, themed

_THOUSANDS: Final = EngFormatter(sep="")


def prediction_figure(points: pd.DataFrame, palette: Mapping[str, Any]) -> Figure:
    """A panel per metric: predicted over the measured mean, a bar over the repeats, the line of no error.

    Columns metric (with its unit), policy, predicted, measured, low, high. A policy with one of the two alone (a level
    that one engine did not reach in every run) is named in its panel.
    """
    with themed():
        titles = list(dict.fromkeys(points["metric"]))
        figure, axes = panels(titles, height=3.3, share_y=False)
        shape = markers(palette)
        for axis, title in zip(axes, titles, strict=True):
            own = points[points["metric"] == title]
            both = own.dropna(subset=["predicted", "measured"])
            for label, colour in palette.items():
                row = both[both["policy"] == label]
                axis.plot([], [], shape[label], color=colour, label=label)
                if row.empty:
                    continue
                spread = [row["measured"] - row["low"], row["high"] - row["measured"]]
                axis.errorbar(row["measured"], row["predicted"], xerr=spread, fmt=shape[label], color=colour,
                              capsize=3, markersize=6, alpha=0.85)  # fmt: skip
            _line_of_no_error(axis, both)
            for scale in (axis.xaxis, axis.yaxis):
                scale.set_major_formatter(_tick)
            axis.set(xlabel=f"measured (bar: lowest to highest repeat){_missing(own)}", ylabel="predicted")
        legend_below(figure, axes[0])
    return figure


def _missing(points: pd.DataFrame) -> str:
    """The policies that have no point, and which side lacks them, in a line each."""
    predicted, measured = points["predicted"].notna(), points["measured"].notna()
    gone = {
        "not predicted in every run": measured & ~predicted,
        "not measured in every run": predicted & ~measured,
        "in neither in every run": ~predicted & ~measured,
    }
    return "".join(
        f"\n{words}: {', '.join(points.loc[which, 'policy'])}" for words, which in gone.items() if which.any()
    )


def _tick(value: float, _: float | None) -> str:
    """Plain numbers, and k or M where they would be long."""
    return _THOUSANDS(value) if abs(value) >= 1000 else f"{value:g}"


def _line_of_no_error(axis: Any, points: pd.DataFrame) -> None:
    """The diagonal, over the range of the points: from zero only where they reach near it."""
    values = pd.concat([points["predicted"], points["measured"], points["low"], points["high"]]).dropna()
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    room = 0.12 * (high - low) or 0.1 * abs(high) or 1.0
    low, high = (-0.03 * high if 0.0 <= low <= 0.4 * high else low - room), high + room
    axis.plot([low, high], [low, high], color="0.5", linewidth=1, linestyle="--", label="no error")
    axis.set(xlim=(low, high), ylim=(low, high))
