"""CPU lanes in virtual time: a team that ends an assignment together, or (a team of one) a free lane."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from hetsgd.models.cost import lane_socket
from hetsgd.models.drafts import new_result
from hetsgd.models.gradient_noise import measured_rows
from hetsgd.models.policy import Assign, Evaluate, Loss, Seat, Work
from hetsgd.sim.lane import Forward, Lane, SocketCosts
from hetsgd.sim.record import PULL
from hetsgd.sim.world import World

_NOTHING = Assign(id=-1, seat=Seat(""), epoch=0, start=0, stop=0, lanes=1, work=Work(batch=1, rate=0.0))


def _by_costs(lanes: Sequence[Lane]) -> list[tuple[SocketCosts, list[Lane]]]:
    """The lanes of each socket, in order."""
    return [
        (costs, [lane for lane in lanes if lane.costs is costs])
        for costs in dict.fromkeys(lane.costs for lane in lanes)
    ]


class CpuTeam:
    """The lanes of one seat. They start an assignment together; it ends with the last of them."""

    def __init__(self, world: World, seat: Seat, lanes: Sequence[int], costs: Sequence[SocketCosts]) -> None:
        self.world = world
        self.seat = seat
        self.learner = world.learner
        recorder = world.recorder
        self.code = recorder.trace.code(seat.worker)
        self.full = recorder.full
        self.add_span, self.span_row = recorder.add_span, recorder.span_row
        self.add_update, self.update_row = recorder.add_update, recorder.update_row
        self.staleness = recorder.staleness["cpu"]
        # What lanes look up of the assignment that they compute; `open` of them still do.
        self.assign: Assign = _NOTHING
        self.in_place = self.gradient = False
        self.stride = self.stop = self.pieces = self.open = self.wrote = 0
        self.begun_s = 0.0
        self._lanes = [Lane(world, self, index, costs[lane_socket(world.machine, index)]) for index in lanes]
        self._groups = _by_costs(self._lanes)
        self._queue: deque[Assign] = deque()
        self._evaluations: deque[Evaluate] = deque()
        self._current: Assign | Evaluate | None = None
        self._forwards: list[Forward] = []
        self._loss: Loss | None = None
        self._read = 0
        self._start_s = 0.0
        self._pulling = False
        self._waiting_word = False
        self._replica_version = 0
        self._stats_every = world.plan.run.gradient_stats
        self.measured: tuple[int, int] | None = None

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
        self._start_s = world.env.now_s
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
        world.home_memory.join(world.host_copy, 2.0 * world.model_bytes, self, self._start_s)
        world.home_memory.settle()

    def served(self, now_s: float) -> None:
        """The team's replica is a copy of the global model now."""
        self._close_pull(self.world.model_bytes)
        self._compute()

    def _close_pull(self, size_bytes: int) -> None:
        lane, now_s = self._lanes[0], self.world.env.now_s
        self._pulling = False
        if isinstance(self._current, Assign):
            self.world.recorder.span(PULL, lane.place, self.code, self._current.id, self._start_s, now_s, size_bytes)

    def _compute(self) -> None:
        """Start the first piece of every lane that has one; all but the last have a whole batch."""
        assign = self._current
        if not isinstance(assign, Assign):
            return
        world, work, lanes = self.world, assign.work, self._lanes
        batch, now_s, version = work.batch, world.env.now_s, world.version
        self.assign = assign
        self.measured = measured_rows(assign, self._stats_every) if self._stats_every else None
        self.in_place = work.write == "in_place"
        self.gradient = work.write == "gradient"
        self.stride = batch * assign.lanes
        self.stop = assign.stop
        self.begun_s = now_s
        rows = self.stop - assign.start
        self.pieces = -(-rows // batch)
        if len(lanes) == 1:
            self.open = 1
            lanes[0].begin(assign, now_s)
            return
        self.open = count = min(self.pieces, len(lanes))
        whole = min(count, rows // batch)
        first, start = assign.start, self.learner.start
        for position, lane in enumerate(lanes if count == len(lanes) else lanes[:count]):
            lane.position = position
            lane.step = 0
            lane.first = first
            lane.rows = batch
            lane.read = version
            lane.running = True
            start(assign, position, 0)
            first += batch
        alike = 0
        if self.measured is not None and whole:
            # The first lane has more to do than the others.
            alike = 1
            self._join_measuring(lanes[0], self.measured, now_s)
        for costs, members in self._groups:
            self._join(
                costs,
                members
                if whole == len(lanes) and not alike
                else [lane for lane in members if alike <= lane.position < whole and lane.running],
                batch,
                now_s,
            )
        if whole < count:
            lanes[whole].rows = assign.stop - lanes[whole].first
            self._join(lanes[whole].costs, lanes[whole : whole + 1], lanes[whole].rows, now_s)
        for costs, _ in self._groups:
            costs.shared.settle()

    def _join(self, costs: SocketCosts, lanes: list[Lane], rows: int, now_s: float) -> None:
        """Start a piece of so many rows on these lanes of one socket, if there are any."""
        if not lanes:
            return
        stream, amount = costs.step(rows, self.gradient)
        amounts = []
        for lane in lanes:
            lane.stream = stream
            amounts.append(amount * (lane.noise.factors or lane.noise.refill()).pop())
        costs.shared.join_all(stream, amounts, lanes, now_s)

    def _join_measuring(self, lane: Lane, rows: tuple[int, int], now_s: float) -> None:
        """Start the first piece of the lane that measures gradient norms on the way."""
        lane.stream, amount = lane.costs.measured(rows, self.gradient)
        amount *= (lane.noise.factors or lane.noise.refill()).pop()
        lane.costs.shared.join(lane.stream, amount, lane, now_s)

    def finish(self) -> None:
        """The last lane has done its pieces."""
        world, assign = self.world, self.assign
        self._current = None
        in_place, pieces, rows = self.in_place, self.pieces, self.stop - assign.start
        world.recorder.flops["cpu"] += world.flops_per_row * rows
        self._waiting_word = not in_place
        result = new_result(
            assign,
            rows=rows,
            updates=pieces if in_place else 0,
            steps=pieces,
            read=self._read,
            wrote=self.wrote if in_place else self._read,
            start_s=self._start_s,
            end_s=world.env.now_s,
            stats=self.learner.result(assign),
        )
        if self._queue or self._evaluations:
            self.kick()
        world.desk.report(result)

    # -- evaluations ------------------------------------------------------------------------------------------------

    def _evaluate(self, order: Evaluate) -> None:
        """Share the rows among the lanes; the loss is that of the model as it is now."""
        world, workload = self.world, self.world.plan.workload
        self._current = order
        self._loss = world.learner.evaluate(at_s=world.env.now_s, epoch=order.epoch, update=world.version)
        rows, lanes = workload.rows + workload.test_rows, len(self._lanes)
        parts = [rows // lanes + (index < rows % lanes) for index in range(lanes)]
        self._forwards = [lane.forward(part, order) for lane, part in zip(self._lanes, parts, strict=True) if part]
        for costs, _ in self._groups:
            costs.shared.settle()

    def forward_done(self, part: Forward) -> None:
        """A lane has done its part of the evaluation."""
        self._forwards.remove(part)
        order, loss = self._current, self._loss
        if self._forwards or not isinstance(order, Evaluate) or loss is None:
            return
        self._current = self._loss = None
        self.world.desk.loss_known(self.seat, order, replace(loss, end_s=self.world.env.now_s))
        self.kick()

    # -- faults and the end -----------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Stop everything at once."""
        if self._pulling:
            world = self.world
            missing = world.home_memory.missing(world.host_copy, self)
            world.home_memory.leave(world.host_copy, self)
            world.home_memory.settle()
            self._close_pull(int(world.model_bytes - missing / 2.0))
        for lane in self._lanes:
            lane.cut(self.world.env.now_s)
        for part in self._forwards:
            part.cut()
        self._forwards = []
        for costs, _ in self._groups:
            costs.shared.settle()
        self._queue.clear()
        self._evaluations.clear()
        self._current = self._loss = None
        self._waiting_word = False

    def lose(self, lane: int) -> int:
        """One lane (-1: all) of the team, which has stopped, is gone for good; returns how many are left."""
        self._lanes = [other for other in self._lanes if lane >= 0 and other.index != lane]
        self._groups = _by_costs(self._lanes)
        return len(self._lanes)
