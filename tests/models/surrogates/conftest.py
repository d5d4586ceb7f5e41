"""A short plan on a machine of a few lanes, and a recorded run of any policy on it."""

from collections.abc import Callable
from typing import Any

import pytest

from hetsgd.models.plan import Plan
from hetsgd.models.run import StopRule
from hetsgd.studies.resolve import Ask, resolve


@pytest.fixture
def plan_of() -> Callable[..., Plan]:
    """A resolved plan of the quickstart net; keywords are settings with `__` for the dot."""

    def build(policy: str, *, updates: int = 200, seed: int = 0, workload: str = "quickstart", **settings: Any) -> Plan:
        pairs = tuple((key.replace("__", "."), value) for key, value in settings.items())
        ask = Ask(machine="ucmerced-k80", workload=workload, policy=policy, settings=pairs, learner="none",
                  stop=StopRule(updates=updates), seed=seed)  # fmt: skip
        return resolve(ask).plan

    return build
