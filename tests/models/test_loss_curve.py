"""Time to loss: linear between evaluations, the first crossing counts."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hetsgd.models.loss_curve import LossPoint, LossReference, reference_of, time_to_levels, time_to_loss

LOSSES = st.floats(0.0, 10.0, allow_nan=False)


def point(t_s: float, train: float) -> LossPoint:
    nan = math.nan
    return LossPoint(t_s=t_s, epochs=0.0, update=0, train=train, test=nan, train_score=nan, test_score=nan)


@given(st.lists(st.tuples(st.floats(1e-3, 100.0), LOSSES), min_size=1, max_size=20), LOSSES)
def test_the_curve_is_at_the_target_at_that_time_and_above_before(
    steps: list[tuple[float, float]], target: float
) -> None:
    times = np.cumsum([gap for gap, _ in steps])
    losses = [loss for _, loss in steps]
    found = time_to_loss(times.tolist(), losses, target)
    if found is None:
        assert min(losses) > target
        return
    assert times[0] <= found <= times[-1]
    if found > times[0]:
        assert np.interp(found, times, losses) == pytest.approx(target, abs=1e-6)
    assert all(loss > target for t_s, loss in zip(times, losses, strict=True) if t_s < found)


@given(st.lists(LOSSES, min_size=2, max_size=20), LOSSES, LOSSES)
def test_a_lower_target_is_never_reached_sooner(losses: list[float], one: float, other: float) -> None:
    assume(one < other)
    times = [float(i) for i in range(len(losses))]
    later, sooner = time_to_loss(times, losses, one), time_to_loss(times, losses, other)
    if later is not None:
        assert sooner is not None
        assert sooner <= later


@given(st.lists(LOSSES, min_size=2, max_size=20), LOSSES, st.integers(1, 5))
def test_more_points_on_the_same_lines_change_nothing(losses: list[float], target: float, pieces: int) -> None:
    times = np.arange(len(losses), dtype=float)
    fine = np.unique(np.concatenate([times, np.linspace(0.0, len(losses) - 1.0, pieces * (len(losses) - 1) + 1)]))
    coarse_s = time_to_loss(times.tolist(), losses, target)
    fine_s = time_to_loss(fine.tolist(), np.interp(fine, times, losses).tolist(), target + 1e-9)
    if coarse_s is not None:
        assert fine_s is not None
        assert fine_s <= coarse_s + 1e-9


def test_no_line_is_drawn_to_or_from_a_loss_that_is_not_finite() -> None:
    assert time_to_loss([0.0, 1.0, 2.0], [1.0, math.nan, 0.2], 0.5) == 2.0
    assert time_to_loss([0.0, 1.0], [1.0, math.inf], 0.5) is None
    assert time_to_loss([], [], 0.5) is None


def test_a_run_that_starts_below_the_target_needs_no_time() -> None:
    assert time_to_loss([0.0, 1.0], [0.3, 0.2], 0.5) == 0.0


def test_levels_that_were_not_reached_are_none_and_without_a_reference_there_are_none() -> None:
    curve = [point(0.0, 1.0), point(10.0, 0.5)]
    assert time_to_levels(curve, None) == {}
    reference = LossReference(initial=1.0, best=0.0)
    assert time_to_levels(curve, reference, (0.25, 0.9)) == {0.25: 5.0, 0.9: None}
    with pytest.raises(ValueError, match=r"loss level must be in \(0, 1\], got 1.5"):
        time_to_levels(curve, reference, (1.5,))


def test_the_reference_of_several_runs_is_the_common_start_and_the_best_of_all() -> None:
    one = [point(0.0, 1.0), point(1.0, 0.6)]
    other = [point(0.0, 1.0), point(1.0, 0.4), point(2.0, 0.5), point(3.0, math.inf)]
    assert reference_of([one, other]) == LossReference(initial=1.0, best=0.4)
    assert reference_of([[point(0.0, 1.0), point(1.0, 2.0)]]) is None
    assert reference_of([[]]) is None
    assert reference_of([]) is None


@pytest.mark.parametrize(
    ("initial", "best", "message"),
    [
        (0.2, 1.0, "the initial loss comes first and must be above the best, got 0.2,1"),
        (0.5, 0.5, "must be above the best, got 0.5,0.5"),
        (math.nan, 0.5, "both losses must be finite, got nan,0.5"),
    ],
)
def test_a_reference_that_makes_no_sense_is_refused(initial: float, best: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LossReference(initial=initial, best=best)
