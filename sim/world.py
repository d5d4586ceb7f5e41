"""What the parts of one simulated run share: the clock, the capacities, the learner and the version of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import simpy

from hetsgd.models.learner import Learner
from hetsgd.models.machine import Machine, Socket
from hetsgd.models.plan import Plan
from hetsgd.models.policy import Evaluate, Loss, Merge, Result, Seat
from hetsgd.sim.fluid import Shared, Stream
from hetsgd.sim.record import Recorder


class Desk(Protocol):
    """Where workers and the merge place report to: the engine."""

    def may_start(self, seat: Seat) -> bool:
        """Whether the seat may read the model: no merge with its own results is still to land."""
        ...

    def report(self, result: Result) -> None:
        """An assignment has ended."""
        ...

    def loss_known(self, seat: Seat, order: Evaluate, loss: Loss) -> None:
        """An evaluation has ended."""
        ...

    def landed(self, merge: Merge, version: int, start_s: float, seats: Sequence[Seat]) -> None:
        """A merge of results of these seats has taken effect."""
        ...


class World:
    """The run's clock, its shared capacities and the version of the global model."""

    def __init__(self, plan: Plan, learner: Learner, recorder: Recorder, desk: Desk) -> None:
        self.env = simpy.Environment()
        self.plan = plan
        self.learner = learner
        self.recorder = recorder
        self.desk = desk
        self.version = 0
        self.timers = 0
        machine = plan.machine
        self.memories = {socket.name: Shared(self.env, socket.dram_bandwidth_bytes_per_s) for socket in machine.sockets}
        # Work that draws on nothing shared: each job takes its own time.
        self.unshared = Shared(self.env, float("inf"))
        self.seconds = Stream(1.0)
        self.home: Socket = machine.sockets[0]
        self.host_copy = Stream(self.home.core_bandwidth_bytes_per_s)
        self.flops_per_row = plan.workload.step_flops(1)

    @property
    def machine(self) -> Machine:
        """The machine of the run."""
        return self.plan.machine

    @property
    def home_memory(self) -> Shared:
        """The DRAM that the global model lies in (of the first socket)."""
        return self.memories[self.home.name]

    def after(self, delay_s: float, action: Callable[[simpy.Event], None]) -> simpy.Event:
        """Do something in `delay_s` seconds; the event is handed to it."""
        self.timers += 1
        event = self.env.timeout(delay_s)
        event.callbacks.append(action)
        return event

    @property
    def events(self) -> int:
        """Events so far."""
        return self.timers + self.unshared.events + sum(memory.events for memory in self.memories.values())
