"""What the steps of one processor cost, looked up once for each number of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from hetsgd.models.cost import Load, with_norms
from hetsgd.models.policy import Write
from hetsgd.sim.fluid import Stream
from hetsgd.sim.world import World

Served = TypeVar("Served", bound=Stream | None)


class StepCosts(ABC, Generic[Served]):
    """Amounts of steps, each with the stream that serves it. `bandwidth`: bytes/s at which norms are read."""

    def __init__(self, world: World, bandwidth: float) -> None:
        self._world = world
        self._workload = world.plan.workload
        self._bandwidth = bandwidth
        self._steps: dict[tuple[int, bool], tuple[Served, float]] = {}
        self._measured: dict[tuple[int, int, bool], tuple[Served, float]] = {}

    def step(self, rows: int, gradient: bool) -> tuple[Served, float]:
        """The stream and the amount of one step of `rows` rows; `gradient`: it is handed in, not applied."""
        known = self._steps.get((rows, gradient))
        if known is None:
            known = self._steps[rows, gradient] = self._served(self._load(rows, "gradient" if gradient else "in_place"))
        return known

    def measured(self, rows: tuple[int, int], gradient: bool) -> tuple[Served, float]:
        """The same for a step that also takes the gradient norms of its rows and of so many of them."""
        known = self._measured.get((*rows, gradient))
        if known is None:
            whole, half = self._load(rows[0], "gradient"), self._load(rows[1], "gradient")
            load = self._load(rows[0], "gradient" if gradient else "in_place")
            norms = with_norms(load, whole, half, self._workload, self._bandwidth)
            known = self._measured[(*rows, gradient)] = self._served(norms)
        return known

    @abstractmethod
    def _load(self, rows: int, write: Write) -> Load:
        """What one step of so many rows asks of the processor and its memory."""

    @abstractmethod
    def _served(self, load: Load) -> tuple[Served, float]:
        """The stream that serves a load, and the amount that it takes of it."""
