"""One CPU lane in virtual time, and what its steps cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsgd.models.cost import (
    Load,
    core_share,
    lane_forward,
    lane_step,
    lanes_per_socket,
    weights_tier,
    written_line_s,
)
from hetsgd.models.policy import Assign, Evaluate, Write
from hetsgd.models.trace import Place
from hetsgd.sim.fluid import Stream
from hetsgd.sim.noise import ServiceNoise
from hetsgd.sim.record import COMPUTE, EVALUATE
from hetsgd.sim.step_costs import StepCosts
from hetsgd.sim.world import World

if TYPE_CHECKING:
    from hetsgd.sim.team import CpuTeam


class SocketCosts(StepCosts[Stream]):
    """What steps cost on the lanes of one socket, as amounts of a capacity: DRAM bytes, or seconds where none is drawn.

    A step of D bytes that takes t seconds alone is D bytes at a rate of at most D / t.
    """

    def __init__(self, world: World, index: int) -> None:
        machine, workload = world.machine, world.plan.workload
        self._socket = machine.sockets[index]
        super().__init__(world, self._socket.core_bandwidth_bytes_per_s)
        self._lanes = lanes_per_socket(machine)[index]
        self._tier = weights_tier(machine, workload)
        self._line_s = written_line_s(machine, index)
        self._weight = core_share(self._socket, self._lanes)
        home = machine.sockets[index if machine.weights_on == "interleaved" else 0]
        self.shared = world.memories[home.name] if self._tier == "dram" else world.unshared

    def _load(self, rows: int, write: Write) -> Load:
        beside = self._world.stand_ins
        self._world.note_range(self._socket.name, self._socket.calibration, rows, self._lanes + beside)
        return lane_step(
            self._workload, self._socket, batch=rows, write=write, tier=self._tier, lanes=self._lanes,
            line_s=self._line_s, beside=beside,
        )  # fmt: skip

    def forward(self, rows: int) -> tuple[Stream, float]:
        """The stream and the amount of the loss over `rows` rows."""
        return self._served(lane_forward(self._workload, self._socket, rows=rows, tier=self._tier, lanes=self._lanes))

    def _served(self, load: Load) -> tuple[Stream, float]:
        if self.shared is self._world.unshared:
            return self._world.seconds, load.alone_s
        return self._world.stream(self.shared, load.dram_bytes / load.alone_s, self._weight), load.dram_bytes


class Lane:
    """One core of the team: does its pieces of the team's assignment one after the other.

    The hot path of the simulator: what is common to the lanes is looked up on the team, and figures are written
    straight into the trace's tables.
    """

    __slots__ = (
        "_team", "_world", "costs", "first", "index", "noise", "place", "position", "read", "rows", "running",
        "shared", "step", "stream",
    )  # fmt: skip

    def __init__(self, world: World, team: CpuTeam, index: int, costs: SocketCosts) -> None:
        name, recorder = f"{team.seat.worker}[{index}]", world.recorder
        self._world = world
        self._team = team
        self.costs = costs
        self.shared = costs.shared
        self.index = index
        self.noise = ServiceNoise(world.plan.run.seed, name, world.machine.noise.cpu_sigma)
        self.place = recorder.place(Place(name=name, worker=team.seat.worker, kind="cpu", cpus=1))
        self.running = False
        self.stream = world.seconds
        self.position = 0
        self.step = self.rows = self.first = self.read = 0

    def begin(self, assign: Assign, now_s: float) -> None:
        """Start the pieces of an assignment that the lane has to itself."""
        self.step = -1
        self.position = 0
        self.running = True
        self._next(assign, assign.start, now_s)

    def served(self, now_s: float) -> None:
        """A piece is computed: it takes effect, and the next one starts."""
        team, world = self._team, self._world
        assign, index = team.assign, self.index
        team.learner.finish(assign, self.position, self.step)
        if team.in_place:
            read, version = self.read, world.version + 1
            world.version = team.wrote = version
            team.staleness[version - 1 - read] += 1
            if team.full:
                team.add_update(team.update_row(version, read, now_s, team.code, index, assign.id, -1, self.rows))
        first = self.first + team.stride
        if first < team.stop:
            self._next(assign, first, now_s)
            return
        place, start_s = self.place, team.begun_s
        self.running = False
        place.busy_s[COMPUTE] += now_s - start_s
        if team.full:
            team.add_span(team.span_row(COMPUTE, place.code, team.code, assign.id, start_s, now_s, 0))
        team.open -= 1
        if not team.open:
            team.finish()

    def _next(self, assign: Assign, first: int, now_s: float) -> None:
        """Start the next piece, whose first row is at this position."""
        team = self._team
        batch, left = assign.work.batch, team.stop - first
        self.step += 1
        self.first = first
        self.rows = rows = batch if batch < left else left
        self.read = self._world.version
        team.learner.start(assign, self.position, self.step)
        if team.measured is None or self.step or self.position:
            self.stream, amount = self.costs.step(rows, team.gradient)
        else:
            self.stream, amount = self.costs.measured(team.measured, team.gradient)
        self.shared.carry(self.stream, amount * (self.noise.factors or self.noise.refill()).pop(), self, now_s)

    def cut(self, now_s: float) -> None:
        """Stop at once; the time until now counts as computing."""
        if self.running:
            team, start_s = self._team, self._team.begun_s
            self.running = False
            self.shared.leave(self.stream, self)
            self._world.recorder.span(COMPUTE, self.place, team.code, team.assign.id, start_s, now_s)

    def forward(self, rows: int, order: Evaluate) -> Forward:
        """Start computing the loss over `rows` rows."""
        stream, amount = self.costs.forward(rows)
        now_s = self._world.env.now_s
        job = Forward(self, self._team, order, stream, now_s)
        self.shared.join(stream, amount, job, now_s)
        return job


class Forward:
    """A lane's part of an evaluation."""

    def __init__(self, lane: Lane, team: CpuTeam, order: Evaluate, stream: Stream, start_s: float) -> None:
        self._lane = lane
        self._team = team
        self._order = order
        self._stream = stream
        self._start_s = start_s

    def served(self, now_s: float) -> None:
        """The part is done."""
        self._close()
        self._team.forward_done(self)

    def cut(self) -> None:
        """Stop at once."""
        self._lane.shared.leave(self._stream, self)
        self._close()

    def _close(self) -> None:
        lane, team = self._lane, self._team
        now_s = team.world.env.now_s
        team.world.recorder.span(EVALUATE, lane.place, team.code, self._order.id, self._start_s, now_s)
