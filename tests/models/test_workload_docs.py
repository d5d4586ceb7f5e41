"""docs/workloads.md and the parser say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic_core import PydanticUndefined

from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.run_file import RUN_KEYS, run_settings
from hetsgd.models.workload_file import load_workload
from hetsgd.models.workload_table import WORKLOAD_KEYS, WorkloadTable

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "workloads.md").read_text(encoding="utf-8")
FILE_PART, RUN_PART = DOCUMENT.split("## The `[run]` table")


def documented(text: str) -> dict[str, tuple[str, str]]:
    """Key -> (type, default) of all tables in a text."""
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", text, flags=re.MULTILINE)
    assert len({key for key, *_ in rows}) == len(rows)
    return {key: (kind.strip(), default.strip()) for key, kind, default in rows}


def words(value: object) -> str:
    """A default as the document writes it."""
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"`{value}`" if value else "empty"
    return str(value)


def test_every_key_of_a_workload_file_is_documented_with_its_default() -> None:
    found = documented(FILE_PART)
    assert sorted(found) == sorted(WORKLOAD_KEYS)
    for key, field in WorkloadTable.model_fields.items():
        assert found[key][1] == words(field.default), key


def test_every_key_of_the_run_table_is_documented_with_its_default() -> None:
    found = documented(RUN_PART)
    assert sorted(found) == sorted(RUN_KEYS)
    settings = RunSettings(stop=StopRule(epochs=1))
    for key, (_, default) in found.items():
        value = getattr(settings, key) if hasattr(settings, key) else None  # no stop rule has a default
        assert default == words(value), key


def test_every_documented_choice_is_accepted() -> None:
    for text, owner in ((FILE_PART, "workload"), (RUN_PART, "run")):
        for key, (kind, _) in documented(text).items():
            for choice in re.findall(r"`(\w+)`", kind):
                if owner == "workload":
                    value = getattr(WorkloadTable.model_validate({"hidden": [4], key: choice}), key)
                else:
                    value = getattr(run_settings({key: choice, "epochs": 1}), key)
                assert value == choice


def test_the_example_works(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    lines = [f"{row % 7},{row % 3},{row % 2}" for row in range(40)]
    (tmp_path / "points.csv").write_text("\n".join(["length,width,class", *lines]))
    (tmp_path / "mine.toml").write_text(example)
    loaded = load_workload(tmp_path / "mine.toml")
    assert (loaded.workload.rows, loaded.workload.features, loaded.workload.hidden) == (32, 2, (32, 32))
    assert loaded.run == {"learning_rate": 0.05, "epochs": 3}
    assert loaded.data().train_x.mean() == pytest.approx(0.0, abs=1e-6)
