"""Run many jobs in parallel, each in a process of its own kind, and hand back what is done as it is done.

The children start as `python -m hetsgd.studies.pool`, so the caller's `__main__` is never imported again: a script
without a guard, `python -` and a notebook cell all work. A job is a module-level function and one argument, both
sent by cloudpickle. Children hold one thread for arithmetic each, end with their parent, and do not see Ctrl-C.
"""

from __future__ import annotations

import json
import os
import queue
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, Final

import cloudpickle

from hetsgd.studies.failure import BadInput, RunFailed

_LENGTH: Final = struct.Struct("<Q")
_ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
_PARENT_CHECK_S: Final = 1.0
_LOOK_AGAIN_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of job `index`: its `value`, or the `error` in words with the traceback in `detail`."""

    index: int
    value: Any = None
    error: str = ""
    detail: str = ""


def run_all(function: Callable[[Any], Any], arguments: Sequence[Any], workers: int) -> Generator[Outcome]:
    """Yield the outcome of `function(argument)` for each argument, in the order in which they end.

    Closing the generator (or an exception in the caller, Ctrl-C included) ends the children at once. A child that
    dies takes only the job it was at with it.
    """
    if workers < 1:
        raise ValueError(f"workers must be >= 1, got {workers}")
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(len(arguments)):
        todo.put(index)
    done: queue.Queue[Outcome] = queue.Queue()
    children = [_Child(function, arguments, todo, done) for _ in range(min(workers, len(arguments)))]
    try:
        for child in children:
            child.start()
        for _ in arguments:
            yield _next(done)
    finally:
        for child in children:
            child.end()


def _next(done: queue.Queue[Outcome]) -> Outcome:
    while True:
        try:
            return done.get(timeout=0.5)
        except queue.Empty:
            continue


class _Child:
    """One child process and the thread that feeds it."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        arguments: Sequence[Any],
        todo: queue.SimpleQueue[int],
        done: queue.Queue[Outcome],
    ) -> None:
        self._function = function
        self._arguments = arguments
        self._todo = todo
        self._done = done
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False
        self._thread = threading.Thread(target=self._feed, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended = True
        while True:
            process = self._process
            if process is not None and process.poll() is None:
                process.kill()
            if not self._thread.is_alive():
                break
            # It may have been about to start a process that was not there to be killed a moment ago: look again.
            self._thread.join(_LOOK_AGAIN_S)
        self._bury()

    def _feed(self) -> None:
        while not self._ended:
            try:
                index = self._todo.get_nowait()
            except queue.Empty:
                return
            try:
                outcome = self._ask(index)
            except (OSError, EOFError):
                outcome = Outcome(index=index, error=self._death())
            self._done.put(outcome)

    def _ask(self, index: int) -> Outcome:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                # -P: a file of the working folder must not hide a module of the library.
                [sys.executable, "-P", "-m", "hetsgd.studies.pool"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | _ONE_THREAD | {"HETSGD_PARENT": str(os.getpid()), "HETSGD_PATH": json.dumps(sys.path)},
                start_new_session=True,
            )
        pipes = self._process.stdin, self._process.stdout
        if pipes[0] is None or pipes[1] is None:
            raise EOFError
        _send(pipes[0], cloudpickle.dumps((self._function, self._arguments[index])))
        value, error, detail = cloudpickle.loads(_receive(pipes[1]))
        return Outcome(index=index, value=value, error=error, detail=detail)

    def _death(self) -> str:
        return f"the worker process ended with code {self._bury()} (out of memory, or killed)"

    def _bury(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        return process.wait()


def _send(pipe: IO[bytes], payload: bytes) -> None:
    pipe.write(_LENGTH.pack(len(payload)))
    pipe.write(payload)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(pipe, _LENGTH.size))
    return _exactly(pipe, length)


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_S)
    os._exit(1)


def _serve() -> None:
    """The child: answer jobs until the parent closes the pipe. What a job prints goes to stderr."""
    sys.path += [folder for folder in json.loads(os.environ["HETSGD_PATH"]) if folder not in sys.path]
    inbox, outbox = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, args=(int(os.environ["HETSGD_PARENT"]),), daemon=True).start()
    while True:
        try:
            payload = _receive(inbox)
        except (EOFError, struct.error):
            return
        try:
            function, argument = cloudpickle.loads(payload)
            answer = (function(argument), "", "")
        except Exception as error:  # noqa: BLE001 - whatever a job raises belongs to that job alone
            name = "" if isinstance(error, BadInput | RunFailed) else f"{type(error).__name__}: "
            answer = (None, f"{name}{error}", traceback.format_exc())
        try:
            _send(outbox, cloudpickle.dumps(answer))
        except BrokenPipeError:  # the parent is gone, and nobody else wants the answer
            os._exit(1)


if __name__ == "__main__":
    _serve()
