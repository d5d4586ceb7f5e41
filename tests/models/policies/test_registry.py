"""The registry of policies: names, parameters, errors, and that listing them loads nothing."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from hetsgd.models.keys import check_keys, key
from hetsgd.models.policies import POLICIES, recipe
from hetsgd.models.policy import Kind, LaneMode, PolicyError

SHARED = {
    "cpu_batch": "rows per CPU lane and step",
    "cpu_steps": "local steps of a CPU lane per assignment; more steps mean fewer round trips",
    "accelerator_batch": "rows per step of an accelerator",
    "cpu_rate": "learning rate of the CPU lanes, as a multiple of run.learning_rate",
    "accelerator_rate": "learning rate of the accelerators, as a multiple of run.learning_rate",
}


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_described_and_its_keys_have_meaning_type_and_range(name: str) -> None:
    info = POLICIES[name]
    assert info.name == name
    assert info.description.endswith(".")
    assert info.description.count(".") == 1
    keys = info.parameters()
    for item in keys:
        assert item.meaning, item
        assert item.type in ("int", "float", "bool", "str"), item
        assert item.choices or item.low is not None, f"{item.name} has no range"
        assert item.meaning == SHARED.get(item.name, item.meaning)
    made = recipe(name)
    assert {"cpu": "cpu_rate", "accelerator": "accelerator_rate"}[made.kinds[0]] in {item.name for item in keys}
    assert made == recipe(name, **{item.name: item.default for item in keys})


def test_listing_policies_and_making_a_recipe_load_no_numpy() -> None:
    code = (
        "import sys; from hetsgd.models.policies import POLICIES, recipe\n"
        "assert 'hetsgd.models.policies.hogwild' not in sys.modules\n"
        "[info.parameters() for info in POLICIES.values()]; [recipe(name) for name in POLICIES]\n"
        "assert not {'numpy', 'pandas', 'torch', 'simpy', 'networkx'} & set(sys.modules), sorted(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("name", "keys", "says"),
    [
        ("adaptive", {}, r"there is no 'adaptive', did you mean 'adaptive-hogbatch'\?; policies: hogwild, "),
        ("mine.py", {}, r"name the class in it as mine:CLASS"),
        ("hogwold", {}, r"did you mean 'hogwild'\?"),
        (
            "hogwild",
            {"cpu_bach": 4},
            r"policy\.cpu_bach: hogwild has no such key, did you mean 'cpu_batch'\?; its keys",
        ),
        ("hogwild", {"accelerator_batch": 4}, r"policy\.accelerator_batch: hogwild has no such key"),
        ("hogwild", {"cpu_batch": 1.5}, r"policy\.cpu_batch must be an integer, got 1\.5"),
        ("hogwild", {"cpu_batch": True}, r"policy\.cpu_batch must be an integer, got True"),
        ("hogwild", {"cpu_batch": "4"}, r"policy\.cpu_batch must be an integer, got '4'"),
        ("hogwild", {"cpu_batch": 0}, r"policy\.cpu_batch must be >= 1, got 0"),
        ("hogwild", {"cpu_rate": "fast"}, r"policy\.cpu_rate must be a number, got 'fast'"),
        ("hogwild", {"cpu_rate": float("nan")}, r"policy\.cpu_rate must be finite, got nan"),
        ("nowhere.at_all:Policy", {}, r"'nowhere\.at_all:Policy': cannot be imported: No module named 'nowhere'"),
        ("hetsgd.models.policy:Polcy", {}, r"has no attribute 'Polcy'"),
        ("hetsgd.models.policy:", {}, r"is named package\.module:object, got 'hetsgd\.models\.policy:'"),
        ("hetsgd.models.policy:PolicyError", {}, r"is no recipe, it has no begin, kinds, lane_modes"),
    ],
)
def test_errors_name_what_is_wrong_and_the_nearest_right_name(name: str, keys: dict[str, object], says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        recipe(name, **keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mine:
    kinds: ClassVar[tuple[Kind, ...]] = ("cpu",)
    lane_modes: ClassVar[tuple[LaneMode, ...]] = ("barrier",)
    max_lookahead: ClassVar[int] = 0
    reads_losses: ClassVar[bool] = False

    patience: int = key(3, "how long to wait", low=0)

    def __post_init__(self) -> None:
        check_keys(self)

    def begin(self, fleet: object) -> object:
        return fleet


def test_a_policy_of_ones_own_is_loaded_by_its_module_and_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "my_policy_of_a_test.py").write_text("class Held: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import my_policy_of_a_test as module  # type: ignore[import-not-found]  # made by the line above

    module.Held.recipe = Mine
    module.ready = Mine(patience=5)
    made: list[object] = [
        recipe("my_policy_of_a_test:Held.recipe", patience=7),
        recipe("my_policy_of_a_test:ready"),
        recipe("my_policy_of_a_test:ready", patience=1),
    ]
    assert made == [Mine(patience=7), Mine(patience=5), Mine(patience=1)]
    with pytest.raises(PolicyError, match=r"policy\.patient: .* did you mean 'patience'\?; its keys: patience"):
        recipe("my_policy_of_a_test:Held.recipe", patient=1)
