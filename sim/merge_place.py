"""The merge place: merges queue, take their time in host memory, and take effect at their end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from hetsgd.models.cost import merge_bytes
from hetsgd.models.policy import Merge, Result
from hetsgd.models.trace import Place
from hetsgd.sim.device import Device
from hetsgd.sim.record import MERGE, PULL, PUSH
from hetsgd.sim.team import CpuTeam
from hetsgd.sim.world import World

Step = Callable[[], None]


class MergePlace:
    """Does one merge after the other, beside the model, with one thread's share of the DRAM bandwidth.

    A replica that was kept on an accelerator comes up over its links first, and goes back if the merge changes it.
    """

    def __init__(self, world: World, workers: Mapping[str, Device | CpuTeam]) -> None:
        self._world = world
        self._workers = workers
        self._place = world.recorder.place(Place(name="merge", worker=None, kind="merge"))
        self._nobody = world.recorder.trace.code("")
        self._queue: deque[Merge] = deque()
        self._results: dict[int, Result] = {}
        self._current: Merge | None = None
        self._steps: deque[Step] = deque()
        self._start_s = 0.0
        self._bytes = 0
        self._moving: Device | None = None

    @property
    def held_bytes(self) -> int:
        """Gradients and replicas in host memory that were handed in and not merged or dropped."""
        return len(self._results) * self._world.model_bytes

    def hold(self, result: Result) -> None:
        """A gradient or replica was handed in; a merge may name it."""
        self._results[result.id] = result

    def drop(self, ids: Iterable[int]) -> None:
        """Results are discarded or lost with their worker."""
        gone = [id_ for id_ in ids if self._results.pop(id_, None) is not None]
        self._world.learner.drop(gone)

    def submit(self, merges: Iterable[Merge]) -> None:
        """Take merges in the order in which they are to land; discards take no time."""
        for merge in merges:
            if merge.rule == "discard":
                self.drop(merge.inputs)
            else:
                self._queue.append(merge)
        self._pump()

    def _pump(self) -> None:
        if self._current is None and self._queue:
            merge = self._current = self._queue.popleft()
            self._start_s = self._world.env.now_s
            self._steps = deque(self._plan(merge))
            self._advance()

    def _plan(self, merge: Merge) -> list[Step]:
        """Fetch kept replicas from accelerators, merge, send back what the merge changed on them."""
        model_bytes = self._world.model_bytes
        devices = [
            worker
            for result in (self._results[key] for key in merge.inputs)
            if result.work.write == "keep" and isinstance(worker := self._workers[result.seat.worker], Device)
        ]
        back = [self._workers[name] for name in merge.write_back]
        changed = devices if merge.rule == "elastic" else []
        returned = list(dict.fromkeys([*changed, *(worker for worker in back if isinstance(worker, Device))]))
        on_host = len(back) - sum(isinstance(worker, Device) for worker in back)
        self._bytes = merge_bytes(merge, model_bytes, host_write_backs=on_host)
        up = [self._moved(device, merge, up=True) for device in devices if device.alive]
        down = [self._moved(device, merge, up=False) for device in returned if device.alive]
        return [*up, self._work, *down]

    def _moved(self, device: Device, merge: Merge, *, up: bool) -> Step:
        path, kind = (device.up, PUSH) if up else (device.down, PULL)
        size_bytes = self._world.model_bytes

        def move() -> None:
            if device.alive:
                self._moving = device
                device.move(path, kind, merge.id, size_bytes, moved)
            else:
                self._advance()

        def moved() -> None:
            self._moving = None
            self._advance()

        return move

    def _work(self) -> None:
        memory = self._world.home_memory
        memory.join(self._world.host_copy, float(self._bytes), self, self._world.env.now_s)
        memory.settle()

    def served(self, now_s: float) -> None:
        """The work in host memory is done."""
        self._advance()

    def _advance(self) -> None:
        if self._steps:
            self._steps.popleft()()
        else:
            self._land()

    def lost(self, worker: Device | CpuTeam) -> None:
        """A worker died: a merge that waits for one of its transfers goes on without it."""
        if self._moving is worker:
            self._moving = None
            self._advance()

    def _land(self) -> None:
        world, merge = self._world, self._current
        if merge is None:
            return
        self._current = None
        world.learner.merge(merge)
        world.version += 1
        version, start_s = world.version, self._start_s
        seats = [self._results.pop(key).seat for key in merge.inputs]
        for name in merge.write_back:
            self._workers[name].wrote_back(version)
        world.recorder.span(MERGE, self._place, self._nobody, merge.id, start_s, world.env.now_s, self._bytes)
        world.desk.landed(merge, version, start_s, seats)
        self._pump()

    def cut(self) -> None:
        """The run ends: the time until now counts."""
        if self._current is not None:
            now_s = self._world.env.now_s
            self._world.recorder.span(MERGE, self._place, self._nobody, self._current.id, self._start_s, now_s)
