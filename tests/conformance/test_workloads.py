"""The built-in workloads on their real data, on both engines: the loss falls within a few hundred updates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsgd.models.data.known import KNOWN
from hetsgd.models.invariants import check
from hetsgd.models.run import StopRule
from hetsgd.models.workload_file import LoadedWorkload, load_workload
from hetsgd.real import train, warm_start
from hetsgd.real.replay import ReplayLearner
from hetsgd.sim import simulate
from tests.real.small_runs import Bench

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
UPDATES = 300

pytestmark = pytest.mark.usefixtures("watchdog")


@pytest.fixture(scope="module")
def data_at_hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The full data sets and a cache of their own for these tests."""
    with pytest.MonkeyPatch.context() as patch, warm_start():
        patch.setenv("HETSGD_DATA", str(SHARED))
        patch.setenv("HETSGD_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def loaded(name: str, **overrides: Any) -> LoadedWorkload:
    if not (SHARED / name).is_dir():
        pytest.skip(f"data set {name} is not on this machine")
    return load_workload(name, overrides)


def learns(of: LoadedWorkload, updates: int = UPDATES) -> None:
    """Both engines reduce the loss of the common initial model with the file's own learning rate."""
    data = of.data()
    plan = Bench(data).plan(
        "hogbatch", lanes=1, keys={"cpu_batch": 4, "accelerator_batch": 32}, stop=StopRule(updates=updates), **of.run
    )
    plan = replace(plan, workload=of.workload)
    first = set()
    for trace in (simulate(plan, ReplayLearner(plan, data)), train(plan, data).trace):
        assert check(trace, rows=data.rows) == []
        losses = trace["evaluations"]["train"]
        assert np.isfinite(losses).all()
        assert losses[-1] < 0.9 * losses[0]
        assert trace.totals.updates["cpu"] > 0
        assert trace.totals.updates["accelerator"] > 0
        first.add(round(float(losses[0]), 4))
    assert len(first) == 1


@pytest.mark.usefixtures("data_at_hand")
@pytest.mark.parametrize("name", ["a9a", "letter", "mnist10k", "tmc2007_500"])
def test_a_small_net_learns_its_data_on_both_engines(name: str) -> None:
    of = loaded(name)
    given = load_workload(name, data=False).workload  # the shape in the file is that of the data
    for field in ("rows", "test_rows", "features", "outputs", "loss", "sparse"):
        assert getattr(given, field) == getattr(of.workload, field), field
    assert of.workload.density == pytest.approx(given.density, abs=5e-4)
    learns(of)


@pytest.mark.usefixtures("data_at_hand")
def test_w8a_learns_on_both_engines_with_narrow_layers() -> None:
    of = loaded("w8a", hidden="32x2")
    assert (of.workload.rows, of.workload.features, of.workload.outputs) == (49_749, 300, 2)
    learns(of)


@pytest.mark.usefixtures("data_at_hand")
def test_tags_as_sparse_rows_learn_on_both_engines() -> None:
    of = loaded("tmc2007_500", sparse="true")
    assert of.data().sparse
    assert not of.workload.multiplies_sparse
    learns(of)


@pytest.mark.slow
@pytest.mark.usefixtures("data_at_hand")
def test_full_covtype_learns_on_both_engines() -> None:
    of = loaded("covtype", hidden="64x2")
    assert of.workload.rows == KNOWN["covtype"].rows
    learns(of)


@pytest.mark.slow
@pytest.mark.usefixtures("data_at_hand")
def test_the_paper_net_learns_w8a_on_both_engines() -> None:
    learns(loaded("w8a"), updates=100)
