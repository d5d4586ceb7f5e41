"""Pilots choose by time to the level, then by loss, with one budget for every policy."""

from __future__ import annotations

import pytest

from hetsgd.models.run import StopRule
from hetsgd.studies.study import Pilot, Study, Variant
from hetsgd.studies.tuning import choose, pilot_cases, untuned
from tests.studies.records import record, stored

STOP = StopRule(seconds=1.0)


def study(*variants: Variant, pilot: Pilot | None = None) -> Study:
    return Study(name="s", question="?", machines=("m",), workloads=("w",), variants=variants, seeds=(0, 1), stop=STOP,
                 settings=(("run.lookahead", 1),), pilot=pilot)  # fmt: skip


def variant(label: str, *rates: float) -> Variant:
    return Variant(label=label, policy=label, grid=(("run.learning_rate", rates),))


def test_each_policy_enters_with_its_first_to_the_level_and_edges_are_told() -> None:
    asked = study(variant("a", 0.1, 0.2, 0.4), variant("b", 0.1, 0.2, 0.4), pilot=Pilot(stop=STOP))
    cases = pilot_cases(asked)
    assert len(cases) == 6
    curves = [
        [(0.0, 1.0), (1.0, 0.0)], [(0.0, 1.0), (0.5, 0.0)], [(0.0, 1.0), (0.1, None)],
        [(0.0, 1.0), (1.0, 0.6)], [(0.0, 1.0), (1.0, 0.5)], [(0.0, 1.0), (1.0, 0.4)],
    ]  # fmt: skip
    status = ["done", "done", "diverged", "done", "done", "done"]
    found = {
        key: stored(record(curve, status=how))  # type: ignore[arg-type]  # the curves hold floats and None
        for key, curve, how in zip(cases, curves, status, strict=True)
    }
    first, second = choose(asked, found)
    assert dict(first.settings) == {"run.lookahead": 1, "run.learning_rate": 0.2}
    assert first.time_s == pytest.approx(0.45)
    assert first.at_edge == ()
    # b reaches the level (of the best loss of all policies) nowhere: its lowest loss decides, and lies at the edge.
    assert dict(second.settings)["run.learning_rate"] == 0.4
    assert (second.time_s, second.loss, second.at_edge) == (None, 0.4, ("run.learning_rate",))


def test_a_point_that_ends_above_where_it_began_is_taken_only_where_all_do() -> None:
    asked = study(variant("a", 0.1, 0.5), variant("b", 0.1, 0.5), pilot=Pilot(stop=STOP))
    # The larger rate of a passes every level at once and then blows up; both of b's do.
    curves = [
        [(0.0, 1.0), (1.0, 0.2)], [(0.0, 1.0), (0.1, 0.1), (1.0, 5.6)],
        [(0.0, 1.0), (0.1, 0.1), (1.0, 7.0)], [(0.0, 1.0), (0.2, 0.1), (1.0, 3.0)],
    ]  # fmt: skip
    found = {key: stored(record(curve)) for key, curve in zip(pilot_cases(asked), curves, strict=True)}
    steady, lost = choose(asked, found)
    assert dict(steady.settings)["run.learning_rate"] == 0.1
    assert (steady.rejected, steady.diverged) == (1, False)
    assert (dict(lost.settings)["run.learning_rate"], lost.loss) == (0.5, 3.0)
    assert (lost.time_s, lost.diverged) == (None, True)


def test_without_a_pilot_every_point_enters_under_its_own_label() -> None:
    labels = [choice.label for choice in untuned(study(variant("a", 0.1, 0.2), Variant(label="b", policy="b")))]
    assert labels == ["a learning_rate=0.1", "a learning_rate=0.2", "b"]


def test_unequal_budgets_are_refused() -> None:
    with pytest.raises(ValueError, match=r"same number of points.*got a 2, b 1"):
        study(variant("a", 0.1, 0.2), variant("b", 0.1), pilot=Pilot(stop=STOP))


def test_the_pilot_has_a_seed_of_its_own() -> None:
    with pytest.raises(ValueError, match=r"pilot.seed must not be one of the study's seeds, got 1"):
        study(variant("a", 0.1), pilot=Pilot(stop=STOP, seed=1))
