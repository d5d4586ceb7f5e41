"""docs/studies.md and the reader of study files say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from typer.testing import CliRunner

from hetsgd.studies import study_file
from hetsgd.studies.main import app
from hetsgd.studies.study import METRICS

DOCUMENT = (Path(__file__).parents[2] / "docs" / "studies.md").read_text(encoding="utf-8")
TABLES: dict[str, type[BaseModel]] = {
    "The study": study_file._Study,
    "`[[policies]]`": study_file._Policy,
    "Stop rules": study_file._Stop,
    "`[on.M]`": study_file._On,
    "`[pilot]`": study_file._Pilot,
    "`[calibrate]`": study_file._Calibrate,
    "`[validate]`": study_file._Validate,
}


def section(title: str) -> str:
    return DOCUMENT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def words(key: str, value: object) -> str:
    """A default as the document writes it."""
    if value is PydanticUndefined:
        return "required"
    if key == "metrics":
        return "all"
    if value is None:
        return "none"
    if value == {}:
        return "empty"
    return f"`{value}`" if isinstance(value, str) else str(value)


@pytest.mark.parametrize("title", TABLES)
def test_every_key_of_every_table_is_documented_with_its_default(title: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", section(title), flags=re.MULTILINE)
    found = {key: default.strip() for key, _, default in rows}
    fields = TABLES[title].model_fields
    wanted = {field.alias or name: words(name, field.default) for name, field in fields.items()}
    assert found == wanted


def test_every_table_of_the_reader_has_its_section() -> None:
    kinds = {
        kind for kind in vars(study_file).values() if isinstance(kind, type) and issubclass(kind, study_file._Table)
    }
    assert kinds - {study_file._Table} == set(TABLES.values())


def test_every_metric_is_documented() -> None:
    for metric in METRICS:
        assert f"`{metric}`" in section("The study")


@pytest.mark.slow
def test_the_example_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    (tmp_path / "rates.toml").write_text(example, encoding="utf-8")
    words = ["study", "run", str(tmp_path / "rates.toml"), "--out", str(tmp_path / "out"), "--workers", "1"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.stderr
    assert "hogbatch" in result.stdout
    assert (tmp_path / "out" / "runs.parquet").is_file()


def test_the_example_is_read_and_help_names_the_page() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    study = study_file.parse_study(example, "rates.toml", "rates")
    assert (study.name, study.level, len(study.variants[0].points)) == ("rates", 0.5, 2)
    assert "docs/studies.md" in CliRunner().invoke(app, ["study", "run", "--help"]).stdout
