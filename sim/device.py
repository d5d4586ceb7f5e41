"""An accelerator in virtual time: load rows, pull the model, compute local steps, push the result."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from hetsgd.models.cost import Load, accelerator_forward, accelerator_step, launch_s
from hetsgd.models.drafts import new_result
from hetsgd.models.footprint import check_accelerator
from hetsgd.models.gradient_noise import measured_rows
from hetsgd.models.machine import Accelerator
from hetsgd.models.policy import Assign, Evaluate, Loss, Seat, Write
from hetsgd.models.trace import Place
from hetsgd.sim.clock import Call
from hetsgd.sim.fluid import Stream
from hetsgd.sim.links import CopyEngines, Fabric, Transfer
from hetsgd.sim.noise import ServiceNoise
from hetsgd.sim.record import COMPUTE, EVALUATE, LOAD, PULL, PUSH, WAIT
from hetsgd.sim.step_costs import StepCosts
from hetsgd.sim.world import World


class DeviceCosts(StepCosts[Stream | None]):
    """What steps cost on one accelerator: DRAM bytes of a stand-in, else seconds, which have no stream."""

    def __init__(self, world: World, accelerator: Accelerator, batches_held: int) -> None:
        super().__init__(world, accelerator.memory_bandwidth_bytes_per_s)
        self.launches_s = launch_s(world.plan.workload, accelerator)
        self._accelerator = accelerator
        self._held = batches_held
        self._sizes: dict[int, int] = {}

    def memory_bytes(self, batch: int) -> int:
        """Memory that the device needs at this batch, which is recorded; CapacityError when it has less."""
        known = self._sizes.get(batch)
        if known is None:
            workload = self._world.plan.workload
            known = check_accelerator(self._accelerator, workload, batch, batches_held=self._held)
            self._world.recorder.memory(f"{self._accelerator.name}:memory", known)
            self._sizes[batch] = known
        return known

    def _load(self, rows: int, write: Write) -> Load:
        world, device = self._world, self._accelerator
        beside = world.lanes + world.stand_ins - 1 if device.stand_in else 0
        world.note_range(device.name, device.calibration, rows, 1 + beside)
        return accelerator_step(world.plan.workload, device, batch=rows, write=write, beside=beside)

    def forward(self, rows: int) -> tuple[Stream | None, float]:
        """The stream and the amount of the loss over `rows` rows."""
        return self._served(accelerator_forward(self._world.plan.workload, self._accelerator, rows=rows))

    def _served(self, load: Load) -> tuple[Stream | None, float]:
        if not load.dram_bytes:
            return None, load.alone_s
        return self._world.stream(self._world.home_memory, load.dram_bytes / load.alone_s), load.dram_bytes


class Held:
    """An assignment that the accelerator holds, the transfer of its rows and when they were there."""

    __slots__ = ("assign", "load", "loaded_s")

    def __init__(self, assign: Assign, load: Transfer) -> None:
        self.assign = assign
        self.load = load
        self.loaded_s: float | None = None


class Device:
    """The worker of one accelerator. Rows of the next assignments are loaded ahead, the model never is."""

    def __init__(self, world: World, fabric: Fabric, accelerator: Accelerator, batches_held: int) -> None:
        name = accelerator.name
        cpus = 1 if accelerator.stand_in else 0
        self.world = world
        self.env = world.env
        self.learner = world.learner
        self.recorder = world.recorder
        self.seat = Seat(name)
        self.accelerator = accelerator
        self.down, self.up = fabric.paths(accelerator)
        self.worker = world.recorder.trace.code(name)
        self.engines = CopyEngines(world, self.worker, accelerator.copy_engines)
        self.move = self.engines.move
        # One at a time, and the same for every assignment.
        self._pull = Transfer(self.engines, self.down, PULL, -1, world.model_bytes, self._pulled, self._pull_begun)
        self._push = Transfer(self.engines, self.up, PUSH, -1, world.model_bytes, self._pushed)
        self.place = world.recorder.place(Place(name=name, worker=name, kind="accelerator", cpus=cpus))
        self.costs = DeviceCosts(world, accelerator, batches_held)
        self.launching_s = 0.0
        self.alive = True
        self._noise = ServiceNoise(world.plan.run.seed, name, world.machine.noise.accelerator_sigma)
        self._queue: deque[Held] = deque()
        self._evaluations: deque[Evaluate] = deque()
        self._current: Assign | Evaluate | None = None
        self._stream: Stream | None = None
        self._timer = Call(self._time_over, None)
        self._timing = False
        self._loss: Loss | None = None
        self._step = 0
        self._read = 0
        self._start_s = 0.0
        self._compute_s = 0.0
        self._free_s = 0.0
        self._waiting_word = False
        self._replica_version = 0
        self._stats_every = world.plan.run.gradient_stats

    @property
    def writing(self) -> bool:
        """A copy-back takes effect at once, at its end: no in-place work is ever half applied."""
        return False

    def deliver(self, order: Assign | Evaluate) -> None:
        """Take an order: the rows of an assignment are loaded at once, the rest starts when its turn comes."""
        if isinstance(order, Evaluate):
            self._evaluations.append(order)
            self.kick()
            return
        rows, batch = order.stop - order.start, order.work.batch
        self.costs.memory_bytes(batch if batch < rows else rows)
        load = Transfer(self.engines, self.down, LOAD, order.id, rows * self.world.row_bytes, self._loaded)
        self._queue.append(Held(order, load))
        self.engines.ask(load, ahead=True)

    def _loaded(self) -> None:
        """The rows of an assignment are there: they come in the order in which they were asked for."""
        for held in self._queue:
            if held.loaded_s is None:
                held.loaded_s = self.env.now_s
                break
        self.kick()

    def kick(self) -> None:
        """Start the next order if there is one and it may start: evaluations first."""
        if self._current is not None:
            return
        if self._evaluations:
            self._evaluate(self._evaluations.popleft())
            return
        queue = self._queue
        if not queue or queue[0].loaded_s is None or self._waiting_word:
            return
        if self.world.desk.may_start(self.seat):
            self._begin(queue.popleft())

    def heard(self) -> None:
        """The coordinator has decided on the last result: what it merges is known."""
        self._waiting_word = False

    def wrote_back(self, version: int) -> None:
        """The accelerator's own replica has become the global model of this version."""
        self._replica_version = version

    # -- assignments ------------------------------------------------------------------------------------------------

    def _begin(self, held: Held) -> None:
        assign = held.assign
        now_s, free_s, load_s, ready_s = self.env.now_s, self._free_s, held.load.start_s, held.loaded_s or 0.0
        self._current = assign
        self._start_s = load_s if load_s > free_s else free_s
        if ready_s < free_s:
            ready_s = free_s
        if now_s > ready_s:
            self.recorder.span(WAIT, self.place, self.worker, assign.id, ready_s, now_s)
        if assign.work.read == "own":
            self.learner.pull(assign)
            self._read = self._replica_version
            self._pulled()
        else:
            self._pull.id = assign.id
            self.engines.ask(self._pull)

    def _pull_begun(self) -> None:
        assign = self._current
        if isinstance(assign, Assign):
            self.learner.pull(assign)
            self._read = self.world.version
            if assign.work.write == "keep":
                self._replica_version = self._read

    def _pulled(self) -> None:
        self._step = 0
        self._compute_s = self.env.now_s
        if isinstance(self._current, Assign):
            self._piece(self._current)

    def _piece(self, assign: Assign) -> None:
        """Start the local step `_step`."""
        step, batch, costs = self._step, assign.work.batch, self.costs
        rows = assign.stop - assign.start - step * batch
        if rows > batch:
            rows = batch
        self.learner.start(assign, 0, step)
        gradient = assign.work.write == "gradient"
        measured = measured_rows(assign, self._stats_every) if self._stats_every and not step else None
        if measured is None:
            stream, amount = costs.step(rows, gradient)
        else:
            stream, amount = costs.measured(measured, gradient)
            self.launching_s += 2.0 * costs.launches_s
        self.launching_s += costs.launches_s
        amount *= (self._noise.factors or self._noise.refill()).pop()
        if stream is None:
            self._timing = True
            self.env.put(self.env.now_s + amount, self._timer)
        else:
            self._serve(stream, amount)

    def _serve(self, stream: Stream | None, amount: float) -> None:
        """Compute for so many seconds, or (a stand-in) until so many bytes have come from the host's DRAM."""
        env = self.env
        if stream is None:
            self._timing = True
            env.put(env.now_s + amount, self._timer)
            return
        self._stream = stream
        memory = self.world.home_memory
        memory.join(stream, amount, self, env.now_s)
        memory.settle()

    def _time_over(self, _: Call) -> None:
        # A device that was struck meanwhile computes nothing any more.
        if self._timing:
            self._timing = False
            order = self._current
            if isinstance(order, Assign):
                self._stepped(order, self.env.now_s)
            elif order is not None:
                self._evaluated(order)

    def served(self, now_s: float) -> None:
        """A local step or an evaluation is computed, with bytes from the host's DRAM."""
        self._stream = None
        order = self._current
        if isinstance(order, Assign):
            self._stepped(order, now_s)
        elif order is not None:
            self._evaluated(order)

    def _stepped(self, assign: Assign, now_s: float) -> None:
        step = self._step
        self.learner.finish(assign, 0, step)
        self._step = step + 1
        if (step + 1) * assign.work.batch < assign.stop - assign.start:
            self._piece(assign)
            return
        self.recorder.span(COMPUTE, self.place, self.worker, assign.id, self._compute_s, now_s)
        if assign.work.write == "keep":
            self._finish(assign, False)
        else:
            self._push.id = assign.id
            self.engines.ask(self._push)

    def _pushed(self) -> None:
        """The replica or gradient is in host memory; a copy-back is the global model now."""
        assign = self._current
        if not isinstance(assign, Assign):
            return
        in_place = assign.work.write == "in_place"
        if in_place:
            self.learner.push(assign)
            world, recorder, read = self.world, self.recorder, self._read
            # All that was written since the pull began is not in the replica that now stands in its place.
            recorder.overwritten += world.version - read
            version = world.version = world.version + 1
            rows = assign.stop - assign.start
            recorder.update("accelerator", version, read, self.env.now_s, self.worker, -1, assign.id, rows)
        self._finish(assign, in_place)

    def _finish(self, assign: Assign, in_place: bool) -> None:
        world, rows, read = self.world, assign.stop - assign.start, self._read
        self._current = None
        self._free_s = now_s = self.env.now_s
        self._waiting_word = not in_place
        self.recorder.flops["accelerator"] += world.flops_per_row * rows
        result = new_result(
            assign,
            rows=rows,
            updates=1 if in_place else 0,
            steps=self._step,
            read=read,
            wrote=world.version if in_place else read,
            start_s=self._start_s,
            end_s=now_s,
            stats=self.learner.result(assign),
        )
        if self._queue or self._evaluations:
            self.kick()
        world.desk.report(result)

    # -- evaluations ------------------------------------------------------------------------------------------------

    def _evaluate(self, order: Evaluate) -> None:
        """Copy the model, then the rows, then compute; the loss is that of the model when the copy begins."""
        world, workload = self.world, self.world.plan.workload
        self._current = order

        def begun() -> None:
            self._loss = world.learner.evaluate(at_s=world.env.now_s, epoch=order.epoch, update=world.version)

        def copied() -> None:
            size_bytes = (workload.rows + workload.test_rows) * workload.row_bytes
            self.move(self.down, EVALUATE, order.id, size_bytes, loaded)

        def loaded() -> None:
            self._compute_s = world.env.now_s
            self._serve(*self.costs.forward(workload.rows + workload.test_rows))

        self.move(self.down, EVALUATE, order.id, workload.model_bytes, copied, begun)

    def _evaluated(self, order: Evaluate) -> None:
        world, loss = self.world, self._loss
        world.recorder.span(EVALUATE, self.place, self.worker, order.id, self._compute_s, world.env.now_s)
        self._current = self._loss = None
        self._free_s = world.env.now_s
        if loss is not None:
            world.desk.loss_known(self.seat, order, replace(loss, end_s=world.env.now_s))
        self.kick()

    # -- faults and the end -----------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Stop everything at once."""
        if self._stream is not None:
            self.world.home_memory.leave(self._stream, self)
            self.world.home_memory.settle()
        if (self._stream is not None or self._timing) and self._current is not None:
            kind = EVALUATE if isinstance(self._current, Evaluate) else COMPUTE
            id_, now_s = self._current.id, self.world.env.now_s
            self.world.recorder.span(kind, self.place, self.worker, id_, self._compute_s, now_s)
        self.engines.drop()
        self._queue.clear()
        self._evaluations.clear()
        self._current = self._loss = self._stream = None
        self._timing = False
        self._waiting_word = False

    def lose(self, _lane: int) -> int:
        """The device, which has stopped, is gone for good; returns the lanes left: none."""
        self.alive = False
        return 0
