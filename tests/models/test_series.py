"""What figures show over time, against the small run worked out by hand (see `small_run`)."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsgd.models.metrics import metrics
from hetsgd.models.series import batch_series, update_share_series, utilization_series
from hetsgd.models.trace import Place, Trace

SmallRun = Callable[..., Trace]


def test_utilization_in_bins_of_two_seconds(small_run: SmallRun) -> None:
    series = utilization_series(small_run(), bins=5)
    assert series.edges_s.tolist() == [0, 2, 4, 6, 8, 10]
    assert series.middles_s.tolist() == [1, 3, 5, 7, 9]
    assert series.values["cpu"] == pytest.approx([1.0, 1.0, 1.0, 0.0, 0.75])
    assert series.values["accelerator"] == pytest.approx([0.5, 0.5, 0.0, 0.0, 0.5])


def test_other_spans_can_be_asked_for(small_run: SmallRun) -> None:
    series = utilization_series(small_run(), bins=5, spans=("evaluate", "wait"))
    assert series.values["cpu"] == pytest.approx([0.0, 0.0, 0.0, 1.0, 0.0])
    assert series.values["accelerator"] == pytest.approx([0.0, 0.0, 0.0, 1.0, 0.0])


def test_update_share_in_bins(small_run: SmallRun) -> None:
    # Updates at 2, 2 (CPU), 4.5 (merge of the accelerator's), 6, 6, 9, 9 (CPU); none from 0 to 2 s.
    series = update_share_series(small_run(), bins=5)
    assert np.isnan(series.values["cpu"][0])
    assert series.values["cpu"][1:] == pytest.approx([1.0, 0.0, 1.0, 1.0])
    assert series.values["accelerator"][1:] == pytest.approx([0.0, 1.0, 0.0, 0.0])


def test_a_merge_of_both_classes_counts_for_each_in_equal_parts(small_run: SmallRun) -> None:
    trace = small_run()
    trace.tables["merge_inputs"].add((0, 4, 1.0, 0))
    series = update_share_series(trace, bins=5)
    assert series.values["accelerator"][2] == pytest.approx(0.5)
    assert series.values["cpu"][2] == pytest.approx(0.5)


@pytest.mark.parametrize("level", ["summary", "full"])
def test_batch_sizes_in_force_at_the_end_of_each_bin(small_run: SmallRun, level: str) -> None:
    series = batch_series(small_run(level), bins=5)
    assert series.values["cpu"].tolist() == [4, 4, 4, 1, 1]
    assert series.values["gpu"].tolist() == [8, 8, 8, 16, 16]


def test_a_worker_that_was_given_nothing_has_no_batch(small_run: SmallRun) -> None:
    trace = small_run()
    trace.workers["late"] = "accelerator"
    assert np.isnan(batch_series(trace, bins=3).values["late"]).all()


@given(st.lists(st.tuples(st.floats(0.0, 9.0), st.floats(0.0, 1.0)), max_size=12), st.integers(1, 40))
def test_bins_add_up_to_the_busy_share_of_the_run(spans: list[tuple[float, float]], bins: int) -> None:
    trace = Trace()
    trace.elapsed_s = 10.0
    for number, (start_s, length_s) in enumerate(spans):
        lane = f"cpu[{number}]"
        trace.place(Place(name=lane, worker="cpu", kind="cpu"))
        trace.span("compute", lane, "cpu", number, start_s, start_s + length_s)
    if not spans:
        assert utilization_series(trace, bins=bins).values == {}
        return
    values = utilization_series(trace, bins=bins).values["cpu"]
    assert values.mean() == pytest.approx(metrics(trace).utilization["cpu"], abs=1e-12)
    assert ((values > -1e-12) & (values < 1 + 1e-12)).all()


@pytest.mark.parametrize("series", [utilization_series, update_share_series])
def test_a_trace_without_the_tables_is_refused(small_run: SmallRun, series: Callable[[Trace], object]) -> None:
    with pytest.raises(ValueError, match=r"needs a trace of level full, got 'summary'; set run.trace=full"):
        series(small_run("summary"))
    with pytest.raises(ValueError, match="needs a trace of level summary, got 'none'"):
        batch_series(small_run("none"))
    with pytest.raises(ValueError, match="bins must be >= 1, got 0"):
        batch_series(small_run(), bins=0)
    with pytest.raises(ValueError, match=r"the run must have taken time, got elapsed_s 0.0"):
        series(Trace())
