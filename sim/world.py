"""What the parts of one simulated run share: the clock, the capacities, the learner and the version of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from hetsgd.models.calibration import Calibration
from hetsgd.models.learner import Learner
from hetsgd.models.machine import Machine, Socket
from hetsgd.models.plan import Plan
from hetsgd.models.policy import Evaluate, Loss, Merge, Result, Seat
from hetsgd.sim.clock import Clock
from hetsgd.sim.fluid import Shared, Stream
from hetsgd.sim.record import Recorder


class Desk(Protocol):
    """Where workers and the merge place report to: the engine."""

    @property
    def may_start(self) -> Callable[[Seat], bool]:
        """Whether a seat may read the model: no merge with its own results is still to land."""
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
        self.env = Clock()
        self.plan = plan
        self.learner = learner
        self.recorder = recorder
        self.desk = desk
        self.version = 0
        machine = plan.machine
        self.memories = {socket.name: Shared(self.env, socket.dram_bandwidth_bytes_per_s) for socket in machine.sockets}
        # Work that draws on nothing shared: each job takes its own time.
        self.unshared = Shared(self.env, float("inf"))
        self.seconds = Stream(1.0)
        self._noted: set[tuple[str, str]] = set()
        self._streams: dict[tuple[Shared, float, float], Stream] = {}
        self.home: Socket = machine.sockets[0]
        self.home_memory = self.memories[self.home.name]
        """The DRAM that the global model lies in (of the first socket)."""
        self.host_copy = Stream(self.home.core_bandwidth_bytes_per_s)
        members = plan.fleet().members
        # Cores that compute at the same time, as measured step times know them: lanes, and stand-ins.
        self.lanes = sum(member.lanes for member in members if member.kind == "cpu")
        devices = [machine.accelerator(member.name) for member in members if member.kind == "accelerator"]
        self.stand_ins = sum(device.stand_in for device in devices)
        self.flops_per_row = plan.workload.step_flops(1)
        self.row_bytes = plan.workload.row_bytes
        self.model_bytes = plan.workload.model_bytes

    @property
    def machine(self) -> Machine:
        """The machine of the run."""
        return self.plan.machine

    def note_range(self, device: str, calibration: Calibration | None, batch: int, lanes: int = 1) -> None:
        """Note in the trace where a step is beyond what was calibrated, once for each device and axis."""
        if calibration is None:
            return
        for text in calibration.outside(self.plan.workload, batch, lanes=lanes):
            axis = text.partition(" ")[0]
            if (device, axis) not in self._noted:
                self._noted.add((device, axis))
                self.recorder.trace.notes.append(f"{device} is used beyond its calibration: {text}")

    def stream(self, shared: Shared, cap: float, weight: float = 1.0) -> Stream:
        """The stream of all jobs with this cap and weight on a capacity: equal jobs are served together."""
        known = self._streams.get((shared, cap, weight))
        if known is None:
            known = self._streams[shared, cap, weight] = Stream(cap, weight)
        return known
