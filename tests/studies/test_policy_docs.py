"""docs/policies.md: its example runs on both engines' contract, and what it lists is what there is."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hetsgd.models.policies import recipe
from hetsgd.models.policy import WRITES, Fleet, Member, PolicyError, Recipe, Wait, Work
from hetsgd.models.rehearsal import rehearse
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.studies.main import app

DOCUMENT = (Path(__file__).parents[2] / "docs" / "policies.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", DOCUMENT, flags=re.DOTALL)
RUN = ("simulate", "--machine", "ucmerced-k80", "--learner", "none", "--epochs", "2")


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(EXAMPLE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)


def hetsgd(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [*RUN, *words])
    return result.exit_code, result.stdout, result.stderr


def test_the_example_runs_and_its_batches_double() -> None:
    code, out, err = hetsgd("--policy", "mine:Doubling", "--set", "policy.start=64")
    assert code == 0, err
    assert "mine:Doubling (start=64, doublings=4)" in out
    assert re.search(r"batch +cpu 128, gpu0 128", out)  # the second epoch's


@pytest.mark.parametrize("free", [False, True])
def test_the_example_keeps_the_contract_in_both_lane_modes(free: bool) -> None:
    cpu = Member(name="cpu", kind="cpu", lanes=3, free=free)
    fleet = Fleet(members=(cpu, Member(name="gpu0", kind="accelerator")), rows=1000, learning_rate=0.1)
    run = RunSettings(stop=StopRule(epochs=3), lanes="free" if free else "barrier")
    trace = rehearse(recipe("mine:Doubling"), fleet, run, np.random.default_rng(0))
    assert trace.status == "done"
    assert set(trace["assignments"]["batch"]) == {32, 64, 128}


def test_keys_out_of_range_are_refused_before_the_run_even_without_check_keys(tmp_path: Path) -> None:
    code, _, err = hetsgd("--policy", "mine:Doubling", "--set", "policy.start=-3")
    assert (code, err) == (2, "hetsgd: --set: policy.start must be >= 1, got -3\n")
    (tmp_path / "bare.py").write_text(EXAMPLE.replace("check_keys(self)", "pass"), encoding="utf-8")
    with pytest.raises(PolicyError, match=r"policy\.start must be >= 1, got -3"):
        recipe("bare:Doubling", start=-3)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mine.py", "is a Python file; name the class in it as mine:CLASS"),
        ("mine.py:Doubling", "a module is named without .py and without its folder: mine:Doubling"),
        ("folder/mine.py:Doubling", "mine:Doubling, called in the folder of mine.py"),
        ("mine:DoublingRun", "making one raised TypeError"),
        ("mine", "one of your own is package.module:object (docs/policies.md)"),
    ],
)
def test_a_wrong_name_is_told_the_right_one(name: str, says: str) -> None:
    code, out, err = hetsgd("--policy", name)
    assert (code, out) == (2, "")
    assert says in err


def test_a_class_that_is_no_recipe_is_sent_to_the_page(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text("class Half:\n    def begin(self, fleet):\n        return None\n")
    code, _, err = hetsgd("--policy", "half:Half")
    assert code == 2
    assert "it has no kinds, lane_modes, max_lookahead, reads_losses; docs/policies.md says what each of them is" in err


def test_every_part_and_every_way_to_write_is_on_the_page() -> None:
    for name in (*Recipe.__annotations__, *WRITES):
        assert f"| `{name}` |" in DOCUMENT, name
    for value in (Work, Wait):
        for field in fields(value):
            assert f"`{field.name}`" in DOCUMENT or f'`{field.name}="' in DOCUMENT, field.name
