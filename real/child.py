"""What every child process shares: how it starts, what it maps, how it takes orders and how it ends.

A child is `python -m hetsgd.real.lane FD` or `... .accelerator FD`, FD being its end of a connection to the parent,
over which it first gets its `Setup`. It never imports the caller's `__main__`. It ends when the connection closes,
and on Linux also when the parent is killed while the child is busy.
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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from hetsgd.models.workload import Workload
from hetsgd.real.logs import LogWriter, UpdateCounter
from hetsgd.real.messages import Closed, Inbox, Order, OrderKind, Report, ReportKind
from hetsgd.real.shared_memory import Layout, SharedMemory

ERROR_BYTES: Final = 4096
_PR_SET_PDEATHSIG: Final = 1
LENGTH: Final = struct.Struct("=q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a child needs to know. `index` is its row in the shared arrays, `worker_index` that of its worker.

    `first` is the index of the first lane of its team (its own where it has none), `seat` the name of its seat,
    `core` the core to run on (None: wherever the system likes), `memory` and `data` the shared memories with their
    descriptors.
    """

    index: int
    first: int
    worker: str
    worker_index: int
    seat: str
    device: str
    core: int | None
    parent: int
    workload: Workload
    weight_decay: float
    memory: tuple[Layout, int]
    data: tuple[Layout, int]


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

    def __init__(self, setup: Setup, inbox: Inbox) -> None:
        self.setup = setup
        self.memory = SharedMemory(*setup.memory)
        self.data = SharedMemory(*setup.data)
        self.counter = UpdateCounter(self.memory, setup.index)
        self.log = LogWriter(self.memory, setup.index)
        self._inbox = inbox
        self._orders: deque[Order] = deque()
        self._granted: set[int] = set()
        self._deadline = self.memory["deadline"]
        self._cancelled: NDArray[Any] = self.memory["cancelled"][setup.index]
        self._cpu_s = 0.0

    def halted(self, serial: int, now_s: float) -> bool:
        """Whether an order is to be broken off: the run has stopped, or what was given out is void."""
        return bool(now_s >= self._deadline[0] or serial <= self._cancelled[0])

    def queued(self) -> Order | None:
        """The next assignment, if it has arrived by now; it stays in the queue."""
        while (order := self._inbox.receive(wait=False)) is not None:
            self._orders.append(order)
        return next((order for order in self._orders if order.kind == OrderKind.ASSIGN), None)

    def serve(self, duties: Duties) -> None:
        """Take orders until told to quit; raises Closed when the parent is gone."""
        self._say(Report(kind=ReportKind.READY, serial=0))
        waiting: deque[Order] = deque()
        while True:
            if waiting:
                duties.prepare(waiting[0])
                if waiting[0].go or waiting[0].serial in self._granted:
                    order = waiting.popleft()
                    self._granted.discard(order.serial)
                    if not self.halted(order.serial, time.perf_counter()):
                        self._say(duties.run(order))
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
        if self._orders:
            return self._orders.popleft()
        order = self._inbox.receive()
        if order is None:
            raise Closed
        return order

    def _say(self, report: Report | None) -> None:
        if report is not None:
            self._inbox.report(report)

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


def run_child(make: Callable[[Child], Duties]) -> None:
    """The main function of a child process; `make` builds what it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    connection = socket.socket(fileno=int(sys.argv[1]))
    setup = _receive_setup(connection)
    if setup is None:
        return
    _die_with(setup.parent)
    if setup.core is not None and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {setup.core})
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    child = Child(setup, Inbox(connection))
    try:
        child.serve(make(child))
    except Closed:
        pass
    except Exception as error:  # noqa: BLE001 -- whatever it is, the parent has to learn what ended this child
        child.tell_error(error)
        sys.exit(3)


def _receive_setup(connection: socket.socket) -> Setup | None:
    """The setup, or None when the parent is gone before it sent one."""
    with connection.makefile("rb", buffering=0) as stream:
        head = _read_exactly(stream.read, LENGTH.size)
        body = _read_exactly(stream.read, LENGTH.unpack(head)[0]) if head else b""
    if not body:
        return None
    setup: Setup = pickle.loads(body)
    return setup


def _read_exactly(read: Callable[[int], bytes | None], size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = read(size - len(data))
        if not more:
            return b""
        data += more
    return data


def _die_with(parent: int) -> None:
    """On Linux, be killed when the parent dies, however it dies; elsewhere the closed connection has to do."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
