"""Threads of torch inside a `with`."""

from __future__ import annotations

import torch


class TorchThreads:
    """Runs torch on `threads` threads inside a `with`, and on as many as before after it. Not reentrant."""

    __slots__ = ("_before", "_threads")

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise ValueError(f"replay: threads must be >= 1, got {threads}")
        self._threads = threads
        self._before = threads

    def __enter__(self) -> None:
        self._before = torch.get_num_threads()
        if self._before != self._threads:
            torch.set_num_threads(self._threads)

    def __exit__(self, *_: object) -> None:
        if self._before != self._threads:
            torch.set_num_threads(self._before)
