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
    assert study.calibrate_minutes == 0.0


def test_the_quick_start_study_tunes_all_policies_alike_and_validates_here() -> None:
    study = load_study(QUICKSTART)
    assert {variant.policy for variant in study.variants} >= {
        "hogwild", "minibatch", "synchronous", "hogbatch", "adaptive-hogbatch",
    }  # fmt: skip
    assert study.machines == ("local", "aws-p3.16xlarge")
    assert len(study.seeds) >= 3
    assert study.pilot is not None
    assert study.validation is not None
    assert study.calibrate_minutes > 0.0, "a look of half a second predicts badly"
    assert len({len(variant.points) for variant in study.variants}) == 1


BAD: list[tuple[str, str, list[str]]] = [
    ("question", "questn", ["questn: unknown field", "did you mean 'question'"]),
    ('question = "Which?"', "", ["question: must be given"]),
    ("seeds = [3, 5]", "seeds = 1\ncalibrate = { minutes = 0.0 }", ["calibrate.minutes: must be > 0, got 0"]),
    ("seeds = [3, 5]", "seeds = 1\ncalibrate = { minutes = 1e9 }", ["calibrate.minutes must be 0.05 to 1440"]),
    ("seeds = [3, 5]", "seeds = 1\ncalibrate = { minute = 1 }", ["calibrate.minute", "did you mean 'minutes'"]),
    ('["local"]', '["ucmerced-k80"]\ncalibrate = {}', ["calibrate: is for studies of machine local", "ucmerced"]),
    ("epochs = 2", "epochs = 0", ["stop.epochs must be >= 1, got 0"]),
    ("epochs = 2", "epoch = 2", ["stop.epoch: unknown field", "did you mean 'epochs'"]),
    ("epochs = 2", "", ["stop", "give seconds, epochs or updates"]),
    ("epochs = 2", 'epochs = "two"', ["stop.epochs", "'two'"]),
    ('["local"]', "[]", ["machines: there must be at least one, got none"]),
    ('["local"]', '["local", "local"]', ["machines: each may appear once"]),
    ("[3, 5]", "[3, 3]", ["seeds: each may appear once, got 3, 3"]),
    ('label = "H"', 'label = "minibatch"', ["policies: two have the same label"]),
    ('"run.learning_rate" = [0.1, 0.2]', '"policy.cpu_batch" = [1]', ["policy.cpu_batch is in both set and grid"]),
    ("[0.1, 0.2]", "[]", ["grid", "must have at least 1 entry"]),
    ("label", "lable", ["lable: unknown field", "did you mean 'label'"]),
    ("question =", "level = 1.5\nquestion =", ["level must be between 0 and 1", "got 1.5"]),
    ("question =", 'metrics = ["los"]\nquestion =', ["metrics: unknown metric 'los'"]),
    ("question =", 'validate = { machine = "aws" }\nquestion =', ["validate.machine", "local", "'aws'"]),
    ("question =", "validate = { repeats = 1 }\nquestion =", ["validate.repeats must be >= 2", "got 1"]),
    ("[3, 5]", "[-1]", ["seeds: must be in 0..9223372036854775807, got -1"]),
    (
        "[3, 5]",
        "[1180591620717411303424]",
        ["seeds: must be a whole number of at most 64 bits, got a whole number of 71"],
    ),
    ("[3, 5]", "1180591620717411303424", ["seeds: must be a whole number of at most 64 bits"]),
    ("[3, 5]", "100000000000", ["seeds: their number must be in 1..10000, got 100000000000"]),
    ("[3, 5]", "0", ["seeds: their number must be in 1..10000, got 0"]),
    ("[3, 5]", '"many"', ["seeds: must be a whole number or a list, got 'many'"]),
    ("[3, 5]", "[1, 2.5]", ["seeds.1: must be a whole number, got 2.5"]),
    ("epochs = 2", "seconds = 1e300", ["stop.seconds must be > 0 and at most 1e+09, got 1e+300"]),
    ("epochs = 2", "seconds = nan", ["stop.seconds: must be a finite number, got nan"]),
    ("question =", 'learner = "replya"\nquestion =', ["learner: 'replya' is no learner, did you mean 'replay'?"]),
    ("question =", "pilot = { seed = -1, stop = { epochs = 1 } }\nquestion =", ["pilot.seed: must be in 0.."]),
    ("question =", "on.locla.stop.epochs = 1\nquestion =", ["on.locla: must be a machine of the study, did you mean"]),
    (
        "question =",
        "on.local.pilot_stop.epoch = 1\nquestion =",
        ["pilot_stop.epoch: unknown field; did you mean 'epochs'"],
    ),
    ('name = "minibatch"', "name = 3", ["policies.0.name: must be a text, got 3"]),
    ('"local"]', "3]", ["machines.0: must be a text, got 3"]),
    ("question =", f"question = {'[' * 5000}", ["must be TOML with at most 100 tables and lists"]),
    (
        "question =",
        f"level = {'9' * 5000}\nquestion =",
        ["line ", "a whole number of at most 64 bits, got one of 5000 digits"],
    ),
    ("question =", "question", ["must be TOML", "line 2"]),
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
