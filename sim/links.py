"""Transfers between host and accelerators: links shared by what moves in one direction, copy engines that queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from hetsgd.models.machine import Accelerator, Direction, Link, Machine
from hetsgd.models.trace import Place
from hetsgd.sim.fluid import Shared, Stream
from hetsgd.sim.record import PlaceLog, Recorder
from hetsgd.sim.world import World


class LinkEnd:
    """One direction of a link: its rate, the transfers on it, and a place for each slot that they take."""

    def __init__(self, link: Link, direction: Direction, pinned: bool, recorder: Recorder) -> None:
        self.name = f"{link.name}:{direction}"
        self.rate = link.bytes_per_s(pinned)
        self.active = 0
        self.paths: list[Path] = []
        self._recorder = recorder
        self._slots: list[PlaceLog] = []
        self._taken: list[bool] = []
        self._grow()

    @property
    def place(self) -> PlaceLog:
        """The place of a transfer that is alone on it."""
        return self._slots[0]

    def _grow(self) -> None:
        name = self.name if not self._slots else f"{self.name}[{len(self._slots)}]"
        self._slots.append(self._recorder.place(Place(name=name, worker=None, kind="link")))
        self._taken.append(False)

    @property
    def busy_s(self) -> float:
        """Seconds of all transfers on it."""
        return sum(sum(slot.busy_s) for slot in self._slots)

    def enter(self) -> int:
        """Take the first free slot."""
        self.active += 1
        if False not in self._taken:
            self._grow()
        slot = self._taken.index(False)
        self._taken[slot] = True
        return slot

    def exit(self, slot: int) -> PlaceLog:
        """Give a slot back; returns the place that its span belongs to."""
        self.active -= 1
        self._taken[slot] = False
        return self._slots[slot]


class Path:
    """The way between the host memory that holds model and rows, and one accelerator, in one direction.

    A transfer draws on that memory once (twice where a core copies within it). Its rate is the smallest fair share of
    the links on the way, and a fair share of the memory. The latency of the way counts as the bytes that it could have
    moved meanwhile, so that an undisturbed transfer takes latency + bytes / rate.
    """

    def __init__(self, memory: Shared, ends: list[LinkEnd], latency_s: float, draws: int) -> None:
        self.memory = memory
        self.ends = ends
        self.draws = draws
        self.rate = min(end.rate for end in ends)
        self.latency_bytes = latency_s * self.rate
        self.stream = Stream(draws * self.rate)
        self.places = [end.place for end in ends]
        self.private = True
        """Whether no other path shares its links: its rate never changes then (known once all paths are made)."""
        for end in ends:
            end.paths.append(self)
            if len(end.paths) > 1:
                for path in end.paths:
                    path.private = False

    def share(self) -> None:
        """Look anew at what the links on the way allow, after a transfer came or went on one of them."""
        rate = min(end.rate / max(end.active, 1) for end in self.ends)
        self.memory.recap(self.stream, self.draws * rate)
        self.memory.settle()

    def neighbours(self) -> Iterable[Path]:
        """The other paths that share a link with this one."""
        return (path for end in self.ends if len(end.paths) > 1 for path in end.paths if path is not self)


class Transfer:
    """One transfer; `begun` is called when it leaves the queue of the copy engines, `done` when it has arrived.

    What is moved again and again, one at a time, may be one transfer: whoever asks for it sets the `id` first.
    """

    __slots__ = ("amount", "begun", "done", "engines", "id", "kind", "path", "size_bytes", "slots", "start_s")

    slots: list[int]
    """Where it is on each link of a path that it may share."""

    def __init__(
        self, engines: CopyEngines, path: Path, kind: int, id_: int, size_bytes: int, done: Callable[[], None],
        begun: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self.engines = engines
        self.path = path
        self.kind = kind
        self.id = id_
        self.size_bytes = size_bytes
        self.amount = path.draws * (size_bytes + path.latency_bytes)
        self.done = done
        self.begun = begun
        self.start_s = 0.0

    def start(self) -> None:
        """Begin to move, now."""
        path = self.path
        now_s = self.start_s = self.engines.clock.now_s
        if self.begun is not None:
            self.begun()
        if path.private:
            path.memory.carry(path.stream, self.amount, self, now_s)
            return
        path.memory.join(path.stream, self.amount, self, now_s)
        self.slots = [end.enter() for end in path.ends]
        path.share()
        for neighbour in path.neighbours():
            neighbour.share()

    def served(self, now_s: float) -> None:
        """All bytes have arrived."""
        path, engines = self.path, self.engines
        if path.private:
            # The same as `Recorder.span`, which runs have most of their calls of from here.
            kind, start_s, size_bytes = self.kind, self.start_s, self.size_bytes
            for place in path.places:
                place.busy_s[kind] += now_s - start_s
                place.bytes += size_bytes
                if engines.full:
                    engines.add_span(
                        engines.span_row(kind, place.code, engines.worker, self.id, start_s, now_s, size_bytes)
                    )
        else:
            self._leave(self.size_bytes, now_s)
        engines.moving.remove(self)
        self.done()
        # What follows from it has been asked for before others that wait may start.
        if engines.needed or engines.ahead:
            engines.pump()

    def cut(self) -> None:
        """Stop on the way: a fault, or the end of the run. What has been moved counts."""
        path = self.path
        missing = path.memory.missing(path.stream, self)
        path.memory.leave(path.stream, self)
        moved_bytes = int(max(0.0, (self.amount - missing) / path.draws - path.latency_bytes))
        self._leave(moved_bytes, self.engines.clock.now_s)
        path.memory.settle()

    def _leave(self, moved_bytes: int, now_s: float) -> None:
        path, engines = self.path, self.engines
        span, worker = engines.span, engines.worker
        if path.private:
            for place in path.places:
                span(self.kind, place, worker, self.id, self.start_s, now_s, moved_bytes)
            return
        for end, slot in zip(path.ends, self.slots, strict=True):
            span(self.kind, end.exit(slot), worker, self.id, self.start_s, now_s, moved_bytes)
        for neighbour in path.neighbours():
            neighbour.share()


class CopyEngines:
    """The copy engines of one accelerator (`worker` in the trace): so many transfers at once, one in each direction.

    They start in the order asked for, but rows that are loaded ahead wait behind what work under way needs.
    """

    def __init__(self, world: World, worker: int, count: int) -> None:
        recorder = world.recorder
        self.clock = world.env
        self.span = recorder.span
        self.full = recorder.full
        self.add_span, self.span_row = recorder.add_span, recorder.span_row
        self.worker = worker
        self.moving: list[Transfer] = []
        self._count = count
        self.needed: deque[Transfer] = deque()
        self.ahead: deque[Transfer] = deque()

    def move(
        self, path: Path, kind: int, id_: int, size_bytes: int, done: Callable[[], None],
        begun: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """Transfer bytes, from now on or when an engine is free."""
        self.ask(Transfer(self, path, kind, id_, size_bytes, done, begun))

    def ask(self, transfer: Transfer, *, ahead: bool = False) -> None:
        """Start a transfer, now or when an engine is free."""
        if not (self.moving or self.needed or (ahead and self.ahead)):
            self.moving.append(transfer)
            transfer.start()
        else:
            (self.ahead if ahead else self.needed).append(transfer)
            self.pump()

    def drop(self) -> None:
        """Stop all transfers."""
        self.needed.clear()
        self.ahead.clear()
        moving, self.moving = self.moving, []
        for transfer in moving:
            transfer.cut()

    def pump(self) -> None:
        """Start what can start."""
        for waiting in (self.needed, self.ahead):
            while waiting and len(self.moving) < self._count:
                busy = [transfer.path for transfer in self.moving]
                fits = next((transfer for transfer in waiting if transfer.path not in busy), None)
                if fits is None:
                    break
                waiting.remove(fits)
                self.moving.append(fits)
                fits.start()


class Fabric:
    """All links of a machine, and the paths of its accelerators."""

    def __init__(self, world: World, recorder: Recorder) -> None:
        machine = world.machine
        self._world = world
        self._machine: Machine = machine
        self._recorder = recorder
        self._ends: dict[tuple[str, Direction], LinkEnd] = {}

    def paths(self, accelerator: Accelerator) -> tuple[Path, Path]:
        """The ways down to an accelerator and up from it."""
        home = self._world.home.name
        return self._path(home, accelerator.name, accelerator), self._path(accelerator.name, home, accelerator)

    def _path(self, source: str, target: str, accelerator: Accelerator) -> Path:
        route = self._machine.route(source, target)
        ends = []
        for link, direction in route:
            key = (link.name, direction)
            if key not in self._ends:
                self._ends[key] = LinkEnd(link, direction, self._machine.pinned, self._recorder)
            ends.append(self._ends[key])
        draws = 2 if accelerator.stand_in else 1
        return Path(self._world.home_memory, ends, sum(link.latency_s for link, _ in route), draws)
