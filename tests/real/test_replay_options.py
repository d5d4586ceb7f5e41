"""Options of replay: how finely lanes are resolved, and how much memory may be held."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hetsgd.models.footprint import CapacityError
from hetsgd.models.initial import initial_parameters
from hetsgd.models.streams import row_order
from hetsgd.real.ensemble import EnsembleReplay
from hetsgd.real.network import Network
from hetsgd.real.replay import ReplayLearner
from hetsgd.sim import simulate
from tests.real.test_ensemble import ROWS, SEEDS, dataset, plan


def test_together_all_pieces_of_an_assignment_read_the_model_at_its_start() -> None:
    of, data = plan("hogwild", {"cpu_batch": 2, "cpu_steps": 4}, noise=0.4), dataset()
    learner = ReplayLearner(of, data, lanes="together")
    trace = simulate(of, learner)
    network = Network(of.workload, max_batch=ROWS)
    w = torch.from_numpy(initial_parameters(of.workload, SEEDS[0]))
    pieces: dict[int, list[tuple[int, int]]] = {}
    for row in trace["assignments"]:
        pieces[int(row["id"])] = [
            (low, min(low + 2, int(row["stop"]))) for low in range(int(row["start"]), int(row["stop"]), 2)
        ]
    for row in trace["assignments"]:
        order, read, out = row_order(SEEDS[0], int(row["epoch"]), ROWS, "shuffled"), w.clone(), network.vector()
        assert order is not None
        for low, high in pieces[int(row["id"])]:
            index = order[low:high]
            x, y = torch.from_numpy(data.train_x[index]), torch.from_numpy(data.train_y[index])
            network.gradient(read, x, y, out)
            w -= 0.1 * out
    np.testing.assert_allclose(learner.parameters, w.numpy(), rtol=1e-9, atol=1e-11)
    each = ReplayLearner(of, data)
    simulate(of, each)
    assert np.abs(each.parameters - learner.parameters).max() > 1e-3, "lanes of several steps see each other"


def test_together_changes_nothing_where_lanes_take_one_step_side_by_side() -> None:
    of, data = plan("hogbatch", {"cpu_batch": 2, "accelerator_batch": 20}, accelerators=1), dataset()
    found = []
    for lanes in ("each", "together"):
        learner = ReplayLearner(of, data, lanes=lanes)
        simulate(of, learner)
        found.append(learner.parameters)
        assert not learner.held
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-11)
    ensemble = EnsembleReplay(of, data, seeds=SEEDS, lanes="together")
    simulate(of, ensemble)
    np.testing.assert_allclose(ensemble.parameters[0], found[1], rtol=1e-9, atol=1e-11)


def test_a_run_that_holds_more_than_it_may_is_refused() -> None:
    of, data = plan("synchronous", {"cpu_batch": 4, "accelerator_batch": 16}), dataset()
    learner = ReplayLearner(of, data)
    simulate(of, learner)
    needed = learner.held_bytes
    assert 0 < needed < 1_000_000
    again = ReplayLearner(of, data, most_bytes=needed)
    simulate(of, again)
    assert np.array_equal(again.parameters, learner.parameters)
    with pytest.raises(CapacityError, match=f"may take {needed - 1} bytes at once, and the run needs more; use fewer"):
        simulate(of, ReplayLearner(of, data, most_bytes=needed - 1))


def test_options_are_checked() -> None:
    of, data = plan("hogwild"), dataset()
    with pytest.raises(ValueError, match="lanes must be each or together, got 'some'"):
        ReplayLearner(of, data, lanes="some")  # type: ignore[arg-type]  # what is refused
    with pytest.raises(ValueError, match="most_bytes must be >= 1, got 0"):
        ReplayLearner(of, data, most_bytes=0)
