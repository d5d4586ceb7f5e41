"""Elastic averaging SGD, asynchronous (Zhang, Choromanska and LeCun 2015, arXiv:1412.6651)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hetsgd.models.keys import check_keys, key
from hetsgd.models.policies.shared_keys import (
    FAR_AHEAD,
    accelerator_batch,
    accelerator_rate,
    cpu_batch,
    cpu_rate,
    kind_of,
    refuse_momentum,
)
from hetsgd.models.policy import MOST_ROWS, Fleet, Kind, LaneMode, Merge, PolicyError, Result, Schedule, View, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Easgd:
    """Every `steps` local steps: e = a (replica - model), replica -= e, model += e.

    The elastic force a is `alpha`, or learning rate x rho where alpha is 0 (the paper's a = eta rho).
    """

    kinds: ClassVar[tuple[Kind, ...]] = ("cpu", "accelerator")
    lane_modes: ClassVar[tuple[LaneMode, ...]] = ("barrier",)
    max_lookahead: ClassVar[int] = FAR_AHEAD
    reads_losses: ClassVar[bool] = False

    steps: int = key(10, "local steps (of each lane) between two elastic merges", low=1, high=MOST_ROWS)
    alpha: float = key(0.0, "elastic force a; 0: learning rate x rho", low=0.0, high=1.0)
    rho: float = key(1.0, "elastic force per learning rate, used where alpha is 0", low=0.0)
    cpu_batch: int = cpu_batch(16)
    cpu_rate: float = cpu_rate()
    accelerator_batch: int = accelerator_batch(512)
    accelerator_rate: float = accelerator_rate()

    def __post_init__(self) -> None:
        check_keys(self)
        if not self.alpha and not self.rho:
            raise PolicyError("policy.rho must be > 0 where alpha is 0, got 0: nothing would reach the global model")

    def begin(self, fleet: Fleet) -> Schedule:
        """A schedule; PolicyError when the elastic force exceeds 1 or the run has momentum."""
        refuse_momentum(fleet, "easgd", "the elastic force takes the place of a velocity")
        force = self.alpha or fleet.learning_rate * self.rho
        if force > 1.0:
            raise PolicyError(
                f"policy.rho: the elastic force learning rate x rho must be <= 1, got {force:g}; "
                f"lower rho or give policy.alpha"
            )
        return _Elastic(self, fleet, force)


class _Elastic:
    """Ties each replica to the model when it comes in; replicas stay with their workers."""

    def __init__(self, recipe: Easgd, fleet: Fleet, force: float) -> None:
        self._force = force
        self._works: dict[str, Work] = {}
        for name, kind in kind_of(fleet).items():
            batch, scale = recipe.accelerator_batch, recipe.accelerator_rate
            if kind == "cpu":
                batch, scale = recipe.cpu_batch, recipe.cpu_rate
            self._works[name] = Work(
                batch=batch, steps=recipe.steps, rate=fleet.learning_rate * scale, read="own", write="keep",
                reason="local steps",
            )  # fmt: skip

    def next(self, view: View, worker: str) -> Work:
        """The local steps of the worker's class."""
        return self._works[worker]

    def on_result(self, view: View, result: Result) -> Sequence[Merge]:
        """One elastic merge for every visit."""
        merge = Merge(inputs=(result.id,), rule="elastic", weights=(1.0,), rate=self._force, reason="elastic visit")
        return (merge,)
