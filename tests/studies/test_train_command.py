"""What `train` says about the hardware before it begins."""

from __future__ import annotations

import pytest

from hetsgd.models import machine_local
from hetsgd.models.run import StopRule
from hetsgd.studies.commands.train import on_hardware
from hetsgd.studies.resolve import Ask


@pytest.mark.parametrize(
    ("policy", "lanes", "told"),
    [("hogbatch", 2, True), ("hogbatch", 1, False), ("hogwild", 2, False)],
    ids=["lanes and a stand-in", "a core each", "no stand-in in use"],
)
def test_workers_that_share_cores_are_told(
    policy: str, lanes: int, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_local, "available_cores", lambda: 2)
    ask = Ask(machine="local", workload="quickstart", policy=policy, learner="real", stop=StopRule(updates=1))
    notices = on_hardware(ask, lanes, "cpu").notices
    words = "2 CPU lanes and 1 stand-in share 2 cores and slow each other down; --cpu-lanes 1 gives each"
    assert any(notice.startswith(words) for notice in notices) == told
