"""What a person sees while something runs: progress and log on stderr, never on stdout.

On a terminal a bar that moves; elsewhere (a file, a pipe, continuous integration) a line now and then.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from hetsgd.models.run import Progress

_LINE_EVERY_S: Final = 10.0


def say(text: str) -> None:
    """One line of log."""
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
        if sys.stderr.isatty():
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
            self._bar.stop()

    def at(self, done: float, note: str = "") -> None:
        """`done` of the total is reached; `note` says where that is."""
        if self._bar is not None and self._task is not None:
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
        note = f"t {progress.now_s:.3g} s, epoch {progress.epoch}, {progress.updates:,} updates{loss}"
        self.at(progress.fraction * self._total, note)
