"""What figures show: no policy hides another, and none vanishes without a word."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from hetsgd.models.loss_curve import LossReference
from hetsgd.studies.figures.loss import loss_figure
from hetsgd.studies.figures.prediction import prediction_figure
from hetsgd.studies.figures.style import colours, dashes, markers
from hetsgd.studies.figures.work import batch_figure, utilization_figure

PALETTE = colours(["a", "b"])


def test_policies_differ_by_more_than_their_colour() -> None:
    labels = ["a", "b", "c", "d", "e"]
    assert len({str(style) for style in dashes(labels).values()}) == len(labels)
    assert len(set(markers(labels).values())) == len(labels)


def test_a_policy_whose_loss_leaves_the_plot_is_named_where_it_does() -> None:
    rows = [
        {"panel": "m", "policy": policy, "seed": 0, "t_s": t_s, "epoch": t_s, "train": loss}
        for policy, losses in (("a", (1.0, 0.5, 0.2)), ("b", (1.0, 7.0, 9.0)))
        for t_s, loss in zip((0.0, 1.0, 2.0), losses, strict=True)
    ]
    reference = {"m": LossReference(initial=1.0, best=0.2)}
    (axis,) = loss_figure(pd.DataFrame(rows), PALETTE, "t_s", reference, 0.9).axes
    assert [text.get_text() for text in axis.texts] == ["b ↑"]


def test_a_policy_that_one_engine_did_not_bring_there_is_named_and_axes_fit_the_points() -> None:
    points = pd.DataFrame([
        {"metric": "loss", "policy": "a", "predicted": 0.58, "measured": 0.56, "low": 0.55, "high": 0.57},
        {"metric": "loss", "policy": "b", "predicted": np.nan, "measured": 0.5, "low": 0.5, "high": 0.5},
    ])  # fmt: skip
    (axis,) = prediction_figure(points, PALETTE).axes
    assert "not predicted in every run: b" in axis.get_xlabel()
    assert axis.get_xlim()[0] > 0.4


def test_equal_batch_sizes_do_not_hide_each_other() -> None:
    batches = pd.DataFrame([
        {"panel": "m", "kind": "accelerator", "policy": policy, "worker": "gpu0", "t_s": t_s, "batch": 512.0}
        for policy in ("a", "b") for t_s in (0.1, 0.2)
    ])  # fmt: skip
    (axis,) = batch_figure(batches, PALETTE).axes
    drawn = [np.asarray(line.get_ydata(), dtype=float) for line in axis.lines]
    heights = {float(values[0]) for values in drawn if len(values) == 2}
    assert len(heights) == 2
    assert sum(heights) / 2 == pytest.approx(512.0, rel=1e-3)


def test_a_team_that_mostly_waits_fills_its_panel() -> None:
    busy = pd.DataFrame([
        {"panel": "m", "kind": kind, "policy": "a", "t_s": t_s, "busy": share}
        for kind, share in (("cpu", 0.1), ("accelerator", 0.9)) for t_s in (0.1, 0.2)
    ])  # fmt: skip
    cpu, accelerator = utilization_figure(busy, PALETTE).axes
    assert cpu.get_ylim()[1] == pytest.approx(0.115)
    assert accelerator.get_ylim()[1] == pytest.approx(1.035)
