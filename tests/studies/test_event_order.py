"""Orders of events of stored runs: replayed once, kept in their folders, and beside what was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hetsgd.models.run import StopRule
from hetsgd.studies.case import Case
from hetsgd.studies.event_order import IMPLIED, implied_record, with_event_orders
from hetsgd.studies.execute import run_simulated
from hetsgd.studies.record import StoredRun, read_run
from hetsgd.studies.resolve import Ask, resolve

SETTINGS = (("run.evaluation", "deferred"), ("run.evaluate_every_s", "0.0001"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Case, StoredRun]:
    """A run that the simulator made: its order of events implies its own losses."""
    ask = Ask(
        machine="aws-p3.16xlarge", workload="quickstart", policy="hogwild", settings=SETTINGS,
        stop=StopRule(updates=300), seed=1,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("run")
    finished = run_simulated(resolve(ask))
    finished.save(folder, finished.record())
    case = Case(
        role="measured", machine=ask.machine, workload=ask.workload, label="hogwild", policy="hogwild", seed=1,
        settings=SETTINGS,
    )  # fmt: skip
    return case, read_run(folder)


def test_the_losses_that_an_order_implies_stand_beside_those_of_the_run(run: tuple[Case, StoredRun]) -> None:
    case, stored = run
    ask = Ask(
        machine=case.machine, workload=case.workload, policy=case.policy, settings=SETTINGS,
        stop=StopRule(updates=300), seed=1,
    )  # fmt: skip
    (found,) = with_event_orders({case: stored}, {case: resolve(ask).plan}, 1).values()
    losses = [point["train"] for point in stored.record["loss"]]
    assert len(losses) > 2
    assert found.record[IMPLIED] == pytest.approx(losses, rel=1e-4)
    implied = implied_record(found.record)
    assert implied is not None
    assert implied["loss"][1]["t_s"] == stored.record["loss"][1]["t_s"]
    # A second start takes it from the folder, whatever it would need otherwise.
    (again,) = with_event_orders({case: stored}, {}, 1).values()
    assert again.record[IMPLIED] == found.record[IMPLIED]


def test_a_run_without_a_trace_is_left_as_it_was(
    run: tuple[Case, StoredRun], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case, stored = run
    bare = replace(stored, folder=tmp_path)
    plan = resolve(Ask(machine=case.machine, workload=case.workload, policy="hogwild", stop=StopRule(updates=300))).plan
    (found,) = with_event_orders({case: bare}, {case: plan}, 1).values()
    assert IMPLIED not in found.record
    assert implied_record(found.record) is None
    assert "hogwild on aws-p3.16xlarge, quickstart, seed 1 is not replayed" in capsys.readouterr().err
