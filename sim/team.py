"""CPU lanes in virtual time: a team that ends an assignment together, or (a team of one) a free lane."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from hetsgd.models.cost import Load, lane_forward, lane_socket, lane_step, lanes_per_socket, weights_tier
from hetsgd.models.policy import Assign, Evaluate, Loss, Result, Seat, Write
from hetsgd.models.trace import Place
from hetsgd.sim.fluid import Shared, Stream
from hetsgd.sim.noise import ServiceNoise
from hetsgd.sim.record import COMPUTE, EVALUATE, PULL
from hetsgd.sim.world import World


class SocketCosts:
    """What steps cost on the lanes of one socket, as amounts of a capacity: DRAM bytes, or seconds where none is drawn.

    A step of D bytes that takes t seconds alone is D bytes at a rate of at most D / t.
    """

    def __init__(self, world: World, index: int) -> None:
        machine, workload = world.machine, world.plan.workload
        self._world = world
        self._workload = workload
        self._socket = machine.sockets[index]
        self._lanes = lanes_per_socket(machine)[index]
        self._tier = weights_tier(machine, workload)
        home = machine.sockets[index if machine.weights_on == "interleaved" else 0]
        self.shared = world.memories[home.name] if self._tier == "dram" else world.unshared
        self._steps: dict[tuple[int, bool], tuple[Stream, float]] = {}

    def step(self, rows: int, gradient: bool) -> tuple[Stream, float]:
        """The stream and the amount of one step of `rows` rows; `gradient`: it is handed in, not applied."""
        known = self._steps.get((rows, gradient))
        if known is None:
            write: Write = "gradient" if gradient else "in_place"
            load = lane_step(self._workload, self._socket, batch=rows, write=write, tier=self._tier, lanes=self._lanes)
            known = self._steps[rows, gradient] = self._served(load)
        return known

    def forward(self, rows: int) -> tuple[Stream, float]:
        """The stream and the amount of the loss over `rows` rows."""
        return self._served(lane_forward(self._workload, self._socket, rows=rows, tier=self._tier, lanes=self._lanes))

    def _served(self, load: Load) -> tuple[Stream, float]:
        if self.shared is self._world.unshared:
            return self._world.seconds, load.alone_s
        return Stream(load.dram_bytes / load.alone_s), load.dram_bytes


class Lane:
    """One core of the team: does its pieces of an assignment one after the other."""

    __slots__ = (
        "_amount", "_assign", "_costs", "_first", "_gradient", "_id", "_in_place", "_learner", "_noise", "_position",
        "_read", "_rows", "_start_s", "_step", "_stream", "_stride", "_team", "_world", "index", "place", "running",
        "worker",
    )  # fmt: skip

    def __init__(self, world: World, team: CpuTeam, index: int, costs: SocketCosts) -> None:
        name = f"{team.seat.worker}[{index}]"
        self._world = world
        self._team = team
        self._costs = costs
        self._learner = world.learner
        self._noise = ServiceNoise(world.plan.run.seed, name, world.machine.noise.cpu_sigma)
        self.index = index
        self.worker = world.recorder.trace.code(team.seat.worker)
        self.place = world.recorder.place(Place(name=name, worker=team.seat.worker, kind="cpu", cpus=1))
        self.running = False

    @property
    def shared(self) -> Shared:
        """The capacity that the lane's steps draw on."""
        return self._costs.shared

    def begin(self, assign: Assign, position: int, now_s: float) -> None:
        """Start the pieces of an assignment's lane `position`, of which there is at least one."""
        work = assign.work
        self._assign = assign
        self._position = position
        self._gradient = work.write == "gradient"
        self._in_place = work.write == "in_place"
        self._stride = work.batch * assign.lanes
        self._step = 0
        self._start_s = now_s
        self.running = True
        self._piece(assign.start + position * work.batch)

    def _piece(self, first: int) -> None:
        """Start the piece whose first row is at this position."""
        assign = self._assign
        batch, left = assign.work.batch, assign.stop - first
        self._first = first
        self._rows = rows = batch if batch < left else left
        self._read = self._world.version
        self._learner.start(assign, self._position, self._step)
        stream, amount = self._costs.step(rows, self._gradient)
        self._stream = stream
        self._costs.shared.join(stream, amount * self._noise.draw(), self)

    def served(self) -> None:
        """A piece is computed: it takes effect, and the next one starts."""
        world, assign = self._world, self._assign
        self._learner.finish(assign, self._position, self._step)
        now_s = world.env.now
        if self._in_place:
            version = world.version = world.version + 1
            self._team.wrote = version
            world.recorder.update("cpu", version, self._read, now_s, self.worker, self.index, assign.id, self._rows)
        first = self._first + self._stride
        if first < assign.stop:
            self._step += 1
            self._piece(first)
            return
        self.running = False
        world.recorder.span(COMPUTE, self.place, self.worker, assign.id, self._start_s, now_s)
        self._team.lane_done()

    def cut(self) -> None:
        """Stop at once; the time until now counts as computing."""
        if self.running:
            self.running = False
            self._costs.shared.leave(self._stream, self)
            now_s = self._world.env.now
            self._world.recorder.span(COMPUTE, self.place, self.worker, self._assign.id, self._start_s, now_s)

    def forward(self, rows: int, order: Evaluate) -> Forward:
        """Start computing the loss over `rows` rows."""
        stream, amount = self._costs.forward(rows)
        job = Forward(self, self._team, order, stream, self._world.env.now)
        self._costs.shared.join(stream, amount, job)
        return job


class Forward:
    """A lane's part of an evaluation."""

    def __init__(self, lane: Lane, team: CpuTeam, order: Evaluate, stream: Stream, start_s: float) -> None:
        self._lane = lane
        self._team = team
        self._order = order
        self._stream = stream
        self._start_s = start_s

    def served(self) -> None:
        """The part is done."""
        self._close()
        self._team.forward_done(self)

    def cut(self) -> None:
        """Stop at once."""
        self._lane.shared.leave(self._stream, self)
        self._close()

    def _close(self) -> None:
        lane, world = self._lane, self._team.world
        world.recorder.span(EVALUATE, lane.place, lane.worker, self._order.id, self._start_s, world.env.now)


class CpuTeam:
    """The lanes of one seat. They start an assignment together; it ends with the last of them."""

    def __init__(self, world: World, seat: Seat, lanes: Sequence[int], costs: Sequence[SocketCosts]) -> None:
        self.world = world
        self.seat = seat
        self.wrote = 0
        self._lanes = [Lane(world, self, index, costs[lane_socket(world.machine, index)]) for index in lanes]
        self._shared = list(dict.fromkeys(lane.shared for lane in self._lanes))
        self._queue: deque[Assign] = deque()
        self._evaluations: deque[Evaluate] = deque()
        self._current: Assign | Evaluate | None = None
        self._forwards: list[Forward] = []
        self._loss: Loss | None = None
        self._open = 0
        self._read = 0
        self._start_s = 0.0
        self._pulling = False
        self._waiting_word = False
        self._replica_version = 0

    @property
    def lanes(self) -> tuple[int, ...]:
        """Indices of the live lanes."""
        return tuple(lane.index for lane in self._lanes)

    @property
    def writing(self) -> bool:
        """Whether an in-place assignment is under way that may have written some of its pieces."""
        return isinstance(self._current, Assign) and self._current.work.write == "in_place"

    def deliver(self, order: Assign | Evaluate) -> None:
        """Take an order; it starts when its turn comes."""
        if isinstance(order, Evaluate):
            self._evaluations.append(order)
        else:
            self._queue.append(order)
        self.kick()

    def kick(self) -> None:
        """Start the next order if there is one and it may start: evaluations first."""
        if self._current is not None:
            return
        if self._evaluations:
            self._evaluate(self._evaluations.popleft())
        elif self._queue and not self._waiting_word and self.world.desk.may_start(self.seat):
            self._begin(self._queue.popleft())

    def heard(self) -> None:
        """The coordinator has decided on the last result: what it merges is known."""
        self._waiting_word = False

    def wrote_back(self, version: int) -> None:
        """The team's own replica has become the global model of this version."""
        self._replica_version = version

    # -- assignments ------------------------------------------------------------------------------------------------

    def _begin(self, assign: Assign) -> None:
        world, work = self.world, assign.work
        self._current = assign
        self._start_s = world.env.now
        self._read = self.wrote = world.version
        if work.write in ("in_place", "gradient"):
            self._compute()
            return
        world.learner.pull(assign)
        if work.read == "own":
            self._read = self._replica_version
            self._compute()
            return
        if work.write == "keep":
            self._replica_version = self._read
        self._pulling = True
        world.home_memory.join(world.host_copy, 2.0 * world.plan.workload.model_bytes, self)
        world.home_memory.settle()

    def served(self) -> None:
        """The team's replica is a copy of the global model now."""
        self._close_pull(self.world.plan.workload.model_bytes)
        self._compute()

    def _close_pull(self, size_bytes: int) -> None:
        lane, now_s = self._lanes[0], self.world.env.now
        self._pulling = False
        if isinstance(self._current, Assign):
            self.world.recorder.span(PULL, lane.place, lane.worker, self._current.id, self._start_s, now_s, size_bytes)

    def _compute(self) -> None:
        assign = self._current
        if not isinstance(assign, Assign):
            return
        now_s, lanes = self.world.env.now, self._lanes
        self._open = count = min(assign.pieces, len(lanes))
        for position in range(count):
            lanes[position].begin(assign, position, now_s)
        for shared in self._shared:
            shared.settle()

    def lane_done(self) -> None:
        """A lane has done its pieces."""
        self._open -= 1
        if not self._open:
            self._finish()

    def _finish(self) -> None:
        world, assign = self.world, self._current
        if not isinstance(assign, Assign):
            return
        self._current = None
        in_place, pieces, rows = assign.work.write == "in_place", assign.pieces, assign.rows
        world.recorder.flops["cpu"] += world.flops_per_row * rows
        self._waiting_word = not in_place
        result = Result(
            id=assign.id,
            seat=self.seat,
            rows=rows,
            updates=pieces if in_place else 0,
            steps=pieces,
            read=self._read,
            wrote=self.wrote if in_place else self._read,
            start_s=self._start_s,
            end_s=world.env.now,
            work=assign.work,
            stats=world.learner.result(assign),
        )
        world.desk.report(result)
        self.kick()

    # -- evaluations ------------------------------------------------------------------------------------------------

    def _evaluate(self, order: Evaluate) -> None:
        """Share the rows among the lanes; the loss is that of the model as it is now."""
        world, workload = self.world, self.world.plan.workload
        self._current = order
        self._loss = world.learner.evaluate(at_s=world.env.now, epoch=order.epoch, update=world.version)
        rows, lanes = workload.rows + workload.test_rows, len(self._lanes)
        parts = [rows // lanes + (index < rows % lanes) for index in range(lanes)]
        self._forwards = [lane.forward(part, order) for lane, part in zip(self._lanes, parts, strict=True) if part]
        for shared in self._shared:
            shared.settle()

    def forward_done(self, part: Forward) -> None:
        """A lane has done its part of the evaluation."""
        self._forwards.remove(part)
        order, loss = self._current, self._loss
        if self._forwards or not isinstance(order, Evaluate) or loss is None:
            return
        self._current = self._loss = None
        self.world.desk.loss_known(self.seat, order, replace(loss, end_s=self.world.env.now))
        self.kick()

    # -- faults and the end -----------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Stop everything at once."""
        if self._pulling:
            world = self.world
            missing = world.home_memory.missing(world.host_copy, self)
            world.home_memory.leave(world.host_copy, self)
            world.home_memory.settle()
            self._close_pull(int(world.plan.workload.model_bytes - missing / 2.0))
        for lane in self._lanes:
            lane.cut()
        for part in self._forwards:
            part.cut()
        self._forwards = []
        for shared in self._shared:
            shared.settle()
        self._queue.clear()
        self._evaluations.clear()
        self._current = self._loss = None
        self._waiting_word = False

    def lose(self, lane: int) -> int:
        """One lane (-1: all) of the team, which has stopped, is gone for good; returns how many are left."""
        self._lanes = [other for other in self._lanes if lane >= 0 and other.index != lane]
        return len(self._lanes)
