"""The simulator: one run of a plan in virtual time, from workers, memories and links to a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import simpy.core

from hetsgd.models.coordinator import Coordinator
from hetsgd.models.dispatcher import Dispatcher
from hetsgd.models.footprint import check_capacity, host_bytes
from hetsgd.models.learner import Learner
from hetsgd.models.plan import Plan, ProgressSink
from hetsgd.models.policy import Evaluate, Event, Fault, Loss, Merge, Result, Seat
from hetsgd.models.trace import Trace
from hetsgd.models.words import counted
from hetsgd.sim.clock import Call
from hetsgd.sim.device import Device
from hetsgd.sim.faults import Injected, check_faults
from hetsgd.sim.lane import SocketCosts
from hetsgd.sim.links import Fabric
from hetsgd.sim.merge_place import MergePlace
from hetsgd.sim.record import Recorder
from hetsgd.sim.team import CpuTeam
from hetsgd.sim.teller import Teller
from hetsgd.sim.world import World

_WORK: Final = ("pull", "compute", "evaluate")
_LOOK_EVERY: Final = 256


class SimulationError(RuntimeError):
    """The simulation cannot go on: nothing is left to happen, though the run has not ended."""


def simulate(
    plan: Plan, learner: Learner, *, progress: ProgressSink | None = None, faults: Sequence[Injected] = ()
) -> Trace:
    """Run a plan in virtual time.

    The learner is told what happens in the order of virtual time. `progress` is called between two events, a few
    times per second of wall time; a KeyboardInterrupt that it raises ends the run as `interrupted`, with everything so
    far in its trace. What would end at the very deadline of a run is not done any more.

    Raises CapacityError when data, model or a batch do not fit a memory, PolicyError when the policy does not suit the
    run or breaks its contract, ValueError for a fault on something that the run does not have.
    """
    return _Engine(plan, learner, progress, faults).run()


class _Engine:
    """Drives a coordinator with what the workers of a machine do; see `hetsgd.sim.world.Desk`."""

    def __init__(self, plan: Plan, learner: Learner, progress: ProgressSink | None, faults: Sequence[Injected]) -> None:
        fleet = plan.fleet()
        check_faults(faults, fleet)
        self.trace = Trace(level=plan.run.trace)
        self.trace.logical_cpus = plan.machine.logical_cpus
        self.recorder = Recorder(self.trace)
        self.world = World(plan, learner, self.recorder, self)
        self.coordinator = Coordinator(recipe=plan.recipe, fleet=fleet, run=plan.run, trace=self.trace)
        self.dispatcher = Dispatcher(self.coordinator)
        self.may_start = self.coordinator.may_start
        self.plan = plan
        self.learner = learner
        self._message_s = plan.machine.message_s
        self._decision_s = plan.machine.decision_s
        self._busy_until_s = 0.0
        self._defers = plan.run.evaluation == "deferred"
        self._timed = plan.run.evaluate_every_s is not None
        self._alarm: Call | None = None
        self._alarm_s: float | None = None
        self._gone: set[Seat] = set()
        self._deferred: list[tuple[Evaluate, Loss]] = []
        # An order reaches its seat in the life that it was sent to; the seats that are struck hear nothing (None).
        self._lives: dict[Seat, int | None] = dict.fromkeys(fleet.seats, 0)
        self._unheard: dict[Seat, int] = dict.fromkeys(
            fleet.seats, 0
        )  # faults that the coordinator is still to hear of
        self._heard_faults = 0
        self._host_bytes = host_bytes(plan.workload)
        self._host_memory = f"{self.world.home.name}:dram"
        self._teller = Teller(progress, self.coordinator)
        self.workers: dict[str, Device | CpuTeam] = {}
        self.seats: dict[Seat, Device | CpuTeam] = {}
        self._build()
        self.merges = MergePlace(self.world, self.workers)
        for fault in faults:
            self.world.env.call(fault.at_s, self._strike, fault)

    def _build(self) -> None:
        """Make the workers, and refuse what does not fit before anything runs."""
        plan, world = self.plan, self.world
        check_capacity(plan)
        self.recorder.memory(self._host_memory, self._host_bytes)
        fabric = Fabric(world, self.recorder)
        held = self.coordinator.capacity
        for member in self.coordinator.fleet.members:
            if member.kind == "accelerator":
                accelerator = plan.machine.accelerator(member.name)
                device = Device(world, fabric, accelerator, held)
                self.workers[member.name] = self.seats[device.seat] = device
                continue
            costs = [SocketCosts(world, index) for index in range(len(plan.machine.sockets))]
            for seat in member.seats:
                lanes = range(member.lanes) if seat.lane < 0 else (seat.lane,)
                self.workers[member.name] = self.seats[seat] = CpuTeam(world, seat, lanes, costs)

    def run(self) -> Trace:
        """Run to the end and return the trace."""
        coordinator, env = self.coordinator, self.world.env
        deadline_s = self.plan.run.stop.seconds
        if deadline_s is not None:
            self.world.env.call(deadline_s, self._deadline)
        coordinator.begin(self.learner.begin())
        self._turn(None)
        try:
            self._drive()
            self._teller.tell(env.now_s, self.world.version, always=True)
        except KeyboardInterrupt:
            coordinator.stop("interrupted", env.now_s, "interrupted")
        return self._close()

    def _drive(self) -> None:
        """Let events happen until the run has ended; between them, a look at the wall clock for progress."""
        env = self.world.env
        try:
            while not (env.over or env.drive(_LOOK_EVERY)):
                self.recorder.trim()
                self._teller.tell(env.now_s, self.world.version)
        except simpy.core.EmptySchedule:
            waits = "; ".join(f"{seat} waits: {reason}" for seat, reason in self.dispatcher.waits().items())
            at_s = env.now_s
            raise SimulationError(f"nothing is left to happen at {at_s} s; {waits or 'nobody waits'}") from None

    def _close(self) -> Trace:
        """Cut off what is under way, compute the losses outside the clock and close the books."""
        now_s, coordinator = self.world.env.now_s, self.coordinator
        for seat in self.seats.values():
            seat.cut()
        self.merges.cut()
        for order, loss in self._deferred:
            coordinator.note(loss, order)
        if not coordinator.losses or coordinator.losses[-1].update != self.world.version:
            loss = self.learner.evaluate(at_s=now_s, epoch=coordinator.cursor.epoch, update=self.world.version)
            if loss.computed:
                coordinator.note(loss)
        coordinator.close(now_s)
        self.recorder.close()
        self._close_totals()
        return self.trace

    def _close_totals(self) -> None:
        totals = self.trace.totals
        totals.events = self.world.env.events
        for place in self.trace.places.values():
            if place.kind == "cpu":
                totals.cpu_s["cpu"] += sum(totals.busy_s.get((place.name, kind), 0.0) for kind in _WORK)
        for device in self.workers.values():
            if not isinstance(device, Device):
                continue
            name = device.accelerator.name
            working_s = sum(totals.busy_s.get((name, kind), 0.0) for kind in ("compute", "evaluate"))
            totals.driver_busy_s[name] += working_s
            if device.accelerator.stand_in:
                copying_s = sum(end.busy_s for path in (device.down, device.up) for end in path.ends)
                totals.cpu_s["accelerator"] += working_s + copying_s
            else:
                totals.cpu_s["accelerator"] += device.launching_s  # by the thread of the host that drives it

    # -- what workers report ------------------------------------------------------------------------------------------

    def report(self, result: Result) -> None:
        """An assignment has ended; the coordinator hears of it a message later."""
        if self._message_s:
            self.world.env.call(self._message_s, self._hear, result)
        else:
            self._finished(result)

    def _hear(self, message: Call) -> None:
        self._finished(message.value)

    def _finished(self, result: Result) -> None:
        seat, in_place = result.seat, result.work.write == "in_place"
        if not in_place:
            self.merges.hold(result)
            self.recorder.memory(self._host_memory, self._host_bytes + self.merges.held_bytes)
        merges = self.coordinator.finished(result, self.world.env.now_s)
        if merges:
            self.merges.submit(merges)
        self.dispatcher.free(seat)
        if in_place:
            self._turn("finished")
            return
        worker = self.seats[seat]
        worker.heard()
        self._turn("finished")
        worker.kick()

    def loss_known(self, seat: Seat, order: Evaluate, loss: Loss) -> None:
        """An evaluation has ended; the coordinator hears of it a message later."""
        self.world.env.call(self._message_s, self._evaluated, (seat, order, loss))

    def _evaluated(self, message: Call) -> None:
        now_s, coordinator = self.world.env.now_s, self.coordinator
        seat, order, loss = message.value
        self.merges.submit(coordinator.evaluated(order, replace(loss, end_s=now_s), now_s))
        if coordinator.load(seat) < coordinator.capacity:
            self.dispatcher.free(seat)
        self._turn("evaluated")

    def landed(self, merge: Merge, version: int, start_s: float, seats: Sequence[Seat]) -> None:
        """A merge has taken effect, beside the coordinator."""
        now_s = self.world.env.now_s
        self.merges.submit(self.coordinator.merged(merge, version=version, start_s=start_s, now_s=now_s))
        self._turn("merged")
        for seat in dict.fromkeys(seats):
            self.seats[seat].kick()

    # -- what the coordinator orders ----------------------------------------------------------------------------------

    def _turn(self, event: Event | None) -> None:
        """After an event: ask who is to be asked, send the orders, take snapshots, set the alarm."""
        env = self.world.env
        now_s = env.now_s
        orders = self.dispatcher.sweep(event, now_s)
        if orders:
            lives, ready_s = self._lives, self._busy_until_s
            if ready_s < now_s:
                ready_s = now_s
            for seat, order in orders:
                ready_s += self._decision_s
                delay_s = ready_s - now_s + self._message_s
                if delay_s > 0.0:
                    env.call(delay_s, self._arrive, (seat, lives[seat], order))
                elif lives[seat] is not None:
                    self.seats[seat].deliver(order)
            self._busy_until_s = ready_s
        if self._defers:
            for snapshot in self.coordinator.snapshots(now_s):
                loss = self.learner.evaluate(at_s=now_s, epoch=snapshot.epoch, update=self.world.version)
                self._deferred.append((snapshot, loss))
        env.over = self.coordinator.done
        due_s = self.dispatcher.wake_s() if self.dispatcher.waiting else None
        if self._timed:
            next_s = self.coordinator.next_evaluation_s()
            due_s = next_s if due_s is None or (next_s is not None and next_s < due_s) else due_s
        if due_s is not None and due_s != self._alarm_s:
            self._set_alarm(due_s)

    def _arrive(self, message: Call) -> None:
        """An order reaches its seat, unless that was struck on the way: the coordinator counts the order as lost."""
        seat, life, order = message.value
        if life is not None and self._lives[seat] == life:
            self.seats[seat].deliver(order)

    def _set_alarm(self, due_s: float) -> None:
        """Wake up when a waiting seat wants to be asked, or a timed evaluation comes due."""
        env = self.world.env
        self._alarm_s = due_s
        self._alarm = env.call(max(0.0, due_s - env.now_s), self._ring)

    def _ring(self, alarm: Call) -> None:
        if alarm is self._alarm:
            self._alarm, self._alarm_s = None, None
            self._turn("timer")

    def _deadline(self, _: Call) -> None:
        self.coordinator.stop(f"after {counted(self.plan.run.stop.seconds or 0.0, 'second')}", self.world.env.now_s)
        self.world.env.over = True

    # -- faults -------------------------------------------------------------------------------------------------------

    def _strike(self, strike: Call) -> None:
        """A worker or lane is lost; the coordinator hears of it a message later."""
        fault: Injected = strike.value
        member = self.coordinator.fleet.member(fault.worker)
        seats = member.seats if not member.free or fault.lane < 0 else (Seat(fault.worker, fault.lane),)
        for seat in seats:
            worker = self.seats[seat]
            if seat in self._gone:
                continue
            lane = fault.lane if isinstance(worker, CpuTeam) and not member.free else -1
            if isinstance(worker, CpuTeam) and lane >= 0 and lane not in worker.lanes:
                continue
            half = worker.writing
            worker.cut()
            left = worker.lose(lane)
            self._lives[seat] = None
            self._unheard[seat] += 1
            if not left:
                self._gone.add(seat)
                self.merges.lost(worker)
            kind = f"lane {lane} killed" if lane >= 0 else "killed"
            known = Fault(seat=seat, kind=kind, lanes_left=left, half_applied=half)
            self.world.env.call(self._message_s, self._failed, known)

    def _failed(self, message: Call) -> None:
        fault: Fault = message.value
        coordinator, seat = self.coordinator, fault.seat
        lost = [assign.id for assign in coordinator.in_flight.values() if assign.seat == seat]
        kept = [r.id for r in coordinator.held.values() if r.seat == seat and r.work.write == "keep"]
        merges = coordinator.failed(fault, self.world.env.now_s)
        self.learner.drop(lost)
        if not fault.lanes_left:
            self.merges.drop(kept)
        self.merges.submit(merges)
        self._unheard[seat] -= 1
        self._heard_faults += 1
        if coordinator.alive(seat):
            if not self._unheard[seat]:
                self._lives[seat] = self._heard_faults
            self.dispatcher.free(seat)
        else:
            self.dispatcher.lost(seat)
        self._turn("failed")
