"""Memory bandwidth by working set and by lanes at work, from processes that copy at the same time.

    python -m hetsgd.real.bandwidth CORE      (a child: reads `BYTES START SECONDS` lines, answers bytes per second)

A copy of n bytes counts 2 n: read and written. Needs no torch.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.machine import Socket
from hetsgd.real.cores import usable_cores
from hetsgd.real.launch import child_environment

_LEAD_S: Final = 0.01
_LARGEST_BYTES: Final = 1 << 30
_DRAM_BYTES: Final = 96 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingSet:
    """Memory that each lane goes through again and again; `tier` is where it lies."""

    tier: str
    size_bytes: int


def working_sets(socket: Socket, lanes: int, memory_bytes: int) -> tuple[WorkingSet, ...]:
    """A working set for each tier: half of L2; well beyond L2 yet within all lanes' share of L3; twice L3.

    At most an eighth of memory for all lanes together; without an L3 the second is left out.
    """
    found = [WorkingSet(tier="l2", size_bytes=max(socket.l2_bytes // 2, 1 << 15))]
    shared = min(4 * socket.l2_bytes, socket.l3_bytes // (2 * lanes))
    if shared >= 2 * socket.l2_bytes:
        found.append(WorkingSet(tier="l3", size_bytes=shared))
    most = min(_LARGEST_BYTES, memory_bytes // 8 // lanes)
    found.append(WorkingSet(tier="dram", size_bytes=min(max(_DRAM_BYTES, 2 * socket.l3_bytes // lanes), most)))
    return tuple(found)


class Copiers:
    """Processes that copy memory, each on a core of its own."""

    def __init__(self, children: Sequence[subprocess.Popen[str]]) -> None:
        self._children = children

    def rate(self, lanes: int, size_bytes: int, seconds: float) -> float:
        """Bytes per second of the first `lanes` of them together, each through its own working set."""
        chosen = self._children[:lanes]
        for child in chosen:
            self._tell(child, f"{size_bytes} 0 0\n")  # allocate and touch
        for child in chosen:
            self._answer(child)
        start = time.perf_counter() + _LEAD_S
        for child in chosen:
            self._tell(child, f"{size_bytes} {start!r} {seconds!r}\n")
        return sum(self._answer(child) for child in chosen)

    def _tell(self, child: subprocess.Popen[str], line: str) -> None:
        if child.stdin is None:
            raise RuntimeError("bandwidth: a child has no input")
        child.stdin.write(line)
        child.stdin.flush()

    def _answer(self, child: subprocess.Popen[str]) -> float:
        line = child.stdout.readline() if child.stdout is not None else ""
        if not line:
            raise RuntimeError(f"bandwidth: a process that copies has ended with code {child.wait()}")
        return float(line)


@contextmanager
def copiers(lanes: int) -> Iterator[Copiers]:
    """Processes that copy memory; gone when the context is left."""
    cores = usable_cores()
    children: list[subprocess.Popen[str]] = []
    try:
        for lane in range(lanes):
            core = str(cores[lane % len(cores)])
            children.append(
                subprocess.Popen(
                    [sys.executable, "-P", "-m", "hetsgd.real.bandwidth", core], stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, text=True, env=child_environment(), start_new_session=True,
                )
            )  # fmt: skip
        yield Copiers(children)
    finally:
        for child in children:
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        for child in children:
            try:
                child.wait(1.0)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _serve(core: int) -> None:
    """Answer requests until the input ends."""
    if hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {core})
    source: NDArray[Any] = np.ones(0)
    target = source
    for line in sys.stdin:
        size, start, seconds = line.split()
        items = max(int(size) // 16, 1)
        if len(source) != items:
            source, target = np.ones(items), np.zeros(items)
        rate = _copy(source, target, float(start), float(seconds))
        sys.stdout.write(f"{rate!r}\n")
        sys.stdout.flush()


def _copy(source: NDArray[Any], target: NDArray[Any], start: float, seconds: float) -> float:
    """Copy from `start` on for so long; bytes per second of processor time, so that waits for a core do not count."""
    np.copyto(target, source)
    if seconds <= 0.0:
        return 0.0
    while time.perf_counter() < start:
        pass
    until, copies, spent_s = start + seconds, 0, time.thread_time()
    while not copies or time.perf_counter() < until:
        np.copyto(target, source)
        copies += 1
    return 2.0 * source.nbytes * copies / (time.thread_time() - spent_s)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
