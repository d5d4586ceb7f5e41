"""How child processes come about: forked by a nursery that has loaded torch, or each on its own.

Loading torch takes a second of processor time. A nursery loads it once for all lanes and stand-ins of a run, and
for all runs inside `warm_start`. A device of its own needs a process of its own, since its driver does not survive
a fork, and outside Linux forking a process with numerical libraries in it is not safe.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

import hetsgd
from hetsgd.models.policy import Kind

REQUEST: Final = struct.Struct("=q")
NEWS: Final = struct.Struct("=qqq")
STARTED: Final = 0
ENDED: Final = 1

_CODE: Final[dict[Kind, int]] = {"cpu": 0, "accelerator": 1}
_MODULES: Final[dict[Kind, str]] = {"cpu": "hetsgd.real.lane", "accelerator": "hetsgd.real.accelerator"}
_ONE_THREAD: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_UNKNOWN: Final = 1


class Process(Protocol):
    """A process that was started."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    def wait(self, timeout_s: float) -> int | None:
        """Its exit code, -n when signal n killed it; None when it runs on after this time."""
        ...

    def kill(self) -> None:
        """End it by force."""
        ...


class OwnProcess:
    """`python -m MODULE FD PARENT`: an interpreter that finds the same packages and imports no caller's `__main__`."""

    def __init__(self, module: str, connection: socket.socket) -> None:
        if not sys.executable:
            raise RuntimeError("train: sys.executable is empty, so no child process can be started")
        # A session of its own: a Ctrl-C in the terminal reaches the parent alone, which then ends its children.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(connection.fileno()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(connection.fileno(),),
            env=child_environment(),
            start_new_session=True,
        )
        self.pid = self._process.pid

    def wait(self, timeout_s: float) -> int | None:
        """See Process."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """See Process."""
        self._process.kill()


def child_environment() -> dict[str, str]:
    """The environment of a child: it finds the same packages as this process, and computes with one thread."""
    root = str(Path(hetsgd.__file__).parent.parent)
    paths = [root, *(path for path in sys.path if path and path != root)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    environment.update(dict.fromkeys(_ONE_THREAD, "1"))
    return environment


class Nursery:
    """The parent's side of a nursery process."""

    def __init__(self) -> None:
        here, there = socket.socketpair()
        self._control = here
        self._data = b""
        self._ended: dict[int, int] = {}
        self._started: list[int] = []
        with there:
            self._process = OwnProcess("hetsgd.real.nursery_main", there)

    @property
    def alive(self) -> bool:
        """Whether it can still start children."""
        return self._process.wait(0.0) is None

    def start(self, kind: Kind, connection: socket.socket) -> Process:
        """Fork a child that talks over `connection`; OSError when the nursery is gone."""
        socket.send_fds(self._control, [REQUEST.pack(_CODE[kind])], [connection.fileno()])
        while not self._started:
            if not self._news(None):
                raise ConnectionError("train: the process that starts the others has ended")
        return _Forked(self, self._started.pop())

    def end_of(self, pid: int, timeout_s: float) -> int | None:
        """The exit code of a child; None when it runs on after this time."""
        until = time.monotonic() + timeout_s
        while pid not in self._ended:
            left = until - time.monotonic()
            if left <= 0.0:
                return None
            if not self._news(left):
                return _UNKNOWN if not self.alive else None
        return self._ended[pid]

    def _news(self, timeout_s: float | None) -> bool:
        """Read what the nursery says; False when it says nothing in this time or is gone."""
        self._control.settimeout(timeout_s)
        try:
            more = self._control.recv(64 * NEWS.size)
        except (TimeoutError, ConnectionError):
            return False
        self._data += more
        while len(self._data) >= NEWS.size:
            what, pid, code = NEWS.unpack(self._data[: NEWS.size])
            self._data = self._data[NEWS.size :]
            if what == STARTED:
                self._started.append(pid)
            else:
                self._ended[pid] = code
        return bool(more)

    def close(self) -> None:
        """End it; children that still run end with it."""
        self._control.close()
        if self._process.wait(1.0) is None:
            self._process.kill()
            self._process.wait(10.0)


class _Forked:
    """A child of the nursery."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery = nursery
        self.pid = pid

    def wait(self, timeout_s: float) -> int | None:
        return self._nursery.end_of(self.pid, timeout_s)

    def kill(self) -> None:
        if self._nursery.end_of(self.pid, 0.0) is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class Launcher:
    """Starts the children of one run, by a nursery where that is safe."""

    def __init__(self, nursery: Nursery | None) -> None:
        self._nursery = nursery

    def start(self, kind: Kind, device: str, connection: socket.socket) -> Process:
        """Start a child of this kind for this torch device."""
        if self._nursery is None or device.partition(":")[0] != "cpu":
            return OwnProcess(_MODULES[kind], connection)
        return self._nursery.start(kind, connection)


_lock = threading.Lock()
_kept: list[Nursery] = []


@contextlib.contextmanager
def warm_start() -> Iterator[None]:
    """Runs inside this context share a process that has loaded torch, and start in a fraction of a second.

    It ends with the context. One run at a time uses it; others that run beside it start their own.
    """
    if sys.platform != "linux":
        yield
        return
    nursery = Nursery()
    with _lock:
        _kept.append(nursery)
    try:
        yield
    finally:
        with _lock:
            if nursery in _kept:
                _kept.remove(nursery)
        nursery.close()


@contextlib.contextmanager
def launcher() -> Iterator[Launcher]:
    """What starts the children of one run."""
    if sys.platform != "linux":
        yield Launcher(None)
        return
    with _lock:
        kept = _kept.pop() if _kept else None
    if kept is not None and not kept.alive:
        kept.close()
        kept = None
    nursery = kept or Nursery()
    try:
        yield Launcher(nursery)
    finally:
        if kept is None:
            nursery.close()
        else:
            with _lock:
                _kept.append(kept)
