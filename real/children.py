"""The parent's side of its child processes: starting them, talking to them, and ending them whatever happens."""

from __future__ import annotations

import contextlib
import math
import select
import signal
import socket
import time
from collections.abc import Sequence
from typing import Final

from hetsgd.models.policy import Kind, Seat
from hetsgd.real.child import Setup, send_setup
from hetsgd.real.launch import Launcher
from hetsgd.real.messages import REPORT_BYTES, Order, OrderKind, Report, pack_order, unpack_reports

_RECEIVED_BYTES: Final = 256 * REPORT_BYTES
_END_S: Final = 5.0


class ChildProcess:
    """One child: the process, the connection to it and which seat and lane it serves."""

    def __init__(self, launcher: Launcher, setup: Setup, kind: Kind, seat: Seat, lane: int) -> None:
        self.setup = setup
        self.kind = kind
        self.seat = seat
        self.lane = lane
        self.alive = True
        self._data = b""
        self._orders: list[bytes] = []
        here, there = socket.socketpair()
        self.connection = here
        try:
            self._process = launcher.start(kind, setup.device, there)
        except OSError:
            here.close()
            raise
        finally:
            there.close()

    @property
    def name(self) -> str:
        """The lane or accelerator in words."""
        return self.setup.name

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def send_setup(self, descriptors: Sequence[int]) -> None:
        """Send the setup; a child that is dead by now is noticed when its connection is read."""
        with contextlib.suppress(OSError):
            send_setup(self.connection, self.setup, descriptors)

    def send(self, order: Order) -> None:
        """Send an order with the next `flush`, which waiting for reports does for all children."""
        self._orders.append(pack_order(order))

    def flush(self) -> None:
        """Send the orders that were given; a child that is dead by now is noticed as above."""
        if self._orders:
            orders, self._orders = self._orders, []
            with contextlib.suppress(OSError):
                self.connection.sendall(b"".join(orders))

    def receive(self) -> list[Report] | None:
        """The reports that have come; None when the child is gone."""
        try:
            more = self.connection.recv(_RECEIVED_BYTES)
        except ConnectionError:
            return None
        if not more:
            return None
        data = self._data + more
        whole = len(data) - len(data) % REPORT_BYTES
        self._data = data[whole:]
        return unpack_reports(data[:whole])

    def end_in_words(self) -> str:
        """Wait for a child that has closed its connection, and say how it ended."""
        code = self._process.wait(_END_S)
        if code is None:
            self._process.kill()
            code = self._process.wait(_END_S) or 0
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"killed by {signal.Signals(-code).name}"
        return f"ended with code {code}"

    def kill(self) -> None:
        """End it by force; that it is gone is noticed when its connection is read."""
        self._process.kill()

    def close(self) -> None:
        """Close the connection, which makes the child quit once it has done what it is at."""
        self.send(Order(kind=OrderKind.QUIT, serial=0))
        self.flush()
        self.connection.close()
        self.alive = False

    def reap(self, wait_s: float) -> None:
        """Wait for the end of the process, and kill it when it takes longer."""
        if self._process.wait(wait_s) is None:
            self._process.kill()
            self._process.wait(_END_S)


class Children:
    """All child processes of a run. Use it as a context: on leaving, every one of them is gone."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self.all: list[ChildProcess] = []
        self._poll = select.poll()
        self._by_descriptor: dict[int, ChildProcess] = {}
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._poll.register(self._wake_read, select.POLLIN)

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def live(self) -> list[ChildProcess]:
        """Those that have not been seen to die."""
        return [child for child in self.all if child.alive]

    def start(self, setup: Setup, kind: Kind, seat: Seat, lane: int) -> ChildProcess:
        """Start one more child; it gets its setup with `send_setups`."""
        child = ChildProcess(self._launcher, setup, kind, seat, lane)
        self.all.append(child)
        self._poll.register(child.connection, select.POLLIN)
        self._by_descriptor[child.connection.fileno()] = child
        return child

    def send_setups(self, descriptors: Sequence[int]) -> None:
        """Send every child its setup with the descriptors of the shared memories."""
        for child in self.all:
            child.send_setup(descriptors)

    def wake(self) -> None:
        """Make `select` return, from another thread or a signal handler."""
        with contextlib.suppress(OSError):
            self._wake_write.send(b"\0")

    def select(self, timeout_s: float) -> Sequence[ChildProcess]:
        """The children that have said something or died, after waiting for one at most `timeout_s`.

        Orders that were given to any of them go out first.
        """
        for child in self._by_descriptor.values():
            child.flush()
        ready = []
        for descriptor, _ in self._poll.poll(math.ceil(timeout_s * 1e3)):
            child_or_none = self._by_descriptor.get(descriptor)
            if child_or_none is None:
                with contextlib.suppress(BlockingIOError):
                    self._wake_read.recv(4096)
            else:
                ready.append(child_or_none)
        if len(ready) > 1:
            ready.sort(key=lambda child: child.setup.index)
        return ready

    def bury(self, child: ChildProcess) -> str:
        """Take a dead child out, and say how it ended."""
        self._forget(child)
        child.alive = False
        child.connection.close()
        return child.end_in_words()

    def end(self, *, patience_s: float = _END_S) -> None:
        """End all children: those that are idle at once, the others after `patience_s` by force."""
        for child in self.live:
            self._forget(child)
            child.close()
        until = time.monotonic() + patience_s
        for child in self.all:
            child.reap(max(until - time.monotonic(), 0.0))
        self._wake_read.close()
        self._wake_write.close()

    def _forget(self, child: ChildProcess) -> None:
        self._poll.unregister(child.connection)
        del self._by_descriptor[child.connection.fileno()]
