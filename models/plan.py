"""One run, fully resolved: what both engines take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hetsgd.models.machine import Machine
from hetsgd.models.policy import Fleet, Recipe
from hetsgd.models.run import Progress, RunSettings
from hetsgd.models.workload import Workload

ProgressSink = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A policy on a machine with a workload. `policy` is the name it was asked for under."""

    machine: Machine
    workload: Workload
    policy: str
    recipe: Recipe
    run: RunSettings

    def fleet(self) -> Fleet:
        """The workers of this run that the policy uses; ValueError when the machine lacks a kind it needs."""
        try:
            members = self.machine.members(self.recipe.kinds, self.run.lanes)
        except ValueError as error:
            raise ValueError(f"policy {self.policy}: {error}; give the machine one, or take another policy") from error
        return Fleet(
            members=members,
            rows=self.workload.rows,
            learning_rate=self.run.learning_rate,
            momentum=self.run.momentum,
            lookahead=min(self.run.lookahead, self.recipe.max_lookahead),
        )
