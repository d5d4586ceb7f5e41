"""Errors, ranking agreement and noise floor against figures worked by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from hetsgd.studies.case import Case, Role
from hetsgd.studies.record import StoredRun
from hetsgd.studies.results import panels_of
from hetsgd.studies.tables import split_table
from hetsgd.studies.validation import Row, Validation, validate_panel
from hetsgd.studies.validation_rows import Split
from tests.studies.records import case, record, stored

# Every curve falls linearly from loss 1 to 0 in `end` seconds: 90 % of the way is reached at 0.9 end.


def validation(predicted: Mapping[str, Sequence[float]], measured: Mapping[str, Sequence[float]]) -> Validation:
    found = {}
    for role, sides in (("predicted", predicted), ("measured", measured)):
        for label, ends in sides.items():
            for number, end in enumerate(ends):
                key = case(label, role=role, seed=number, repeat=number)  # type: ignore[arg-type]  # the loop's literals
                found[key] = stored(record([(0.0, 1.0), (end, 0.0)]))
    (panel,) = panels_of(found, 0.9)
    return validate_panel(panel, 0.9)


def row(found: Validation, label: str, metric: str) -> Row:
    return next(row for row in found.rows if (row.label, row.metric) == (label, metric))


def test_errors_are_relative_to_the_measured_mean() -> None:
    found = validation({"a": [2.0, 2.0]}, {"a": [1.0, 3.0]})
    time = row(found, "a", "time_to_loss_s.0.9")
    assert (time.predicted, time.measured) == pytest.approx((1.8, 1.8))
    assert time.error == pytest.approx(0.0)
    assert time.spread == pytest.approx(0.9 * 2.0**0.5)
    assert row(found, "a", "update_share.cpu").error == 0.0


def test_the_noise_floor_is_that_of_two_real_runs_against_each_other() -> None:
    found = validation({"a": [3.0]}, {"a": [2.0, 3.0]})
    # Every level: (3 - 2) / 2; the prediction is off by (3 - 2.5) / 2.5.
    assert found.noise_floor == pytest.approx(0.5)
    assert found.median_error == pytest.approx(0.2)
    assert "no more than real runs differ from each other" in found.verdict()


def test_kendalls_tau_is_of_the_time_to_the_level_that_decides() -> None:
    right = validation({"a": [1.0], "b": [2.0], "c": [3.0]}, {"a": [2.0, 2.1], "b": [4.0, 4.1], "c": [6.0, 6.1]})
    assert right.kendall_tau == pytest.approx(1.0)
    assert "held for the winner, not for the times" in right.verdict()
    wrong = validation({"a": [3.0], "b": [2.0], "c": [1.0]}, {"a": [2.0, 2.1], "b": [4.0, 4.1], "c": [6.0, 6.1]})
    assert wrong.kendall_tau == pytest.approx(-1.0)
    assert "did not hold" in wrong.verdict()
    assert "c was predicted first but a was measured first" in wrong.verdict()


def test_a_level_missed_in_one_run_has_no_mean_and_no_error() -> None:
    found = {
        case("a", role="predicted"): stored(record([(0.0, 1.0), (1.0, 0.0)])),
        case("a", role="measured", repeat=0): stored(record([(0.0, 1.0), (1.0, 0.5)])),
        case("a", role="measured", repeat=1): stored(record([(0.0, 1.0), (1.0, 0.0)])),
    }
    (panel,) = panels_of(found, 0.9)
    table = validate_panel(panel, 0.9)
    assert row(table, "a", "time_to_loss_s.0.9").measured is None
    assert row(table, "a", "time_to_loss_s.0.9").error is None
    assert row(table, "a", "time_to_loss_s.0.5").error is not None
    # 90 % was missed in a real run: the rankings are compared at the highest level that both engines always reached.
    assert table.ranked_at == 0.5
    assert "measured first to 50 % of the way (90 % was not reached in enough of the runs" in table.verdict()


def reaching(label: str, role: Role, ends: Sequence[float | None]) -> dict[Case, StoredRun]:
    """Runs that fall to zero by `end`, or (None) only halfway to it."""
    curves = [[(0.0, 1.0), (1.0, 0.5)] if end is None else [(0.0, 1.0), (end, 0.0)] for end in ends]
    return {
        case(label, role=role, seed=number, repeat=number): stored(record(curve)) for number, curve in enumerate(curves)
    }


def test_what_one_engine_alone_reached_is_named_and_counts_as_the_largest_error() -> None:
    found = {
        **reaching("a", "predicted", [1.0, 1.1]), **reaching("a", "measured", [1.0, 1.1]),
        **reaching("b", "predicted", [2.0, None]), **reaching("b", "measured", [2.0, 2.2]),
    }  # fmt: skip
    (panel,) = panels_of(found, 0.9)
    table = validate_panel(panel, 0.9)
    assert [row.label for row in table.missed] == ["b"]
    assert (
        "1 of 2 policies was measured to get to 90 % of the way in every run and not predicted to: b (1 of 2 runs)"
        in table.verdict()
    )
    # a is right to the percent, but a prediction that loses a policy has not held.
    assert "the prediction held:" not in table.verdict()
    assert table.as_json()["missed"] == ["b"]
    # Levels 0.5 to 0.9: a has five errors of 0; b is right at 0.5 alone and missed the four above.
    assert table.counted_levels == (0.5, 0.6, 0.7, 0.8, 0.9)
    assert table.median_error is not None
    assert table.worst is not None
    assert "over 2 policies and the way to 50 %, 60 %, 70 %, 80 % and 90 %," in table.verdict()


def test_a_median_of_misses_is_no_number() -> None:
    (panel,) = panels_of({**reaching("b", "predicted", [None, None]), **reaching("b", "measured", [2.0, 2.2])}, 0.9)
    table = validate_panel(panel, 0.9)
    assert table.median_error is None
    assert table.as_json()["median_error"] is None
    assert "most of these times were reached by one engine alone" in replace(table, level=0.6).verdict()


def test_a_tie_in_the_prediction_names_no_winner() -> None:
    tied = validation({"a": [1.0, 2.0, 3.0], "b": [1.1, 1.9, 3.1]}, {"a": [1.0, 2.0, 3.0], "b": [2.0, 4.0, 6.0]})
    assert "names no winner" in tied.verdict()
    assert "the seeds do not tell apart which of a and b is first, and a was measured first" in tied.verdict()
    clear = validation({"a": [1.0, 2.0, 3.0], "b": [2.0, 4.0, 6.0]}, {"a": [1.0, 2.0, 3.0], "b": [2.0, 4.0, 6.0]})
    assert "the prediction held: a was predicted first and was measured first." in clear.verdict()
    blurred = validation({"a": [1.0, 2.0, 3.0], "b": [2.0, 4.0, 6.0]}, {"a": [1.0, 2.0, 3.0], "b": [1.1, 1.9, 3.1]})
    assert "where the real runs do not tell it apart from b" in blurred.verdict()


def test_the_policy_with_the_largest_error_is_named() -> None:
    found = validation({"a": [1.0], "b": [3.0]}, {"a": [1.0, 1.0], "b": [2.0, 2.0]})
    assert found.worst is not None
    assert found.worst[1] == pytest.approx(0.5)
    assert "the policy with the largest median of its own is b, 50 %" in found.verdict()


def test_nothing_is_established_where_no_level_was_reached() -> None:
    flat = {case("a", role=role): stored(record([(0.0, 1.0), (1.0, 1.0)])) for role in ("predicted", "measured")}
    (panel,) = panels_of(flat, 0.9)
    assert "is not established" in validate_panel(panel, 0.9).verdict()


def test_the_json_object_has_what_its_schema_promises() -> None:
    found = validation({"a": [1.0], "b": [2.0]}, {"a": [1.0, 1.1], "b": [2.0, 2.2]}).as_json()
    assert found["schema"] == "hetsgd.validation/1"
    assert found["policies"]["a"]["epoch_s"]["measured"]["values"] == pytest.approx([0.6, 0.6])
    assert set(found["policies"]["b"]["time_to_loss_s.0.5"]) == {"predicted", "measured", "error", "error_kind"}
    assert {"kendall_tau", "median_error", "noise_floor", "verdict"} <= set(found)


def test_the_error_is_split_into_timing_and_statistics() -> None:
    # Predicted 1 s, measured 2 s; with the recorded order the losses would have fallen in 1.9 s.
    fast = [1.0 - t_s / 1.9 for t_s in (0.0, 1.9)]
    found = {
        case("a", role="predicted"): stored(record([(0.0, 1.0), (1.0, 0.0), (2.0, 0.0)])),
        case("a", role="measured"): stored(
            record([(0.0, 1.0), (1.9, 0.05), (2.0, 0.0)], event_order_loss=[*fast, 0.0])
        ),
        case("b", role="predicted"): stored(record([(0.0, 1.0), (1.0, 0.0)])),
        case("b", role="measured"): stored(record([(0.0, 1.0), (1.0, 0.0)])),
    }
    (panel,) = panels_of(found, 0.9)
    table = validate_panel(panel, 0.9)
    time = row(table, "a", "time_to_loss_s.0.9")
    assert (time.measured, time.implied) == pytest.approx((1.8, 1.71))
    assert time.timing_error == pytest.approx((0.9 - 1.71) / 1.8)
    assert time.statistics_error == pytest.approx((1.71 - 1.8) / 1.8)
    assert (time.timing_error or 0.0) + (time.statistics_error or 0.0) == pytest.approx(time.error)
    (split,) = table.splits
    assert (split.label, split.dominates) == ("a", "timing")
    shown = table.as_json()
    assert shown["error_split"]["a"]["dominates"] == "timing"
    assert "implied" not in shown["policies"]["b"]["time_to_loss_s.0.9"]
    assert Split(label="a", timing=0.04, statistics=-0.2).dominates == "statistics"
    assert Split(label="a", timing=0.04, statistics=-0.02).dominates == "neither"


def test_a_report_has_the_split_as_a_table() -> None:
    found = {
        case("a", role="predicted"): stored(record([(0.0, 1.0), (1.0, 0.0), (2.0, 0.0)])),
        case("a", role="measured"): stored(
            record([(0.0, 1.0), (1.9, 0.05), (2.0, 0.0)], event_order_loss=[1.0, 0.0, 0.0])
        ),
    }
    (panel,) = panels_of(found, 0.9)
    table = split_table(validate_panel(panel, 0.9))
    assert table.headings == ("policy", "timing", "statistics", "what dominates")
    assert [(row[0], row[3]) for row in table.rows] == [("a", "timing")]
