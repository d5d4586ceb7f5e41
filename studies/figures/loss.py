"""Loss over time and over epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hetsgd.models.loss_curve import LossReference
from hetsgd.studies.figures.style import dashes, legend_below, panels, themed

_POINTS = 120


def loss_figure(
    curves: pd.DataFrame, palette: Mapping[str, Any], along: str, references: Mapping[str, LossReference], level: float
) -> Figure:
    """Training loss along `t_s` or `epoch`: the mean over seeds, the band from the lowest to the highest seed.

    `curves` has the columns panel, policy, seed, t_s, epoch, train; `references` what losses are normalised by in
    each panel. What lies above the initial loss is cut off.
    """
    words = {"t_s": "time of training [s]", "epoch": "epochs of rows processed"}[along]
    with themed():
        titles = list(dict.fromkeys(curves["panel"]))
        figure, axes = panels(titles)
        style = dashes(palette)
        for axis, title in zip(axes, titles, strict=True):
            resampled = _on_one_grid(curves[curves["panel"] == title], along)
            if not resampled.empty:
                seen = [label for label in palette if label in set(resampled["policy"])]
                sns.lineplot(
                    resampled, x=along, y="train", hue="policy", palette=dict(palette), errorbar=("pi", 100), ax=axis,
                    hue_order=seen, style="policy", style_order=seen, dashes=_seaborn(style, seen), linewidth=1.8,
                )  # fmt: skip
            if title in references:
                goal = references[title].loss(level)
                axis.axhline(goal, color="0.4", linestyle=":", linewidth=1.2, label="level that decides")
            axis.set(xlabel=words, ylabel="training loss")
            axis.set_xlim(left=0.0)
        low, high = _range(curves, references)
        axes[0].set_ylim(low - 0.05 * (high - low), high + 0.08 * (high - low))
        for axis, title in zip(axes, titles, strict=True):
            _mark_leaving(axis, curves[curves["panel"] == title], along, high + 0.08 * (high - low), palette)
        legend_below(figure, axes[0])
    return figure


def _seaborn(style: Mapping[str, Any], labels: Sequence[str]) -> dict[str, Any]:
    """Line styles as seaborn has dashes: lengths on and off, an empty text for a line without."""
    return {label: "" if style[label] == "-" else style[label][1] for label in labels}


def _mark_leaving(axis: Axes, curves: pd.DataFrame, along: str, top: float, palette: Mapping[str, Any]) -> None:
    """An arrow at the upper edge where the loss of a policy leaves the plot, with its name: it did not vanish."""
    lower = 0
    for policy, runs in curves.groupby("policy", sort=False):
        above = runs[(runs[along] > 0.0) & ~(runs["train"] <= top)]
        if above.empty or policy not in palette:
            continue
        axis.annotate(
            f"{policy} \u2191", (float(above[along].min()), top), xytext=(2, -2 - 9 * lower),
            textcoords="offset points", fontsize=7.5, color=palette[str(policy)], va="top", annotation_clip=False,
        )  # fmt: skip
        lower += 1


def _range(curves: pd.DataFrame, references: Mapping[str, LossReference]) -> tuple[float, float]:
    if references:
        return min(x.best for x in references.values()), max(x.initial for x in references.values())
    finite = curves["train"][np.isfinite(curves["train"])]
    return float(finite.min()), float(finite.max())


def _on_one_grid(curves: pd.DataFrame, along: str) -> pd.DataFrame:
    """Each run at the same points, linear between its evaluations, as far as its shortest seed goes."""
    parts = []
    for policy, runs in curves.groupby("policy", sort=False):
        finite = runs[np.isfinite(runs["train"])]
        by_seed = [run.sort_values(along) for _, run in finite.groupby("seed") if len(run) > 1]
        if not by_seed:
            continue
        grid = np.linspace(0.0, min(float(run[along].iloc[-1]) for run in by_seed), _POINTS)
        for number, run in enumerate(by_seed):
            train = np.interp(grid, run[along].to_numpy(float), run["train"].to_numpy(float))
            parts.append(pd.DataFrame({along: grid, "train": train, "policy": policy, "seed": number}))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[along, "train", "policy", "seed"])
