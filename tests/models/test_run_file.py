"""Run settings from text: types, defaults, and what is said of a bad one."""

import re
from collections.abc import Callable

import pytest

from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.run_file import RUN_KEYS, RunError, run_settings, run_table


def test_text_becomes_typed_values() -> None:
    found = run_settings(
        {"learning_rate": "0.25", "lookahead": "1", "order": "file", "evaluation": "concurrent", "momentum": "0.5",
         "evaluate_every_s": "2.5", "lanes": "free", "weight_decay": "1e-4", "trace": "summary", "seed": "7"},
        stop=StopRule(epochs=3),
    )  # fmt: skip
    assert found == RunSettings(
        stop=StopRule(epochs=3), seed=7, learning_rate=0.25, momentum=0.5, weight_decay=1e-4, order="file",
        lanes="free", lookahead=1, evaluation="concurrent", evaluate_every_s=2.5, trace="summary",
    )  # fmt: skip


def test_every_setting_has_a_key() -> None:
    settings = set(RunSettings.__dataclass_fields__) - {"stop"}
    assert set(RUN_KEYS) == settings | set(StopRule.__dataclass_fields__)


def test_overrides_come_before_defaults_and_none_empties_a_default() -> None:
    defaults = {"learning_rate": 0.3, "evaluate_every_s": 5.0, "epochs": 4}
    assert run_settings({}, defaults=defaults) == RunSettings(
        stop=StopRule(epochs=4), learning_rate=0.3, evaluate_every_s=5.0
    )
    found = run_settings({"learning_rate": 1, "evaluate_every_s": "none"}, defaults=defaults)
    assert found == RunSettings(stop=StopRule(epochs=4), learning_rate=1.0)


def test_a_stop_that_is_asked_for_leaves_out_that_of_the_defaults() -> None:
    defaults = {"epochs": 4, "target_loss": 0.1}
    assert run_settings({"seconds": "2"}, defaults=defaults).stop == StopRule(seconds=2.0)
    assert run_settings({}, defaults=defaults, stop=StopRule(updates=9)).stop == StopRule(updates=9)
    both = run_settings({"target_loss": "0.4"}, stop=StopRule(seconds=3.0))
    assert both.stop == StopRule(seconds=3.0, target_loss=0.4)


def test_a_stop_that_is_given_twice_must_be_the_same() -> None:
    assert run_settings({"epochs": "3"}, stop=StopRule(epochs=3)).stop == StopRule(epochs=3)
    for other in ("2", "none"):
        with pytest.raises(
            RunError, match=r"--set: run\.seconds: is 0\.5 by the stop rule, got .*; give it in one place"
        ):
            run_settings({"seconds": other}, stop=StopRule(seconds=0.5))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StopRule(epochs="3"), r"stop rule: epochs must be a whole number, got '3'"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: StopRule(updates=1.5), r"stop rule: updates must be a whole number, got 1\.5"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: StopRule(seconds=True), r"stop rule: seconds must be a number, got True"),
        (lambda: RunSettings(stop=None), r"run\.stop must be a StopRule, such as StopRule\(epochs=3\), got None"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: RunSettings(stop=StopRule(epochs=1), seed=1.5), r"run\.seed must be a whole number, got 1\.5"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: RunSettings(stop=StopRule(epochs=1), momentum=None), r"run\.momentum must be a number, got None"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: RunSettings(stop=StopRule(epochs=1), learning_rate="x"), r"learning_rate must be a number, got 'x'"),  # type: ignore[arg-type]  # wrong on purpose
    ],
)
def test_values_of_another_type_are_refused_by_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_table_holds_only_what_was_given() -> None:
    assert run_table({"learning_rate": "0.5"}, origin="f.toml") == {"learning_rate": 0.5}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"learnig_rate": "1"}, "--set: run.learnig_rate: no such key, did you mean 'learning_rate'?"),
        ({"zzz": "1"}, "--set: run.zzz: no such key, known: seed, learning_rate, momentum"),
        ({"lookahead": "x"}, "--set: run.lookahead: must be a whole number, got 'x'"),
        ({"lookahead": "1.5"}, "run.lookahead: must be a whole number"),
        ({"learning_rate": "fast"}, "run.learning_rate: must be a number"),
        ({"learning_rate": "1_0"}, "run.learning_rate: must be a number, got '1_0'"),
        ({"lookahead": "1_0"}, "run.lookahead: must be a whole number, got '1_0'"),
        ({"seed": True}, "run.seed: must be a whole number, got True"),
        ({"momentum": False}, "run.momentum: must be a number, got False"),
        ({"epochs": 1e3}, "run.epochs: must be a whole number, got 1000.0"),
        ({"updates": True}, "run.updates: must be a whole number, got True"),
        ({"order": "random"}, "--set: run.order: must be 'file' or 'shuffled', got 'random'"),
        ({"learning_rate": "0"}, "--set: run.learning_rate must be > 0 and at most 1e+38, got 0.0"),
        ({"learning_rate": "nan"}, "--set: run.learning_rate must be > 0 and at most 1e+38, got nan"),
        ({"momentum": "1"}, "--set: run.momentum must be in [0, 1), got 1.0"),
        ({"seconds": "-1"}, "--set: run.seconds must be > 0 and at most 1e+09, got -1.0"),
        ({"epochs": "0"}, "--set: run.epochs must be >= 1, got 0"),
        ({"seconds": "none"}, "--set: stop rule: give seconds, epochs or updates (none is given)"),
        ({"target_loss": "0.1", "evaluation": "deferred"}, "'deferred' computes losses after the run"),
        ({"lookahead": "9" * 30}, "--set: run.lookahead must be in 0..1000, got a whole number of 100 bits"),
        ({"lookahead": 1e20}, "--set: run.lookahead: must be a whole number"),
        ({"seed": 2**70}, "--set: run.seed must be in 0..9223372036854775807, got a whole number of 71 bits"),
        ({"updates": 10**16}, "--set: run.updates must be at most 1000000000000000, got 10000000000000000"),
        ({"seconds": "1e300"}, "--set: run.seconds must be > 0 and at most 1e+09, got 1e+300"),
        ({"evaluate_every_s": "1e-300"}, "--set: run.evaluate_every_s must be in [1e-09, 1e+09], got 1e-300"),
        ({"target_loss": "nan"}, "--set: run.target_loss must be finite, got nan"),
        ({"lookahead": "x", "order": "y"}, "got 'y'; run.lookahead: must be"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_with_its_field_rule_and_value(values: dict[str, str], message: str) -> None:
    stop = None if {"seconds", "epochs"} & set(values) else StopRule(seconds=1.0)
    with pytest.raises(RunError, match=re.escape(message)):
        run_settings(values, stop=stop)


def test_defaults_are_checked_too() -> None:
    with pytest.raises(RunError, match=r"defaults: run\.speed: no such key"):
        run_settings({"seconds": 1}, defaults={"speed": 2})
    with pytest.raises(RunError, match=r"own\.toml: run\.momentum must be in \[0, 1\), got 2\.0"):
        run_table({"momentum": 2}, origin="own.toml")
