"""Where training diverges: learning rate over staleness, the predicted limit and replayed runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.figure import Figure

from hetsgd.models.stability import StabilityLimit, delay_bound, largest_rate
from hetsgd.studies.figures.style import legend_below, panels, themed

_SAFE: Final = "#4c72b0"
_DIVERGED: Final = "#c44e52"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One replayed run: its learning rate, mean staleness, and whether it diverged."""

    rate: float
    staleness: float
    diverged: bool


def stability_figure(limit: StabilityLimit, batch: int, points: Sequence[Replayed], title: str) -> Figure:
    """Learning rate over 1 + mean staleness, both logarithmic: safe region, limit, and what replays did."""
    with themed():
        figure, (axis,) = panels([title], height=4.2)
        most = max([point.staleness for point in points], default=32.0)
        staleness = np.geomspace(1.0, 1.2 * (1.0 + most), 200) - 1.0
        quadratic = largest_rate(limit.curvature, limit.row_curvature, batch)
        edge = np.array([quadratic * delay_bound(tau) / 2.0 for tau in staleness])
        borne = edge * np.array([limit.borne(tau) for tau in staleness])
        axis.plot(1.0 + staleness, borne, color="0.3", label="predicted limit")
        axis.plot(1.0 + staleness, edge, color="0.3", linestyle="--", linewidth=1, label="of a quadratic loss")
        axis.fill_between(1.0 + staleness, edge.min() * 1e-2, limit.safe * edge, color=_SAFE, alpha=0.15, linewidth=0,
                          label="safe region")  # fmt: skip
        for diverged, colour, mark, words in ((False, _SAFE, "o", "learned"), (True, _DIVERGED, "x", "diverged")):
            own = [point for point in points if point.diverged is diverged]
            axis.plot([1.0 + p.staleness for p in own], [p.rate for p in own], mark, color=colour, linestyle="",
                      label=f"replay {words}")  # fmt: skip
        rates = [point.rate for point in points] or [float(edge.min()), float(edge.max())]
        axis.set(xscale="log", yscale="log", ylim=(0.5 * min(rates), 2.0 * max(rates)),
                 xlabel="1 + mean staleness", ylabel="learning rate")  # fmt: skip
        legend_below(figure, axis)
    return figure
