"""Where these tests find full data sets, and a cache of their own."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hetsgd-cache")


@pytest.fixture
def full_sets(monkeypatch: pytest.MonkeyPatch, session_cache: Path) -> Path:
    """The folder of full data sets; tests that need it skip where there is none."""
    if not SHARED.is_dir():
        pytest.skip("no folder of full data sets beside the repository")
    monkeypatch.setenv("HETSGD_DATA", str(SHARED))
    monkeypatch.setenv("HETSGD_CACHE", str(session_cache))
    return SHARED


@pytest.fixture
def no_sets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any full data set and with an empty cache; returns the cache folder."""
    monkeypatch.delenv("HETSGD_DATA", raising=False)
    monkeypatch.setenv("HETSGD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
