"""What a person sees while something runs: progress and log on stderr, never on stdout.

On a terminal a bar that moves; elsewhere (a file, a pipe, continuous integration) a line now and then.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from hetsgd.models.words import counted
from hetsgd.studies.failure import NotSaved

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from hetsgd.models.run import Progress

_LINE_EVERY_S: Final = 10.0


def say(text: str) -> None:
    """One line of log; a stderr that is closed or gone takes nothing else with it."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)


class Meter:
    """Progress of something with a known total (1.0: a fraction). Use it as a context manager."""

    def __init__(self, title: str, total: float) -> None:
        self._title = title
        self._total = total
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._begun_s = time.perf_counter()
        self._said_s = self._begun_s

    def __enter__(self) -> Self:
        if sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"), console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=self._total, note="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._bar is not None:
            with suppress(OSError):  # the terminal may be gone
                self._bar.stop()

    def at(self, done: float, note: str = "") -> None:
        """`done` of the total is reached; `note` says where that is."""
        if self._bar is not None and self._task is not None:
            with suppress(OSError):
                self._bar.update(self._task, completed=done, note=note)
            return
        now_s = time.perf_counter()
        if now_s - self._said_s >= _LINE_EVERY_S:
            self._said_s = now_s
            share = done / self._total if self._total else 1.0
            say(f"{self._title}: {share:.0%} after {now_s - self._begun_s:.0f} s  {note}".rstrip())

    def run(self, progress: Progress) -> None:
        """A progress sink for an engine: shows the fraction of the stop rule, epoch, updates and loss."""
        loss = "" if progress.loss is None else f", loss {progress.loss:.4g}"
        note = f"t {progress.now_s:.3g} s, epoch {progress.epoch}, {counted(progress.updates, 'update')}{loss}"
        self.at(progress.fraction * self._total, note)


@contextmanager
def results_only() -> Iterator[None]:
    """Whatever is printed inside goes to stderr: stdout is for results, and a foreign module may print anything.

    Both Python's stdout and the file behind it change, so that libraries and child processes are caught as well.
    """
    if sys.stdout is not None:
        sys.stdout.flush()
    with redirect_stdout(sys.stderr), _second_file():
        yield


@contextmanager
def _second_file() -> Iterator[None]:
    try:
        kept = os.dup(1)
    except OSError:  # a closed stdout spoils nothing
        yield
        return
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


class ClosedStdout(io.TextIOBase):
    """Stands for a stdout that was closed before the program began: what is written is lost, and `lost` notes it."""

    def __init__(self) -> None:
        self.lost = False

    def writable(self) -> bool:
        """It takes what is written."""
        return True

    def write(self, text: str) -> int:
        """Lose it."""
        self.lost = self.lost or bool(text)
        return len(text)


def mend_closed_streams() -> None:
    """Where the program was started without stdin, stdout or stderr: what is opened later must not take their place."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    if sys.stdout is None:
        sys.stdout = ClosedStdout()


@contextmanager
def showing(*, kept: bool = False) -> Iterator[None]:
    """Print results inside; `kept`: they are in a file too. A reader that has gone away (`| head`) is no fault.

    NotSaved where stdout is full, or closed and the results are nowhere else.
    """
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
    except OSError as error:
        discard_stdout()
        if not (kept and error.errno == errno.EIO):  # a terminal that is gone has no reader either
            raise NotSaved(f"stdout: cannot be written: {error.strerror or error}") from error
    if isinstance(sys.stdout, ClosedStdout) and sys.stdout.lost:
        sys.stdout.lost = False
        if not kept:
            raise NotSaved("stdout: is closed; leave it open, or keep the results with --out where the command has it")


def discard_stdout() -> None:
    """Nobody reads any more: what is still in the buffer must not complain when Python ends."""
    with suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
