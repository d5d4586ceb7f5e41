"""An accelerator: a process with its own replica on a torch device, fed and read by real copies.

    python -m hetsgd.real.accelerator FD PARENT

An assignment is load (rows), pull (model), compute, push (replica or gradient). A `cpu` device stands in for an
accelerator on the same path: its memory is another place in the same DRAM, and its copies are real ones. Rows of
the next assignment are loaded while a device that computes by itself is busy, else before its turn comes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from hetsgd.models.gradient_noise import measures
from hetsgd.real.child import Child, main
from hetsgd.real.devices import open_device
from hetsgd.real.features import room_for
from hetsgd.real.gradient_norms import squared_norms
from hetsgd.real.loss_sum import LossSum
from hetsgd.real.losses import Halted, sum_rows
from hetsgd.real.messages import GRADIENT, IN_PLACE, KEEP, NO_NUMBERS, OWN, Numbers, Order, Report, ReportKind
from hetsgd.real.module_network import network_of
from hetsgd.real.parts import Part, shared_parts
from hetsgd.real.rows import rows_at
from hetsgd.real.slots import Slots

_now = time.perf_counter
_WARM_STEPS: Final = 3
_WARM_S: Final = 0.05
_PINNED: Final = ("cuda", "xpu")


@dataclass(slots=True)
class Loaded:
    """Rows of one assignment on the device, which were loaded from `began_s` to `ended_s`."""

    serial: int = -1
    rows: int = 0
    began_s: float = 0.0
    ended_s: float = 0.0
    staging: tuple[Tensor, Tensor] | None = None
    x_BF: Tensor | None = None
    y_B: Tensor | None = None


class Accelerator:
    """Does assignments on one device."""

    def __init__(self, child: Child) -> None:
        setup, memory = child.setup, child.memory
        self._child = child
        self._device = open_device(setup.device)
        self._asynchronous = self._device.type != "cpu"
        self._pinned = self._device.type in _PINNED
        self._decay = setup.weight_decay
        self._network = network_of(setup.workload, device=self._device, max_batch=1)
        self._data = shared_parts(child.data, setup.workload, multiply=False)
        self._orders = [torch.from_numpy(order) for order in memory["orders"]]
        self._model = torch.from_numpy(memory["parameters"])
        self._own = torch.from_numpy(memory["own"][setup.worker_index])
        self._own_version = memory["own_version"][setup.worker_index]
        self._snapshot = torch.from_numpy(memory["snapshot"])
        slots = Slots(memory, setup.seat)
        self._results = [torch.from_numpy(slots.result(slot)) for slot in range(slots.count)]
        self._starts = [torch.from_numpy(slots.start(slot)) for slot in range(slots.count)]
        self._reads = [torch.from_numpy(slots.read(slot)) for slot in range(slots.count)]
        self._replica, self._gradient = self._network.vector(), self._network.vector()
        self._host = torch.empty(self._model.shape, dtype=self._model.dtype, pin_memory=self._pinned)
        self._loaded = [Loaded(), Loaded()]
        self._last_end_s = 0.0
        self._copies = torch.Stream(device=self._device) if self._asynchronous else None

    # -- assignments ----------------------------------------------------------------------------------------------

    def prepare(self, order: Order) -> None:
        """Load the rows of an assignment, unless that has been done."""
        if any(loaded.serial == order.serial for loaded in self._loaded):
            return
        if order.batch > self._network.max_batch:
            self._network = network_of(
                self._child.setup.workload, device=self._device, max_batch=room_for(order.batch)
            )  # fmt: skip
        began = _now()
        loaded = min(self._loaded, key=lambda kept: kept.serial)
        self._load(loaded, order)
        loaded.serial, loaded.began_s, loaded.ended_s = order.serial, began, _now()
        moved = sum(part[: loaded.rows].nbytes for part in (loaded.x_BF, loaded.y_B) if part is not None)
        self._child.log.add("load", began, loaded.ended_s, id_=order.id, rows=loaded.rows, bytes_=moved)

    def _load(self, loaded: Loaded, order: Order) -> None:
        """Gather rows into host memory that the device can read, and copy them over."""
        rows = order.stop - order.start
        if loaded.x_BF is None or loaded.y_B is None or rows > loaded.x_BF.shape[0]:
            size = room_for(rows)
            features, y = self._data.train.features, self._data.train.y
            loaded.x_BF = torch.empty((size, features.width), dtype=features.dtype, device=self._device)
            loaded.y_B = torch.empty((size, *y.shape[1:]), dtype=y.dtype, device=self._device)
            loaded.staging = None
            if self._asynchronous:
                loaded.staging = (
                    torch.empty(loaded.x_BF.shape, dtype=loaded.x_BF.dtype, pin_memory=self._pinned),
                    torch.empty(loaded.y_B.shape, dtype=loaded.y_B.dtype, pin_memory=self._pinned),
                )
        loaded.rows = rows
        x_BF, y_B = loaded.x_BF[:rows], loaded.y_B[:rows]
        slot = order.rows_slot
        where = rows_at(self._orders[slot] if slot >= 0 else None, order.start, order.stop)
        if loaded.staging is None or self._copies is None:
            self._data.train.put(where, x_BF, y_B)
            return
        host_x, host_y = (part[:rows] for part in loaded.staging)
        self._data.train.put(where, host_x, host_y)
        with self._copies:
            x_BF.copy_(host_x, non_blocking=self._pinned)
            y_B.copy_(host_y, non_blocking=self._pinned)
        self._copies.synchronize()

    def run(self, order: Order) -> Report | None:
        """Pull, compute and push; the rows are there already."""
        child, log = self._child, self._child.log
        loaded = next(kept for kept in self._loaded if kept.serial == order.serial)
        if not order.go:
            ready = max(loaded.ended_s, self._last_end_s)
            log.add("wait", ready, max(ready, _now()), id_=order.id)
        read, pulled = self._pull(order)
        if child.halted(order.serial, pulled):
            return None
        spent_s = time.thread_time()
        norms = self._norms(order, loaded)
        computed = self._compute(order, loaded)
        if computed is None:
            return None
        spent_s = time.thread_time() - spent_s
        log.add("compute", pulled, computed, id_=order.id, read=read, rows=loaded.rows)
        ended = self._push(order, read, computed)
        began, self._last_end_s = max(loaded.began_s, self._last_end_s), ended
        in_place = order.write == IN_PLACE
        return Report(
            kind=ReportKind.DONE,
            serial=order.serial,
            read=read,
            wrote=child.counter.version() if in_place else read,
            start_s=began,
            end_s=ended,
            rows=loaded.rows,
            updates=1 if in_place else 0,
            steps=len(order.chunks),
            value=spent_s,
            train=norms,
        )

    def _norms(self, order: Order, loaded: Loaded) -> Numbers:
        """Gradient norms of the first piece at the model that was pulled, where the assignment measures."""
        every, (start, stop) = self._child.setup.gradient_stats, order.chunks[0]
        rows = stop - start
        if not measures(order.id, every) or rows < 2 or loaded.x_BF is None or loaded.y_B is None:
            return NO_NUMBERS
        x_BF, y_B = loaded.x_BF[:rows], loaded.y_B[:rows]
        norms = squared_norms(self._network, self._replica, x_BF, y_B, rows // 2, self._gradient).tolist()
        return (*norms, float(rows), float(rows // 2), 0.0)

    def _pull(self, order: Order) -> tuple[int, float]:
        """Copy the model onto the device; its version and the time it was there.

        Results that may be compared with what they were started from leave a copy of it in their slot.
        """
        began = _now()
        own = order.read == OWN
        read = int(self._own_version[0]) if own else self._child.counter.version()
        source = self._own if own else self._model
        if order.slot >= 0:
            self._starts[order.slot].copy_(source)
            source = self._starts[order.slot]
        if order.write == KEEP:
            self._reads[order.slot].copy_(self._model)
            if not own:
                self._own_version[0] = read
        self._to_device(source)
        ended = _now()
        self._child.log.add("pull", began, ended, id_=order.id, read=read, bytes_=source.nbytes)
        return read, ended

    def _to_device(self, source: Tensor) -> None:
        if self._pinned:
            self._host.copy_(source)
            source = self._host
        self._replica.copy_(source, non_blocking=self._pinned)
        self._synchronize()

    def _compute(self, order: Order, loaded: Loaded) -> float | None:
        """All steps of the assignment; the time when the device had done them, or None if broken off."""
        if loaded.x_BF is None or loaded.y_B is None:
            raise RuntimeError(f"accelerator: the rows of assignment {order.id} were not loaded")
        network, replica = self._network, self._replica
        for start, stop in order.chunks:
            x_BF = loaded.x_BF[start - order.start : stop - order.start]
            y_B = loaded.y_B[start - order.start : stop - order.start]
            if order.write == GRADIENT:
                network.gradient(replica, x_BF, y_B, self._gradient)
            else:
                network.step(replica, x_BF, y_B, order.rate, self._decay)
            if self._child.halted(order.serial, _now()):
                self._synchronize()
                return None
        if self._asynchronous:
            following = self._child.queued()
            if following is not None:
                self.prepare(following)
            self._synchronize()
        return _now()

    def _push(self, order: Order, read: int, began: float) -> float:
        """Copy the result to where it belongs; the time when it was there."""
        source = self._gradient if order.write == GRADIENT else self._replica
        if order.write == IN_PLACE:
            target = self._model
        else:
            target = self._own if order.write == KEEP else self._results[order.slot]
        if self._pinned:
            self._host.copy_(source, non_blocking=True)
            self._synchronize()
            source = self._host
        target.copy_(source)
        ended = _now()
        in_place = order.write == IN_PLACE
        rows = order.stop - order.start
        self._child.log.add(
            "push", began, ended, id_=order.id, read=read, rows=rows, bytes_=target.nbytes, update=in_place
        )  # fmt: skip
        if in_place:
            self._child.counter.count()
        return ended

    def _synchronize(self) -> None:
        if self._asynchronous:
            torch.accelerator.synchronize(self._device)

    # -- losses and warm-up ---------------------------------------------------------------------------------------

    def evaluate(self, order: Order) -> Report | None:
        """The loss of the ordered rows, copied over in pieces, of a snapshot that lies on the device."""
        child, began, read = self._child, _now(), self._child.counter.version()
        self._to_device(self._snapshot if order.source else self._model)
        snapped = _now()
        child.log.add("pull", began, snapped, id_=order.id, read=read, bytes_=self._model.nbytes)
        spent_s = time.thread_time()
        try:
            train = self._sums(order, self._data.train, order.start, order.stop)
            test = self._sums(order, self._data.test, order.test_start, order.test_stop)
        except Halted:
            return None
        self._last_end_s = ended = _now()
        child.log.add("evaluate", snapped, ended, id_=order.id)
        return Report(
            kind=ReportKind.LOSS,
            serial=order.serial,
            read=read,
            start_s=began,
            end_s=ended,
            train=train.numbers,
            test=test.numbers,
            value=time.thread_time() - spent_s,
        )

    def _sums(self, order: Order, part: Part, start: int, stop: int) -> LossSum:
        def halted() -> bool:
            return self._child.halted(order.serial, _now())

        return sum_rows(self._network, self._replica, part, start, stop, halted=halted, onto=self._device)

    def warm(self, order: Order) -> None:
        """Load, steps and gradients of the batch size on the replica alone, until code and memory are warm."""
        self.prepare(order)
        loaded = next(kept for kept in self._loaded if kept.serial == order.serial)
        self._to_device(self._model)
        began = _now()
        for _ in range(_WARM_STEPS):
            self._compute(order, loaded)
            if _now() - began > _WARM_S:
                return


if __name__ == "__main__":
    main(Accelerator)
