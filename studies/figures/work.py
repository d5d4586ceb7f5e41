"""Who does what: update share, utilization over time, batch sizes over time, staleness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from hetsgd.studies.figures.style import (
    CLASS_COLOURS,
    CLASS_WORDS,
    dashes,
    legend_below,
    markers,
    panels,
    themed,
)

_APART: Final = 1.04


def share_figure(shares: pd.DataFrame) -> Figure:
    """Who makes the updates: a bar per policy, split by class. Columns panel, policy, cpu, accelerator."""
    with themed():
        titles = list(dict.fromkeys(shares["panel"]))
        rows = int(shares.groupby("panel")["policy"].nunique().max())
        figure, axes = panels(titles, height=1.3 + 0.36 * rows)
        for axis, title in zip(axes, titles, strict=True):
            means = shares[shares["panel"] == title].groupby("policy", sort=False)[["cpu", "accelerator"]].mean()
            left = pd.Series(0.0, index=means.index)
            for kind, words in CLASS_WORDS.items():
                axis.barh(means.index, means[kind], left=left, color=CLASS_COLOURS[kind], label=words, height=0.65)
                left = left + means[kind]
            axis.xaxis.set_major_formatter(PercentFormatter(1.0))
            axis.set(xlabel="share of the updates", xlim=(0, 1), xticks=[0, 0.25, 0.5, 0.75, 1])
            axis.grid(visible=False, axis="y")
        axes[0].invert_yaxis()
        legend_below(figure, axes[0])
    return figure


def utilization_figure(busy: pd.DataFrame, palette: Mapping[str, Any]) -> Figure:
    """Computing share over time, a panel per machine and class. Columns panel, kind, policy, t_s, busy."""
    with themed():
        machines = list(dict.fromkeys(busy["panel"]))
        keys = [(panel, kind) for kind in CLASS_WORDS for panel in machines]
        titles = [f"{panel}: {CLASS_WORDS[kind]}" for panel, kind in keys]
        figure, axes = panels(titles, height=2.4, columns=min(len(machines), 3), share_y=False)
        seen = [label for label in palette if label in set(busy["policy"])]
        style = dashes(seen)
        for axis, (panel, kind) in zip(axes, keys, strict=True):
            own = busy[(busy["panel"] == panel) & (busy["kind"] == kind)]
            for label in seen:
                line = own[own["policy"] == label]
                axis.plot(line["t_s"], line["busy"], color=palette[label], label=label, linewidth=1.3,
                          linestyle=style[label], alpha=0.9)  # fmt: skip
            axis.yaxis.set_major_formatter(PercentFormatter(1.0))
            # As high as the busiest line needs: a team that waits most of the time is still to be seen.
            top = 1.15 * float(own["busy"].max()) if len(own) else 0.0
            axis.set(
                xlabel="time of training [s]", ylabel="computing", ylim=(0.0, min(1.05, top) if top > 0.0 else 1.05)
            )
            axis.set_xlim(left=0.0)
        legend_below(figure, axes[0])
    return figure


def batch_figure(batches: pd.DataFrame, palette: Mapping[str, Any]) -> Figure:
    """Batch sizes over time, a panel per machine, dashed for CPU lanes. Columns panel, kind, policy, t_s, batch.

    Policies with the same size would hide each other: each has a marker of its own, and is drawn a little apart.
    """
    with themed():
        titles = list(dict.fromkeys(batches["panel"]))
        figure, axes = panels(titles)
        shape, count = markers(palette), len(palette)
        for axis, title in zip(axes, titles, strict=True):
            own = batches[batches["panel"] == title]
            for number, (label, colour) in enumerate(palette.items()):
                apart = _APART ** (number - (count - 1) / 2)
                for (_, kind), line in own[own["policy"] == label].groupby(["worker", "kind"], sort=False):
                    style = "--" if kind == "cpu" else "-"
                    every = max(1, len(line) // 5)
                    axis.step(
                        line["t_s"], apart * line["batch"], where="post", color=colour, linestyle=style, linewidth=1.6,
                        marker=shape[label], markersize=4, markevery=(number * every // max(count, 1), every),
                    )  # fmt: skip
                axis.plot([], [], color=colour, marker=shape[label], markersize=4, label=label)
            axis.plot([], [], color="0.3", linestyle="-", label="accelerator")
            axis.plot([], [], color="0.3", linestyle="--", label="CPU lane")
            axis.set_yscale("log", base=2)
            axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set(xlabel="time of training [s]", ylabel="batch size [rows]")
            axis.set_xlim(left=0.0)
        legend_below(figure, axes[0])
    return figure


def staleness_figure(staleness: pd.DataFrame) -> Figure:
    """Staleness of the updates by policy and class: the mean, a line from the median to the 95th percentile.

    Columns panel, policy, kind, mean, p50, p95.
    """
    with themed():
        titles = list(dict.fromkeys(staleness["panel"]))
        figure, axes = panels(titles, height=1.1 + 0.42 * staleness["policy"].nunique())
        for axis, title in zip(axes, titles, strict=True):
            own = staleness[staleness["panel"] == title]
            labels = list(dict.fromkeys(staleness["policy"]))
            for offset, (kind, words) in zip((-0.15, 0.15), CLASS_WORDS.items(), strict=True):
                rows = own[own["kind"] == kind].groupby("policy", sort=False)[["mean", "p50", "p95"]].mean()
                places = [labels.index(label) + offset for label in rows.index]
                axis.hlines(places, rows["p50"], rows["p95"], color=CLASS_COLOURS[kind], linewidth=2, alpha=0.6)
                axis.scatter(rows["mean"], places, color=CLASS_COLOURS[kind], s=36, label=words, zorder=3)
            axis.set_yticks(range(len(labels)), labels)
            axis.set_ylim(len(labels) - 0.5, -0.5)
            axis.set_xscale("symlog", linthresh=1)
            axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set(xlabel="staleness [updates]: mean, median to 95th percentile")
            axis.set_xlim(left=-0.1)
            axis.grid(visible=False, axis="y")
        legend_below(figure, axes[0])
    return figure
