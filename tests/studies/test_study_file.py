"""A study file is read whole, or refused in one message that names file, field, rule and value."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsgd.models.run import StopRule
from hetsgd.studies.failure import BadInput
from hetsgd.studies.study_file import load_study, parse_study

QUICKSTART = Path(__file__).resolve().parents[2] / "studies" / "quickstart.toml"

GOOD = """
question = "Which?"
machines = ["local"]
workloads = ["quickstart"]
stop = { epochs = 2 }
seeds = [3, 5]
run = { lookahead = 1 }
[[policies]]
name = "minibatch"
[[policies]]
name = "hogwild"
label = "H"
set = { "policy.cpu_batch" = 4 }
grid = { "run.learning_rate" = [0.1, 0.2] }
"""


def test_a_study_is_read_with_its_defaults() -> None:
    study = parse_study(GOOD, "s.toml", "s")
    assert (study.name, study.seeds, study.stop) == ("s", (3, 5), StopRule(epochs=2))
    assert study.settings == (("run.lookahead", 1),)
    assert study.variants[1].label == "H"
    assert study.variants[1].points == (
        (("policy.cpu_batch", 4), ("run.learning_rate", 0.1)),
        (("policy.cpu_batch", 4), ("run.learning_rate", 0.2)),
    )
    assert study.pilot is None
    assert study.validation is None


def test_the_quick_start_study_tunes_all_policies_alike_and_validates_here() -> None:
    study = load_study(QUICKSTART)
    assert {variant.policy for variant in study.variants} >= {
        "hogwild", "minibatch", "synchronous", "hogbatch", "adaptive-hogbatch",
    }  # fmt: skip
    assert study.machines == ("local", "aws-p3.16xlarge")
    assert len(study.seeds) >= 3
    assert study.pilot is not None
    assert study.validation is not None
    assert len({len(variant.points) for variant in study.variants}) == 1


BAD: list[tuple[str, str, list[str]]] = [
    ("question", "questn", ["questn: unknown field", "did you mean 'question'"]),
    ('question = "Which?"', "", ["question: is missing"]),
    ("epochs = 2", "epochs = 0", ["stop", "epochs must be >= 1, got 0"]),
    ("epochs = 2", "epoch = 2", ["stop.epoch: unknown field", "did you mean 'epochs'"]),
    ("epochs = 2", "", ["stop", "give seconds, epochs or updates"]),
    ("epochs = 2", 'epochs = "two"', ["stop.epochs", "'two'"]),
    ('["local"]', "[]", ["machines: there must be at least one, got none"]),
    ('["local"]', '["local", "local"]', ["machines: each may appear once"]),
    ("[3, 5]", "[3, 3]", ["seeds: each may appear once, got 3, 3"]),
    ('label = "H"', 'label = "minibatch"', ["policies: two have the same label"]),
    ('"run.learning_rate" = [0.1, 0.2]', '"policy.cpu_batch" = [1]', ["policy.cpu_batch is in both set and grid"]),
    ("[0.1, 0.2]", "[]", ["grid", "at least 1 item"]),
    ("label", "lable", ["lable: unknown field", "did you mean 'label'"]),
    ("question =", "level = 1.5\nquestion =", ["level must be between 0 and 1", "got 1.5"]),
    ("question =", 'metrics = ["los"]\nquestion =', ["metrics: unknown metric 'los'"]),
    ("question =", 'validate = { machine = "aws" }\nquestion =', ["validate.machine", "local", "'aws'"]),
    ("question =", "validate = { repeats = 1 }\nquestion =", ["validate.repeats must be >= 2", "got 1"]),
    ("question =", "question", ["not valid TOML", "line 2"]),
]


@pytest.mark.parametrize(("old", "new", "parts"), BAD, ids=[new or f"no {old}" for old, new, _ in BAD])
def test_a_bad_study_is_refused(old: str, new: str, parts: list[str]) -> None:
    assert old in GOOD
    with pytest.raises(BadInput) as caught:
        parse_study(GOOD.replace(old, new, 1), "s.toml", "s")
    message = str(caught.value)
    for part in ["s.toml", *parts]:
        assert part in message
    assert "\n" not in message
