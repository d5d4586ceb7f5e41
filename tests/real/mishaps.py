"""What tests do to the children of a run: kill them, stop them, take their memory away."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil

from hetsgd.models.plan import ProgressSink
from hetsgd.models.run import Progress
from hetsgd.models.trace import Trace

Mishap = Callable[[int], None]
"""Does something to the process of this number."""


def kill(pid: int) -> None:
    """As `kill -9` does."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def hang(pid: int) -> None:
    """It stays there and does nothing more."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)


def starve(pid: int) -> None:
    """From now on it gets no more memory (Linux)."""
    with suppress(ProcessLookupError, psutil.NoSuchProcess):
        size = psutil.Process(pid).memory_info().vms
        resource.prlimit(pid, resource.RLIMIT_AS, (size, size))


def pids(name: str) -> list[int]:
    """The children of this process that process lists call by this name."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if child.name() == f"hetsgd {name}":
                found.append(child.pid)
    return found


def once(mishap: Mishap, name: str, after_s: float = 0.15) -> ProgressSink:
    """Does it to the child of this name, once the run is under way."""
    done: list[int] = []

    def sink(progress: Progress) -> None:
        if progress.now_s < after_s or done:
            return
        for pid in pids(name):
            done.append(pid)
            mishap(pid)

    return sink


@contextmanager
def at(delay_s: float, mishap: Mishap, name: str) -> Iterator[list[int]]:
    """Does it after this time, wherever the run is then; the numbers of the processes it met."""
    met: list[int] = []

    def strike() -> None:
        for pid in pids(name):
            met.append(pid)
            mishap(pid)

    timer = threading.Timer(delay_s, strike)
    timer.start()
    try:
        yield met
    finally:
        timer.cancel()
        timer.join()


def faults(trace: Trace) -> list[tuple[str, str, int]]:
    """Worker, kind and lane of each fault."""
    return [
        (trace.texts[row["worker_text"]], trace.texts[row["kind_text"]], int(row["lane"])) for row in trace["faults"]
    ]
