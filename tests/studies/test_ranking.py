"""Who is first, by how much, and what the seeds do not tell apart."""

from __future__ import annotations

import math

import pytest

from hetsgd.studies.interval import mean_interval, ratio_interval
from hetsgd.studies.ranking import Ranking, rank


def ranking(
    times: dict[str, list[float | None]], losses: dict[str, float] | None = None, diverged: dict[str, int] | None = None
) -> Ranking:
    by_seed = {label: dict(enumerate(values)) for label, values in times.items()}
    return rank("m", "w", 0.9, by_seed, losses or {}, diverged or {})


def test_the_fastest_is_first_and_its_lead_is_paired_by_seed() -> None:
    # Seeds differ a lot, policies by exactly a factor of two in each: the pairing sees it, the means would not.
    found = ranking({"slow": [2.0, 20.0, 8.0], "fast": [1.0, 10.0, 4.0]})
    assert [entry.label for entry in found.entries] == ["fast", "slow"]
    lead = found.leads[0]
    assert (lead.other, lead.established) == ("slow", True)
    assert (lead.ratio.low, lead.ratio.mean, lead.ratio.high) == pytest.approx((2.0, 2.0, 2.0))
    assert "fast is predicted first" in found.verdict()
    assert "2 times (2 to 2) sooner than slow, the next." in found.verdict()


def test_a_lead_that_the_seeds_do_not_establish_is_called_that() -> None:
    found = ranking({"a": [1.0, 2.0, 3.0], "b": [2.0, 1.5, 3.2], "c": [9.0, 18.0, 27.0]})
    assert not found.leads[0].established
    assert "but the seeds do not tell it apart from b" in found.verdict()
    assert "c takes 9 times (9 to 9) as long" in found.verdict()


def test_a_policy_that_misses_the_level_in_one_seed_cannot_win() -> None:
    found = ranking({"lucky": [0.1, None], "steady": [5.0, 6.0]})
    assert found.first is not None
    assert found.first.label == "steady"
    assert "no other policy got there in every seed" in found.verdict()


def test_when_none_gets_there_the_verdict_says_so_and_final_loss_orders() -> None:
    found = ranking({"a": [None, None], "b": [None, 3.0]}, {"a": 0.3, "b": 0.5})
    assert found.first is None
    assert [entry.label for entry in found.entries] == ["a", "b"]
    assert "no policy reached 90 % of the way" in found.verdict()
    assert "(b: reached in 1 of 2)" in found.verdict()


def test_one_seed_has_no_interval_and_says_so() -> None:
    found = ranking({"a": [1.0], "b": [2.0]})
    assert math.isnan(found.leads[0].ratio.low)
    assert "1 s (one seed, no interval), but the seeds do not tell it apart from b (2 times)." in found.verdict()
    assert not found.leads[0].established


def test_two_seeds_are_too_few_to_tell_policies_apart_and_their_interval_is_not_shown() -> None:
    found = ranking({"a": [1.0, 1.1], "b": [2.0, 2.2]})
    assert not found.leads[0].established
    assert "1.05 s (2 seeds are too few for an interval)" in found.verdict()
    assert "[" not in found.verdict()


def test_an_interval_that_reaches_to_zero_or_over_a_factor_of_ten_is_not_shown() -> None:
    wide = mean_interval([1.0, 2.0, 9.0])
    assert wide.low < 0.0
    assert wide.silent == "the seeds differ too much for an interval"
    assert ratio_interval([1.0, 30.0, 4.0], [1.0, 1.0, 1.0]).silent == wide.silent
    assert not mean_interval([1.0, 1.1, 1.2]).silent


def test_each_tied_policy_has_a_ratio_of_its_own_without_nested_brackets() -> None:
    found = ranking({"a": [1.0, 2.0, 3.0], "b": [1.2, 1.9, 3.2], "c": [1.3, 1.8, 3.5]})
    tied = found.verdict().partition("apart from ")[2]
    assert tied.count("times;") == 2
    assert tied.startswith("b (1.07 times; ")
    assert " and c (1.11 times; " in tied


def test_a_policy_that_diverged_is_named_and_cannot_win_however_early_it_passed_the_level() -> None:
    found = ranking({"wild": [0.1, 0.2, 0.1], "steady": [5.0, 6.0, 5.0]}, {"wild": 19.0, "steady": 0.1}, {"wild": 2})
    assert found.first is not None
    assert found.first.label == "steady"
    assert found.verdict().endswith("Diverged, with a loss that ends above where it began: wild in 2 of 3 seeds.")
    assert found.entries[1].shortfall == "reached in 3 of 3, diverged in 2"


def test_intervals_are_students() -> None:
    # t(0.975, 3) = 3.18245; the standard error of 1, 2, 3, 4 is sqrt(5 / 12).
    interval = mean_interval([1.0, 2.0, 3.0, 4.0])
    assert interval.high - interval.mean == pytest.approx(3.182446 * math.sqrt(5 / 12), rel=1e-6)
    ratio = ratio_interval([2.0, 8.0], [1.0, 2.0])
    assert ratio.mean == pytest.approx(math.sqrt(8.0))
    with pytest.raises(ValueError, match="at least one value"):
        mean_interval([])
