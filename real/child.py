"""What every child process shares: how it starts, what it maps, how it takes orders and how it ends.

A child is forked by a nursery or started as `python -m hetsgd.real.lane FD PARENT` or `... .accelerator FD PARENT`,
FD being its end of a connection to the parent, over which it first gets its `Setup` and the descriptors of the shared
memories. It never imports the caller's `__main__`. It ends when the connection closes, and on Linux also when the
process that started it is killed while the child is busy.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import resource
import signal
import socket
import struct
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import cloudpickle
import numpy as np
import torch

from hetsgd.models.workload import Workload
from hetsgd.real.logs import LogWriter, UpdateCounter
from hetsgd.real.messages import IN_PLACE, Closed, Inbox, Order, OrderKind, Report, ReportKind
from hetsgd.real.shared_memory import Layout, SharedMemory

ERROR_BYTES: Final = 4096
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_NAME_BYTES: Final = 15
_LENGTH: Final = struct.Struct("=q")
_HOLD_S: Final = 0.005
"""Reports are held back for about so long at most: what comes next is taken to last as long as what came before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a child needs to know. `name` is what process lists show, `index` its row in the shared arrays.

    `first` is the row of the first lane of its team (its own where it has none), `worker_index` that of its worker in
    arrays of workers, `seat` the name of its seat, `core` the core to run on (None: wherever the system likes),
    `memory` and `data` the layouts of the shared memories.
    """

    name: str
    index: int
    first: int
    worker: str
    worker_index: int
    seat: str
    device: str
    core: int | None
    workload: Workload
    weight_decay: float
    gradient_stats: int
    memory: Layout
    data: Layout


class Duties(Protocol):
    """What a kind of child does with its orders."""

    def prepare(self, order: Order) -> None:
        """Get ready for an assignment before it may read the model: load its rows."""
        ...

    def run(self, order: Order) -> Report | None:
        """Do an assignment; None when it was broken off."""
        ...

    def evaluate(self, order: Order) -> Report | None:
        """Compute losses; None when it was broken off."""
        ...

    def warm(self, order: Order) -> None:
        """Do some steps of the batch size ordered without changing any model."""
        ...


class Child:
    """The common half of a child: its memory, its counters and its orders."""

    def __init__(self, setup: Setup, descriptors: Sequence[int], inbox: Inbox) -> None:
        self.setup = setup
        self.memory = SharedMemory(setup.memory, descriptors[0])
        self.data = SharedMemory(setup.data, descriptors[1])
        self.counter = UpdateCounter(self.memory, setup.index)
        self.log = LogWriter(self.memory, setup.index)
        self._inbox = inbox
        self._waiting: deque[Order] = deque()
        self._granted: set[int] = set()
        self._held: list[Report] = []
        self._deadline = self.memory["deadline"].data
        self._cancelled = self.memory["cancelled"][setup.index].data
        self._cpu_s = 0.0

    def halted(self, serial: int, now_s: float) -> bool:
        """Whether an order is to be broken off: the run has stopped, or what was given out is void."""
        return now_s >= self._deadline[0] or serial <= self._cancelled[0]

    def queued(self) -> Order | None:
        """The next assignment, if it has arrived by now; it stays in the queue."""
        self._inbox.fetch(wait=False)
        return next((order for order in self._inbox.orders if order.kind == OrderKind.ASSIGN), None)

    def serve(self, duties: Duties) -> None:
        """Take orders until told to quit; raises Closed when the parent is gone."""
        self._say(Report(kind=ReportKind.READY, serial=0))
        waiting = self._waiting
        while True:
            if waiting:
                duties.prepare(waiting[0])
                if waiting[0].go or waiting[0].serial in self._granted:
                    order = waiting.popleft()
                    self._granted.discard(order.serial)
                    if not self.halted(order.serial, time.perf_counter()):
                        self._done(order, duties.run(order))
                    continue
            order = self._next()
            if order.kind == OrderKind.ASSIGN:
                waiting.append(order)
            elif order.kind == OrderKind.GO:
                self._granted.add(order.serial)
            elif order.kind == OrderKind.QUIT:
                return
            else:
                if order.kind in (OrderKind.CANCEL, OrderKind.FINISH):
                    waiting.clear()
                    self._granted.clear()
                self._other(order, duties)

    def _other(self, order: Order, duties: Duties) -> None:
        self._say(None)
        if order.kind == OrderKind.EVALUATE:
            self._say(duties.evaluate(order))
        elif order.kind == OrderKind.WARM:
            duties.warm(order)
            self._say(Report(kind=ReportKind.WARMED, serial=order.serial))
        elif order.kind == OrderKind.START:
            self._cpu_s = _cpu_s()
        elif order.kind == OrderKind.CANCEL:
            self._say(Report(kind=ReportKind.IDLE, serial=order.serial))
        elif order.kind == OrderKind.FINISH:
            self._say(Report(kind=ReportKind.FINISHED, serial=order.serial, value=_cpu_s() - self._cpu_s))

    def _next(self) -> Order:
        """The next order. Before it waits for one, everything is reported."""
        inbox = self._inbox
        while not inbox.orders:
            if self._held:
                inbox.fetch(wait=False)
                if inbox.orders:
                    break
                self._say(None)
            inbox.fetch(wait=True)
        return inbox.orders.popleft()

    def _done(self, order: Order, report: Report | None) -> None:
        """Report an assignment at once, or a short one in place together with the ones after it.

        The parent is woken once for several then, and on a machine without a core to spare it is the lanes that it
        takes that time from. Half of the orders at hand are still to be done when the report goes out, so that the
        next ones come in time.
        """
        if report is None:
            return
        held, inbox = self._held, self._inbox
        held.append(report)
        if order.write == IN_PLACE and report.end_s + (report.end_s - report.start_s) < held[0].end_s + _HOLD_S:
            if len(self._waiting) + len(inbox.orders) <= len(held):
                inbox.fetch(wait=False)
            if len(self._waiting) + len(inbox.orders) > len(held):
                return
        self._say(None)

    def _say(self, report: Report | None) -> None:
        """Send what was held back, and then the report."""
        reports, self._held = self._held, []
        if report is not None:
            reports.append(report)
        if reports:
            self._inbox.report(reports)

    def tell_error(self, error: BaseException) -> None:
        """Leave the text of an error for the parent and say so."""
        text = "".join(traceback.format_exception_only(error)).strip()
        frame = traceback.extract_tb(error.__traceback__)[-1:]
        where = "".join(f" ({os.path.basename(f.filename)}:{f.lineno})" for f in frame)
        data = f"{text}{where}".encode()[: ERROR_BYTES - 1]
        area = self.memory["errors"][self.setup.index]
        area[: len(data)] = np.frombuffer(data, dtype=np.uint8)
        area[len(data)] = 0
        with contextlib.suppress(Closed):
            self._say(Report(kind=ReportKind.FAILED, serial=0))


def _cpu_s() -> float:
    """Processor time of this process so far, user and system, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def send_setup(connection: socket.socket, setup: Setup, descriptors: Sequence[int]) -> None:
    """The parent's half of what `run_child` begins with."""
    body = cloudpickle.dumps(setup)
    socket.send_fds(connection, [_LENGTH.pack(len(body))], list(descriptors))
    connection.sendall(body)


def _receive_setup(connection: socket.socket) -> tuple[Setup, list[int]] | None:
    """The setup and the descriptors of the memories, or None when the parent is gone before it sent them."""
    head, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, 2)
    if not head:
        return None
    body = b""
    (size,) = _LENGTH.unpack(head)
    while len(body) < size:
        more = connection.recv(size - len(body))
        if not more:
            return None
        body += more
    setup: Setup = pickle.loads(body)
    return setup, descriptors


def run_child(make: Callable[[Child], Duties], descriptor: int, parent: int) -> int:
    """The main function of a child process: its exit code. `make` builds what it does, `parent` started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    die_with(parent)
    connection = socket.socket(fileno=descriptor)
    try:
        received = _receive_setup(connection)
    except ConnectionError:
        received = None
    if received is None:
        return 0
    setup, descriptors = received
    _control_process(_PR_SET_NAME, f"hetsgd {setup.name}".encode()[:_NAME_BYTES])
    if setup.core is not None and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {setup.core})
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    child = Child(setup, descriptors, Inbox(connection))
    try:
        # No autograd here: this spares every call its bookkeeping, a tenth of a small step.
        with torch.inference_mode():
            child.serve(make(child))
    except Closed:
        return 0
    except Exception as error:  # noqa: BLE001 -- whatever it is, the parent has to learn what ended this child
        child.tell_error(error)
        return 3
    return 0


def main(make: Callable[[Child], Duties]) -> None:
    """Run a child that was started with its descriptor and its parent on the command line."""
    sys.exit(run_child(make, int(sys.argv[1]), int(sys.argv[2])))


def die_with(parent: int) -> None:
    """On Linux, be killed when the parent dies, however it dies; elsewhere the closed connection has to do."""
    _control_process(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _control_process(option: int, value: int | bytes) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(option, value)
