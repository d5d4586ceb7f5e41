"""Bare loops on one device, against which the executor's throughput is measured: one process, nothing coordinated."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.initial import initial_parameters
from hetsgd.models.workload import Workload
from hetsgd.real.devices import open_device
from hetsgd.real.network import Network
from hetsgd.real.parts import parts_of
from hetsgd.real.torch_threads import TorchThreads

_WARM: Final = 3
_PINNED: Final = ("cuda", "xpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class BareRates:
    """Rows/s of the fused step alone on rows that lie on the device, and of a loop that also copies as a worker does.

    That loop gathers and copies the rows of each batch, copies the model over, steps, and copies it back, one after
    the other.
    """

    steps: float
    copies: float


def bare_rates(workload: Workload, dataset: Dataset, device: str, batch: int, seconds: float) -> BareRates:
    """Run both loops for so many seconds each."""
    with TorchThreads(1), torch.inference_mode():
        loop = _Loop(workload, dataset, device, batch)
        return BareRates(steps=loop.rate(seconds, copies=False), copies=loop.rate(seconds, copies=True))


class _Loop:
    def __init__(self, workload: Workload, dataset: Dataset, device: str, batch: int) -> None:
        self._device = open_device(device)
        pinned = self._device.type in _PINNED
        self._asynchronous = self._device.type != "cpu"
        self._part = parts_of(dataset, workload, dense=True).train
        self._batch = min(batch, workload.rows)
        self._rng = np.random.default_rng(0)
        self._model = torch.from_numpy(initial_parameters(workload, 0))
        self._host = torch.empty(self._model.shape, dtype=self._model.dtype, pin_memory=pinned)
        self._replica = self._model.to(self._device, copy=True)
        self._network = Network(workload, device=self._device, max_batch=self._batch)
        features, y = self._part.features, self._part.y
        self._host_x = torch.empty((self._batch, features.width), dtype=features.dtype, pin_memory=pinned)
        self._host_y = torch.empty((self._batch, *y.shape[1:]), dtype=y.dtype, pin_memory=pinned)
        self._load()
        self._x_BF, self._y_B = self._host_x.to(self._device, copy=True), self._host_y.to(self._device, copy=True)

    def rate(self, seconds: float, *, copies: bool) -> float:
        for _ in range(_WARM):
            self._turn(copies)
        self._wait()
        done, begun_s = 0, time.perf_counter()
        while (spent_s := time.perf_counter() - begun_s) < seconds:
            self._turn(copies)
            # Without this a device would be given work for longer than it is measured.
            self._wait()
            done += 1
        return done * self._batch / spent_s

    def _turn(self, copies: bool) -> None:
        if copies:
            self._load()
            self._x_BF.copy_(self._host_x, non_blocking=True)
            self._y_B.copy_(self._host_y, non_blocking=True)
            self._host.copy_(self._model)
            self._replica.copy_(self._host, non_blocking=True)
        self._network.step(self._replica, self._x_BF, self._y_B, 1e-3)
        if copies:
            self._host.copy_(self._replica, non_blocking=True)
            self._wait()
            self._model.copy_(self._host)

    def _load(self) -> None:
        """Rows from anywhere, as an order that is shuffled anew has them."""
        rows = torch.from_numpy(self._rng.integers(0, self._part.rows, self._batch))
        self._part.put(rows, self._host_x, self._host_y)

    def _wait(self) -> None:
        if self._asynchronous:
            torch.accelerator.synchronize(self._device)
