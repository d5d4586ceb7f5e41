"""The example of docs/modules.md is run as it stands: on the digits where they are, and on a few made ones always."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetsgd as h
from hetsgd.models.data.catalogue import load
from hetsgd.models.data.dataset import Dataset, MissingDataError
from hetsgd.models.machine_local import available_cores

DOCS = Path(__file__).parents[2] / "docs" / "modules.md"

SHARED = Path(__file__).parents[2].parent / "shared" / "data"

pytestmark = [
    pytest.mark.usefixtures("watchdog"),
    pytest.mark.skipif(available_cores() < 2, reason="the example uses a core for each of two workers"),
]


def example() -> str:
    (found,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), flags=re.DOTALL)
    return str(found)


def run(monkeypatch: pytest.MonkeyPatch, data: Dataset) -> list[float]:
    """What the example prints, with this data set in place of the one that it loads."""
    said: list[float] = []
    monkeypatch.setattr(h, "load_dataset", lambda *_, **__: data, raising=False)
    exec(compile(example(), str(DOCS), "exec"), {"print": said.append, "__name__": "example"})
    return said


def test_the_example_runs_on_made_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten classes of pictures, each with a bright row of its own."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 2200)
    x = 0.1 * rng.random((2200, 28, 28), dtype=np.float32)
    x[np.arange(2200), 2 * y + 4] += 1.0
    rows: dict[str, Any] = {"train_x": x[:2000].reshape(2000, -1), "test_x": x[2000:].reshape(200, -1)}
    data = Dataset(
        name="made", train_y=y[:2000], test_y=y[2000:], classes=10, multilabel=False, source="made", **rows
    )  # fmt: skip
    (loss,) = run(monkeypatch, data)
    assert loss < 0.95 * float(np.log(10.0))


@pytest.mark.slow
def test_the_example_learns_the_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HETSGD_DATA", str(SHARED))
    try:
        data = load("mnist10k", sparse=False)
    except MissingDataError as error:
        pytest.skip(str(error))
    (loss,) = run(monkeypatch, data)
    assert loss < 1.0
