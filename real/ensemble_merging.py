"""Merges of replicas that differ in their learning rate.

P parameters of one replica, R replicas, N = R P.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.typing import NDArray

from hetsgd.models.merging import Input, MergeState
from hetsgd.models.policy import Merge
from hetsgd.real.ensemble_network import EnsembleNetwork

Vector = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateScales:
    """Learning rate of each replica over that of the plan, and whether elastic forces follow it."""

    of_replica: tuple[float, ...]
    elastic_follows: bool

    @property
    def same(self) -> bool:
        """Whether all replicas have the rate of the plan."""
        return all(scale == 1.0 for scale in self.of_replica)


class EnsembleMergeState(MergeState):
    """`MergeState` for vectors (N,).

    Most rules are the same for every replica, since the network scales the gradients. Where the learning rate enters
    in another way (delay compensation squares a gradient, an elastic force may be rate x rho) the rule is applied to
    one replica after the other.
    """

    def __init__(self, network: EnsembleNetwork, scales: RateScales, *, weight_decay: float) -> None:
        super().__init__(weight_decay=weight_decay)
        self._network = network
        self._scales = scales
        self._alone = [MergeState(weight_decay=weight_decay) for _ in scales.of_replica]

    def apply(
        self, merge: Merge, model: Vector, inputs: Sequence[Input], replicas: Mapping[str, Vector] | None = None
    ) -> None:
        """Change `model` (N,) in place by the merge, see `MergeState.apply`."""
        elastic = merge.rule == "elastic" and self._scales.elastic_follows
        if self._scales.same or not (elastic or (merge.rule == "gradient" and merge.compensate)):
            super().apply(merge, model, inputs, replicas)
            return
        for index, (state, scale) in enumerate(zip(self._alone, self._scales.of_replica, strict=True)):
            self._apply_to(state, index, scale, merge, model, inputs)
        for name in merge.write_back if replicas is not None else ():
            (replicas or {})[name][:] = model

    def _apply_to(
        self, state: MergeState, index: int, scale: float, merge: Merge, model: Vector, inputs: Sequence[Input]
    ) -> None:
        network, put_back = self._network, list[Callable[[], None]]()

        def own(vector_N: Vector | None, *, moves: bool = False, divide: float = 1.0) -> Vector | None:
            if vector_N is None:
                return None
            whole = torch.from_numpy(vector_N)
            part = torch.empty(network.parameters // network.replicas, dtype=network.dtype)
            network.replica(whole, index, part)
            part /= divide
            if moves:
                put_back.append(lambda: network.put_replica(whole, index, part))
            return part.numpy()

        # One replica behind several inputs stays one.
        moved = {id(item.replica): own(item.replica, moves=True) for item in inputs if item.replica is not None}
        singles = [
            Input(
                gradient=own(item.gradient, divide=scale), replica=moved.get(id(item.replica)), start=own(item.start),
                read=own(item.read),
            )
            for item in inputs
        ]  # fmt: skip
        target = own(model, moves=True)
        if target is None:
            return
        state.apply(replace(merge, rate=merge.rate * scale), target, singles)
        for write in put_back:
            write()
