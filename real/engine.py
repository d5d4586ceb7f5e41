"""Train for real: the policies of a plan on this machine's lanes and accelerators, measured.

Before the clock starts, the children are up, the loss of the initial model is known and the code is warm. After
it has stopped, snapshots and the final model are evaluated. Whatever happens, no child process and no shared
memory is left behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from hetsgd.models.coordinator import Coordinator
from hetsgd.models.data.dataset import Dataset
from hetsgd.models.dispatcher import Dispatcher
from hetsgd.models.footprint import accelerator_bytes, check_host, host_bytes
from hetsgd.models.plan import Plan, ProgressSink
from hetsgd.models.policy import Assign, Fleet, Loss
from hetsgd.models.trace import Trace
from hetsgd.real.children import Children
from hetsgd.real.host import processor_name
from hetsgd.real.interrupts import Interrupts
from hetsgd.real.launch import launcher
from hetsgd.real.logs import UpdateCounter
from hetsgd.real.loop import Loop
from hetsgd.real.merge_place import MergePlace
from hetsgd.real.parts import check_data
from hetsgd.real.places import declare, logs_of
from hetsgd.real.row_orders import RowOrders
from hetsgd.real.versions import end_s, write_logs
from hetsgd.real.workforce import ChildLost, Interrupted, Workforce


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """A finished run: its trace, the final parameters (P,), and in words what it ran on."""

    trace: Trace
    parameters: NDArray[Any]
    device: str


def train(plan: Plan, dataset: Dataset, *, progress: ProgressSink | None = None) -> Trained:
    """Run the plan on this machine's hardware with the rows of `dataset`.

    An accelerator whose device is `cpu` is stood in for by a process with copies of its own. Ctrl-C and SIGTERM
    end the run with status `interrupted` and everything measured so far (in the main thread; elsewhere handlers
    cannot be set). A child process that dies is a fault of the run, which goes on with the others.

    Raises ValueError (PolicyError) when plan, policy and data do not fit together, ChildLost when a child process
    cannot start.
    """
    check_data(plan.workload, dataset)
    check_host(plan.machine, plan.workload)
    fleet = plan.fleet()
    trace = Trace(level=plan.run.trace)
    trace.logical_cpus = plan.machine.logical_cpus
    coordinator = Coordinator(recipe=plan.recipe, fleet=fleet, run=plan.run, trace=trace)
    first = _first_assignments(plan, fleet)
    with Interrupts() as interrupts, launcher() as start, Children(start) as children:
        interrupts.wake = children.wake
        workforce = Workforce(plan, dataset, fleet, coordinator.capacity, children, interrupts)
        orders = RowOrders(workforce.memory["orders"], plan.run.seed, plan.run.order)
        try:
            run = _Run(plan, fleet, trace, coordinator, workforce, orders, interrupts, progress)
            parameters = run.run(first)
        finally:
            orders.close()
    return Trained(trace=trace, parameters=parameters, device=describe(plan, fleet))


def _first_assignments(plan: Plan, fleet: Fleet) -> list[Assign]:
    """What each seat will be given first: decisions are pure, so a second coordinator can be asked beforehand."""
    run = plan.run
    coordinator = Coordinator(recipe=plan.recipe, fleet=fleet, run=run, trace=Trace(level="none"))
    coordinator.begin(None)
    orders = Dispatcher(coordinator).sweep(None, 0.0)
    first = {seat: task for seat, task in reversed(orders) if isinstance(task, Assign)}
    return list(first.values())


class _Run:
    """The course of one run: before, while and after its clock runs."""

    def __init__(
        self, plan: Plan, fleet: Fleet, trace: Trace, coordinator: Coordinator, workforce: Workforce,
        orders: RowOrders, interrupts: Interrupts, progress: ProgressSink | None,
    ) -> None:  # fmt: skip
        self._plan = plan
        self._fleet = fleet
        self._trace = trace
        self._coordinator = coordinator
        self._workforce = workforce
        self._orders = orders
        self._interrupts = interrupts
        self._progress = progress
        declare(trace, plan.machine, fleet)

    def run(self, first: Sequence[Assign]) -> NDArray[Any]:
        """All of it; the final parameters."""
        workforce, coordinator = self._workforce, self._coordinator
        try:
            initial = self._prepare(first)
        except Interrupted:
            coordinator.stop(f"interrupted by {self._interrupts.received[0]} before the start", 0.0, "interrupted")
            coordinator.close(0.0)
            return workforce.parameters.copy()
        merges = MergePlace(
            model=workforce.parameters, own=workforce.own, own_versions=workforce.own_versions,
            counter=UpdateCounter(workforce.memory, len(workforce.readers)),
            weight_decay=self._plan.run.weight_decay, wake=workforce.children.wake,
        )  # fmt: skip
        loop = Loop(
            self._plan, coordinator, self._trace, workforce, merges, self._orders, self._interrupts, self._progress
        )  # fmt: skip
        try:
            loop.run(initial)
            stopped_s = loop.now()
        except MemoryError as error:  # of a merge, or of a result that is held: what was measured is whole
            stopped_s = loop.now()
            coordinator.stop(f"no memory is left in the process that merges: {error}", stopped_s, "failed")
        finally:
            merges.stop()
        elapsed_s = self._stop(loop, merges, stopped_s)
        parameters = workforce.parameters.copy()
        self._evaluate(loop, parameters, elapsed_s)
        coordinator.close(elapsed_s)
        loop.tell(elapsed_s)
        return parameters

    def _prepare(self, first: Sequence[Assign]) -> Loss:
        """Children up, initial loss known, code warm."""
        workforce = self._workforce
        workforce.get_ready()
        loss = workforce.evaluate(workforce.parameters, at_s=0.0, epoch=0, update=0)
        workforce.warm(first, self._orders.slot(0, ()))
        return loss

    def _stop(self, loop: Loop, merges: MergePlace, stopped_s: float) -> float:
        """Let everybody finish the piece at hand, and write what the logs say; the seconds that the run took."""
        workforce, trace = self._workforce, self._trace
        cpu_s = workforce.finish()
        for landed in merges.landed():
            loop.note_landed(landed)
        for child in workforce.children.all:
            trace.totals.cpu_s[child.kind] += cpu_s.get(child.setup.index, 0.0)
        self._memory(loop)
        logs = logs_of(self._plan.machine, workforce.children.all, workforce.readers)
        elapsed_s = max(stopped_s, end_s(logs) - loop.zero_s, *(merge.end_s for merge in loop.landed), 0.0)
        write_logs(trace, logs, loop.landed, self._plan.workload, loop.zero_s)
        return elapsed_s

    def _memory(self, loop: Loop) -> None:
        """Bytes that the run needed, by the same account as in the simulator."""
        plan, memory = self._plan, self._trace.totals.memory
        workload, home = plan.workload, plan.machine.sockets[0].name
        memory[f"{home}:dram"] = host_bytes(workload) + loop.most_handed * workload.model_bytes
        held = self._coordinator.capacity
        for member in self._fleet.members:
            if member.kind == "accelerator" and member.name in loop.largest:
                needed = accelerator_bytes(workload, loop.largest[member.name], batches_held=held)
                memory[f"{member.name}:memory"] = needed

    def _evaluate(self, loop: Loop, parameters: NDArray[Any], elapsed_s: float) -> None:
        """Losses of the snapshots, and of the final model unless it is known or somebody is waiting for the end.

        A second interrupt ends this too.
        """
        coordinator, workforce = self._coordinator, self._workforce
        version, epoch = workforce.counter.version(), coordinator.cursor.epoch
        patience = len(self._interrupts.received)
        try:
            for snapshot in loop.snapshots:
                loss = workforce.evaluate(
                    snapshot.parameters, at_s=snapshot.at_s, epoch=snapshot.evaluate.epoch,
                    update=snapshot.version, patience=patience,
                )  # fmt: skip
                coordinator.note(loss, snapshot.evaluate)
            known = bool(coordinator.losses) and coordinator.losses[-1].update == version
            if not known and not self._interrupts.received:
                coordinator.note(workforce.evaluate(parameters, at_s=elapsed_s, epoch=epoch, update=version))
        except (Interrupted, ChildLost):
            return


def describe(plan: Plan, fleet: Fleet) -> str:
    """What a run used, in words: the processor with its lanes, and the accelerators with their devices."""
    parts = []
    for member in fleet.members:
        if member.kind == "cpu":
            parts.append(f"{member.lanes} lane{'s' if member.lanes > 1 else ''} on {processor_name()}")
        else:
            accelerator = plan.machine.accelerator(member.name)
            what = f"a core of {processor_name()} as stand-in" if accelerator.stand_in else accelerator.device
            parts.append(f"{member.name}: {what}")
    return ", ".join(parts)
