"""The pages of docs/ are found from README and from their index, links lead somewhere, and help is readable."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hetsgd.studies.program import app

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))


def links(page: Path) -> list[str]:
    """Targets of the links of a page that are files of the repository."""
    found = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    return [target.partition("#")[0] for target in found if "://" not in target]


@pytest.mark.parametrize("index", [ROOT / "README.md", ROOT / "docs" / "README.md"], ids=["README", "index"])
def test_every_page_is_linked(index: Path) -> None:
    linked = {(index.parent / target).resolve() for target in links(index)}
    assert set(PAGES) - {index} <= linked


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CHANGELOG.md", *PAGES], ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    missing = [target for target in links(page) if not (page.parent / target).exists()]
    assert not missing


def test_every_command_occurs_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in ("list", "simulate", "train", "validate", "calibrate", "pilots", "study run", "paper", "compare"):
        assert re.search(rf"hetsgd {command}\b", text), command
    for word in ("surrogate", "--replicas", "trace --perfetto"):
        assert word in text, word


def test_paragraphs_of_help_flow_and_examples_stay() -> None:
    """No line break of the source is left in a paragraph, whatever the width of the terminal."""
    for info in (info for info in app.registered_commands if info.name is not None):
        *paragraphs, example = (info.help or "").split("\n\n")
        assert all("\n" not in text for text in paragraphs), info.name
        assert example.startswith("\b\n  hetsgd")
