"""The picture of learning rate over staleness, and the replays on it."""

import numpy as np

from hetsgd.models.stability import StabilityLimit
from hetsgd.models.surrogates.calibration_file import SHIPPED, load_calibration
from hetsgd.studies.figures.stability import Replayed, stability_figure
from hetsgd.studies.figures.style import picture
from hetsgd.studies.stability_map import replayed

LIMIT = StabilityLimit(curvature=2.0, row_curvature=20.0)


def test_the_picture_shows_both_limits_the_safe_region_and_the_replays() -> None:
    points = [Replayed(rate=0.1, staleness=1.0, diverged=False), Replayed(rate=3.0, staleness=8.0, diverged=True)]
    figure = stability_figure(LIMIT, 16, points, "a net")
    (axis,) = figure.axes
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("1 + mean staleness", "learning rate")
    lines = {str(line.get_label()): line for line in axis.get_lines()}
    assert set(lines) == {"predicted limit", "of a quadratic loss", "replay learned", "replay diverged"}
    assert np.asarray(lines["replay diverged"].get_xdata()).tolist() == [9.0]
    assert picture(figure, "png") == picture(stability_figure(LIMIT, 16, points, "a net"), "png")


def test_a_replay_far_below_the_limit_learns_and_one_far_above_it_diverges() -> None:
    limit = load_calibration(SHIPPED / "quickstart.json").limit
    learned, diverged = (replayed("quickstart", limit, 2, ratio, 150, 0) for ratio in (0.3, 12.0))
    assert not learned.diverged
    assert diverged.diverged
    assert 0.5 < learned.staleness <= 1.0
    assert limit.side(rate=learned.rate, batch=16, staleness=learned.staleness) == "safe"
    assert limit.diverges(rate=diverged.rate, batch=16, staleness=diverged.staleness)
