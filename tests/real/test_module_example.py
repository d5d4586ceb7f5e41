"""The example of docs/modules.md is run as it stands."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from hetsgd.models.machine_local import available_cores

DOCS = Path(__file__).parents[2] / "docs" / "modules.md"

pytestmark = [
    pytest.mark.usefixtures("watchdog"),
    pytest.mark.skipif(available_cores() < 2, reason="the example uses a core for each of two workers"),
]


def test_the_example_learns_the_digits() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), flags=re.DOTALL)
    said: list[float] = []
    exec(compile(example, str(DOCS), "exec"), {"print": said.append, "__name__": "example"})
    (loss,) = said
    assert loss < 0.5 * math.log(10.0)
