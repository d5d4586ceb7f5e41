"""The package is one set of modules under one name, and declares what it imports."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import hetsgd

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("models", "sim", "real", "studies")

IMPORT_ALL = """
import json, sys
import hetsgd.models, hetsgd.sim, hetsgd.real, hetsgd.studies
print(json.dumps({name: getattr(module, "__file__", None) for name, module in sys.modules.items()}))
"""


def imported_files(cwd: Path) -> dict[str, str | None]:
    """Import the whole package in a child process started in `cwd`; return its modules and their files."""
    child = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], cwd=cwd, capture_output=True, text=True, check=True, timeout=120
    )
    loaded: dict[str, str | None] = json.loads(child.stdout)
    return loaded


@pytest.mark.parametrize("started_in", ["the clone", "elsewhere"])
def test_every_folder_is_loaded_once_and_only_as_part_of_hetsgd(started_in: str, tmp_path: Path) -> None:
    loaded = imported_files(ROOT if started_in == "the clone" else tmp_path)
    for folder in FOLDERS:
        assert folder not in loaded, f"{folder} was loaded under its bare name too"
        file = loaded[f"hetsgd.{folder}"]
        assert file is not None
        assert Path(file).resolve() == ROOT / folder / "__init__.py"


def test_the_suite_itself_has_loaded_no_folder_under_its_bare_name() -> None:
    assert not set(FOLDERS) & set(sys.modules)


def test_importing_the_package_is_instant() -> None:
    code = "import sys, hetsgd; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not {"numpy", "torch", "simpy", "pandas", "networkx", "seaborn"} & set(child.stdout.split())


def test_every_lazy_name_exists_where_the_table_says() -> None:
    for name in hetsgd._HOME:
        assert getattr(hetsgd, name) is not None
        assert name in dir(hetsgd)


def test_completion_shows_public_names_only() -> None:
    assert hetsgd.simulate is not None
    assert [name for name in dir(hetsgd) if not name.startswith("__")] == sorted(hetsgd._HOME)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        hetsgd.__getattr__("no_such_name")


def test_the_version_is_the_installed_one() -> None:
    assert metadata.version("hetsgd") == hetsgd.__version__


def project() -> dict[str, object]:
    """Return the [project] table of pyproject.toml."""
    table: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def canonical(requirement: str) -> str:
    """Return the normalised distribution name of a requirement line.

    >>> canonical("Scikit_Learn[extra]>=1.4")
    'scikit-learn'
    """
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found.group()).lower()


def imported_top_levels() -> dict[str, str]:
    """Return each top-level module that the shipped sources import, with one file that does so."""
    found: dict[str, str] = {}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names: list[str] = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module is not None:
                    names = [node.module]
                for name in names:
                    found.setdefault(name.partition(".")[0], str(path.relative_to(ROOT)))
    return found


def test_every_imported_distribution_is_declared() -> None:
    table = project()
    required, extras = table["dependencies"], table["optional-dependencies"]
    assert isinstance(required, list)
    assert isinstance(extras, dict)
    optional = [line for extra in ("search", "cluster", "gpu") for line in extras[extra]]
    declared = {canonical(line) for line in [*required, *optional]}
    homes = metadata.packages_distributions()
    for name, where in imported_top_levels().items():
        if name in sys.stdlib_module_names or name == "hetsgd":
            continue
        distributions = {canonical(home) for home in homes.get(name, [])}
        assert distributions & declared, f"{where} imports {name}, which pyproject.toml does not declare"


def test_every_requirement_is_pinned_exactly_once_and_to_no_local_build() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    for line in pins:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*", line), line
    names = [canonical(line) for line in pins]
    assert len(names) == len(set(names))
    table = project()
    required, extras = table["dependencies"], table["optional-dependencies"]
    assert isinstance(required, list)
    assert isinstance(extras, dict)
    for line in [*required, *(line for extra in extras.values() for line in extra)]:
        assert canonical(line) in names, f"{line} of pyproject.toml has no pin in constraints.txt"
    assert "torch==2.13.0" in pins
