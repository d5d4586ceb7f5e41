"""Energy and cost in `run.json`, in the summary and in the tables of studies."""

from __future__ import annotations

import pytest

from hetsgd.models.energy import NOT_KNOWN, Spent
from hetsgd.models.run import StopRule
from hetsgd.studies.execute import run_simulated
from hetsgd.studies.resolve import Ask, resolve
from hetsgd.studies.spending import spent_keys, until
from hetsgd.studies.summary import summary_rows


def test_keys_are_there_only_where_the_machine_gives_them() -> None:
    assert spent_keys(NOT_KNOWN) == {}
    assert spent_keys(Spent(cost_usd=2.0, cost_to_loss_usd={})) == {"cost_usd": 2.0, "cost_to_loss_usd": None}
    found = spent_keys(Spent(energy_j=5.0, energy_to_loss_j={0.5: 1.0, 0.9: None}))
    assert found == {"energy_j": 5.0, "energy_to_loss_j": {"0.5": 1.0, "0.9": None}}


def test_a_run_on_a_machine_with_a_price_costs_its_time() -> None:
    settings = (
        ("machine.price_usd_per_hour", 36.0), ("workload.rows", 20_000),
        *((f"machine.{part}.idle_watts", 100.0) for part in ("cpu0", "cpu1", "gpu0")),
        *((f"machine.{part}.busy_watts", 100.0) for part in ("cpu0", "cpu1", "gpu0")),
    )  # fmt: skip
    ask = Ask(
        machine="aws-p3.16xlarge", workload="covtype", policy="hogbatch", learner="none", settings=settings,
        stop=StopRule(epochs=1),
    )  # fmt: skip
    record = run_simulated(resolve(ask)).record()
    assert record["cost_usd"] == pytest.approx(record["elapsed_s"] / 100.0)
    assert record["energy_j"] == pytest.approx(300.0 * record["elapsed_s"])
    assert record["energy_to_loss_j"] is None
    assert {"energy", "cost"} <= {name for name, _ in summary_rows(record)}
    assert until(record, "cost_usd", record["elapsed_s"] / 2) == pytest.approx(record["cost_usd"] / 2)
    assert until(record, "cost_usd", None) is None
