"""The parent's side of its child processes: starting them, talking to them, and ending them whatever happens."""

from __future__ import annotations

import contextlib
import selectors
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
        self._data = bytearray()
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
        """Send an order; likewise."""
        with contextlib.suppress(OSError):
            self.connection.sendall(pack_order(order))

    def receive(self) -> list[Report] | None:
        """The reports that have come; None when the child is gone."""
        try:
            more = self.connection.recv(_RECEIVED_BYTES)
        except ConnectionError:
            return None
        if not more:
            return None
        data = self._data
        data += more
        whole = len(data) - len(data) % REPORT_BYTES
        reports = unpack_reports(bytes(data[:whole]))
        del data[:whole]
        return reports

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

    def close(self) -> None:
        """Close the connection, which makes the child quit once it has done what it is at."""
        self.send(Order(kind=OrderKind.QUIT, serial=0))
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
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)

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
        self._selector.register(child.connection, selectors.EVENT_READ, child)
        return child

    def send_setups(self, descriptors: Sequence[int]) -> None:
        """Send every child its setup with the descriptors of the shared memories."""
        for child in self.all:
            child.send_setup(descriptors)

    def wake(self) -> None:
        """Make `select` return, from another thread or a signal handler."""
        with contextlib.suppress(OSError):
            self._wake_write.send(b"\0")

    def select(self, timeout_s: float | None) -> Sequence[ChildProcess]:
        """The children that have said something or died, after waiting for one at most `timeout_s`."""
        ready = []
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    self._wake_read.recv(4096)
            else:
                ready.append(key.data)
        return sorted(ready, key=lambda child: child.setup.index)

    def bury(self, child: ChildProcess) -> str:
        """Take a dead child out, and say how it ended."""
        self._selector.unregister(child.connection)
        child.alive = False
        child.connection.close()
        return child.end_in_words()

    def end(self, *, patience_s: float = _END_S) -> None:
        """End all children: those that are idle at once, the others after `patience_s` by force."""
        for child in self.live:
            self._selector.unregister(child.connection)
            child.close()
        until = time.monotonic() + patience_s
        for child in self.all:
            child.reap(max(until - time.monotonic(), 0.0))
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()
