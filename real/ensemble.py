"""Ensemble replay: R replicas that share one order of events advance together by batched matrix products.

One simulation drives them. What they share is everything that the simulator decides: which positions of an epoch
each assignment covers, when each piece reads and writes, and all times with the noise of the plan's seed. What each
has for itself: the row order (which rows stand at those positions) and the initial model of its seed, and its
learning rate. Curves of such replicas therefore spread less than those of runs whose timing noise differs as well.

P parameters, R replicas, N = R P.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.initial import initial_parameters
from hetsgd.models.merging import MergeState
from hetsgd.models.plan import Plan
from hetsgd.models.policy import Loss
from hetsgd.real.ensemble_merging import EnsembleMergeState
from hetsgd.real.ensemble_network import EnsembleNetwork
from hetsgd.real.ensemble_rates import rate_scales
from hetsgd.real.ensemble_rows import EnsemblePart, EnsemblePieces, EnsembleRows
from hetsgd.real.gradient_pieces import GradientPieces
from hetsgd.real.loss_sum import LossSum
from hetsgd.real.losses import loss_of_sums, sum_rows
from hetsgd.real.network import Network
from hetsgd.real.parts import parts_of
from hetsgd.real.replay import LaneReads, ReplayLearner


class EnsembleReplay(ReplayLearner):
    """Implements `hetsgd.models.learner.Learner` for replicas of one run.

    `seeds`: one for each replica, for its row order and initial model; `learning_rates`: one for each (None: that of
    the plan). The engine is told the mean of the losses that are finite; a run has diverged when no replica's loss is
    finite. `curves` has every loss of every replica. Replica r is what `ReplayLearner` computes in the same order of
    events with seed and learning rate of the replica, but for rounding.

    Raises ValueError where replicas cannot share one order of events (a policy that decides by losses, a target
    loss, a policy that does more with a learning rate than scale its rates by it) and where the data set is not that
    of the plan's workload. `lanes` and `most_bytes` are those of `ReplayLearner`. Features without their zeros are
    filled up batch by batch.
    """

    name = "replay"

    def __init__(
        self, plan: Plan, dataset: Dataset, *, seeds: Sequence[int], learning_rates: Sequence[float] | None = None,
        threads: int = 1, lanes: LaneReads = "each", most_bytes: int | None = None,
    ) -> None:  # fmt: skip
        if not seeds:
            raise ValueError("replicas: seeds must name at least one, got none")
        rates = [plan.run.learning_rate] * len(seeds) if learning_rates is None else list(learning_rates)
        if len(rates) != len(seeds):
            raise ValueError(f"replicas: one learning rate for each seed, got {len(rates)} for {len(seeds)}")
        if not all(rate > 0.0 and math.isfinite(rate) for rate in rates):
            raise ValueError(f"replicas: learning rates must be > 0 and finite, got {rates}")
        if not plan.workload.fully_connected:
            raise ValueError(f"replicas: only fully connected networks have them, {plan.workload.name} is a module")
        self.seeds = tuple(seeds)
        self.learning_rates = tuple(rates)
        self.curves: tuple[list[Loss], ...] = tuple([] for _ in seeds)
        self._known_losses: tuple[int, list[tuple[LossSum, LossSum]]] | None = None
        self._scales = rate_scales(plan, rates)
        super().__init__(plan, dataset, threads=threads, lanes=lanes, most_bytes=most_bytes)

    def _prepare(self, plan: Plan, dataset: Dataset) -> tuple[GradientPieces, Tensor, MergeState]:
        workload, run = plan.workload, plan.run
        self._data = parts_of(dataset, workload, dense=True)
        self._network = Network(workload, max_batch=1)
        self._one_P = self._network.vector()
        network = self._ensemble = EnsembleNetwork(
            workload, replicas=len(self.seeds), scales=self._scales.of_replica, max_batch=max(workload.rows, 1)
        )  # fmt: skip
        rows = EnsembleRows(workload.rows, seeds=self.seeds, order=run.order)
        pieces = EnsemblePieces(
            network, EnsemblePart(self._data.train, len(self.seeds)), rows, most_bytes=self._most_bytes
        )
        initial_N = network.vector()
        for index, seed in enumerate(self.seeds):
            network.put_replica(initial_N, index, torch.from_numpy(initial_parameters(workload, seed)))
        return pieces, initial_N, EnsembleMergeState(network, self._scales, weight_decay=run.weight_decay)

    @property
    def parameters(self) -> NDArray[Any]:
        """A copy of the global models (R, P) as they are now."""
        with self._threads:
            flat_N = torch.from_numpy(self._global.array)
            models_RP = torch.empty((len(self.seeds), self._one_P.shape[0]), dtype=self._one_P.dtype)
            for index in range(len(self.seeds)):
                self._ensemble.replica(flat_N, index, models_RP[index])
            return models_RP.numpy()

    def evaluate(self, *, at_s: float, epoch: int, update: int) -> Loss:
        """The mean over the replicas whose loss is finite; each replica's own goes to its curve."""
        losses = [
            loss_of_sums(train, test, at_s=at_s, end_s=at_s, epoch=epoch, update=update)
            for train, test in self._losses_of_all()
        ]
        for curve, loss in zip(self.curves, losses, strict=True):
            curve.append(loss)
        finite = [loss for loss in losses if not loss.diverged]
        if not finite:
            return losses[0]

        def mean(values: list[float]) -> float:
            return math.fsum(values) / len(values)

        return Loss(
            at_s=at_s, epoch=epoch, update=update, end_s=at_s,
            train=mean([loss.train for loss in finite]), test=mean([loss.test for loss in finite]),
            train_score=mean([loss.train_score for loss in finite]),
            test_score=mean([loss.test_score for loss in finite]),
        )  # fmt: skip

    def _losses_of_all(self) -> list[tuple[LossSum, LossSum]]:
        version = self._global.version
        if self._known_losses is None or self._known_losses[0] != version:
            found = []
            with self._threads:
                flat_N = torch.from_numpy(self._global.array)
                for index in range(len(self.seeds)):
                    self._ensemble.replica(flat_N, index, self._one_P)
                    train, test = (
                        sum_rows(self._network, self._one_P, part, 0, part.rows)
                        for part in (self._data.train, self._data.test)
                    )
                    found.append((train, test))
            self._known_losses = (version, found)
        return self._known_losses[1]
