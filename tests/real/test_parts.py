"""A data set kept as CSR trains as its dense twin does: bit for bit where it is densified, else to rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.plan import Plan
from hetsgd.models.workload import Workload
from hetsgd.real import train, warm_start
from hetsgd.real.features import CsrFeatures, room_for
from hetsgd.real.parts import check_data, parts_of, share_data, shared_parts
from hetsgd.real.replay import ReplayLearner
from hetsgd.real.rows import EpochRows, rows_at
from hetsgd.real.sparse_batch import SparseBatch
from hetsgd.sim import simulate
from tests.real.small_runs import Bench

pytestmark = pytest.mark.usefixtures("watchdog")

FEATURES = 200


def twins(density: float, *, multilabel: bool = False) -> tuple[Dataset, Dataset]:
    """The same rows dense and as CSR."""
    rng = np.random.default_rng(4)
    x = (rng.random((330, FEATURES)) * (rng.random((330, FEATURES)) < density)).astype(np.float32)
    scores = x @ rng.normal(size=(FEATURES, 2))
    y: Any = (scores > 0).astype(np.float32) if multilabel else scores.argmax(axis=1).astype(np.int64)
    dense = Dataset(
        name="d", train_x=x[:300], train_y=y[:300], test_x=x[300:], test_y=y[300:], classes=2, multilabel=multilabel,
        source="made",
    )  # fmt: skip
    return dense, replace(dense, train_x=csr_array(x[:300]), test_x=csr_array(x[300:]))


def shape(data: Dataset) -> dict[str, Any]:
    loss = "sigmoid" if data.multilabel else "softmax"
    return {"hidden": (8, 8), "density": data.density, "sparse": data.sparse, "loss": loss}


def plan(data: Dataset, policy: str, **options: Any) -> Plan:
    keys = {"hogwild": {"cpu_batch": 4}, "minibatch": {"accelerator_batch": 32}, "hogbatch": {"accelerator_batch": 32}}
    return Bench(data).plan(policy, keys=keys[policy], workload=shape(data), **options)


@pytest.fixture(scope="module")
def warm() -> Iterator[None]:
    with warm_start():
        yield


RUNS = [("hogwild", 1, ()), ("minibatch", 0, ("acc0",))]


@pytest.mark.parametrize("order", ["shuffled", "file"])
@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize(("policy", "lanes", "accelerators"), RUNS)
@pytest.mark.usefixtures("warm")
def test_a_densified_set_trains_bit_for_bit_as_its_dense_twin(
    policy: str, lanes: int, accelerators: tuple[str, ...], multilabel: bool, order: Any
) -> None:
    for engine in ("sim", "real"):
        found = []
        for data in twins(0.3, multilabel=multilabel):
            of = plan(data, policy, lanes=lanes, accelerators=accelerators, order=order)
            assert not of.workload.multiplies_sparse
            if engine == "sim":
                learner = ReplayLearner(of, data)
                trace = simulate(of, learner)
                found.append((learner.parameters, trace["evaluations"]))
            else:
                trained = train(of, data)
                found.append((trained.parameters, trained.trace["evaluations"]))
        (one, losses), (other, other_losses) = found
        assert np.array_equal(one, other)
        for column in ("update", "train", "test", "train_score", "test_score"):
            assert np.array_equal(losses[column], other_losses[column])
        assert losses["train"][-1] < losses["train"][0]


@pytest.mark.usefixtures("warm")
def test_a_set_multiplied_sparse_trains_as_its_dense_twin_to_rounding() -> None:
    dense, sparse = twins(0.02)
    for policy, lanes, accelerators in RUNS:
        plans = [plan(data, policy, lanes=lanes, accelerators=accelerators) for data in (dense, sparse)]
        assert plans[1].workload.multiplies_sparse
        learners = [ReplayLearner(of, data) for of, data in zip(plans, (dense, sparse), strict=True)]
        for of, learner in zip(plans, learners, strict=True):
            simulate(of, learner)
        trained = train(plans[1], sparse).parameters
        expected = learners[0].parameters
        for ours in (learners[1].parameters, trained):
            np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-5)


def test_many_lanes_replayed_sparse_equal_many_lanes_replayed_dense() -> None:
    parameters = []
    dense, sparse = twins(0.02)
    timed = plan(sparse, "hogbatch", lanes=6)  # one order of events for both
    for data in (dense, sparse):
        learner = ReplayLearner(plan(data, "hogbatch", lanes=6), data)
        simulate(timed, learner)
        parameters.append(learner.parameters)
    np.testing.assert_allclose(parameters[1], parameters[0], rtol=1e-3, atol=1e-5)


def test_batches_in_shared_memory_are_those_of_the_data_set() -> None:
    dense, sparse = twins(0.02)
    rows = torch.tensor([5, 5, 299, 0])
    workload = Bench(sparse).plan("hogwild", workload=shape(sparse)).workload
    expected = torch.from_numpy(dense.train_x)
    for multiply in (True, False):
        train_part = shared_parts(share_data(workload, sparse), workload, multiply=multiply).train
        for wanted in (slice(7, 12), slice(3, 4), rows):
            x, y = train_part.take(wanted)
            assert isinstance(x, SparseBatch) == multiply
            if isinstance(x, SparseBatch):
                out = torch.empty(x.shape)
                x.times(torch.eye(FEATURES), None, out)
                x = out
            assert torch.equal(x, expected[wanted])
            assert torch.equal(y, torch.from_numpy(dense.train_y)[wanted])
        if not multiply:
            x_BF, y_B = torch.empty((4, FEATURES)), torch.empty(4, dtype=torch.int64)
            train_part.put(rows, x_BF, y_B)
            assert torch.equal(x_BF, expected[rows])


def test_a_sparse_set_takes_the_memory_of_its_values() -> None:
    dense, sparse = twins(0.02)
    sizes = []
    for data in (dense, sparse):
        workload = Bench(data).plan("hogwild", workload=shape(data)).workload
        sizes.append(share_data(workload, data).layout.size_bytes)
        stored = (data.rows + data.test_rows) * workload.stored_row_bytes
        assert sizes[-1] == pytest.approx(stored, rel=0.05)
    assert sizes[1] < sizes[0] / 10


@pytest.mark.parametrize("field", ["rows", "test_rows", "features", "outputs", "sparse"])
def test_a_workload_of_other_data_is_refused(field: str) -> None:
    data = twins(0.3)[0]
    given = {"rows": 300, "test_rows": 30, "features": FEATURES, "outputs": 2, "sparse": False}
    given[field] += 1 if field != "sparse" else True
    other = Workload(name="w", dataset="d", hidden=(4,), **given)  # type: ignore[arg-type] # one field of another type
    with pytest.raises(ValueError, match=rf"workload\.{field} must be that of the data set d"):
        check_data(other, data)
    with pytest.raises(ValueError, match="resolve the workload against the data set that is loaded"):
        parts_of(data, other)


def test_positions_of_an_order_are_its_rows() -> None:
    order = torch.tensor([4, 2, 0, 1, 3])
    assert rows_at(None, 1, 4) == slice(1, 4)
    assert rows_at(order, 1, 2) == slice(2, 3)
    several = rows_at(order, 1, 4)
    assert isinstance(several, torch.Tensor)
    assert several.tolist() == [2, 0, 1]


def test_spans_that_do_not_follow_each_other_are_joined() -> None:
    for order in ("file", "shuffled"):
        rows = EpochRows(10, seed=0, order=order)
        numbers = [list(range(10)) if kept is None else kept.tolist() for kept in (rows.order(0), rows.order(1))]
        assert taken(rows.at_all([(0, 1, 3), (0, 3, 5)])) == numbers[0][1:5]
        assert taken(rows.at_all([(0, 1, 3), (1, 3, 5)])) == numbers[0][1:3] + numbers[1][3:5]
        assert taken(rows.at_all([(0, 4, 6), (0, 1, 2)])) == numbers[0][4:6] + numbers[0][1:2]


def taken(rows: slice | torch.Tensor) -> list[int]:
    return list(range(10)[rows]) if isinstance(rows, slice) else rows.tolist()


def test_a_densified_batch_reuses_its_memory() -> None:
    features = parts_of(*pair()).train.features
    assert isinstance(features, CsrFeatures)
    first, second = features.take(slice(0, 5)), features.take(slice(100, 105))
    assert isinstance(first, torch.Tensor)
    assert isinstance(second, torch.Tensor)
    assert first.data_ptr() == second.data_ptr()
    assert room_for(5) == 8


def pair() -> tuple[Dataset, Workload]:
    data = twins(0.3)[1]
    return data, Bench(data).plan("hogwild", workload=shape(data)).workload
