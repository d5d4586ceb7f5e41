"""One lane of the CPU team: a process with one thread that steps on the shared parameters without any lock.

    python -m hetsgd.real.lane FD PARENT

Work in place is done on the global model as it is while others write it: a step may see a vector that is half of
one version and half of the next. Work on a replica is Hogwild too, on a replica that the lanes of the team share.
A gradient is taken of a private copy of the model, which is then also what delay compensation compares with.
"""

from __future__ import annotations

import time
from typing import Final

import torch
from torch import Tensor

from hetsgd.models.gradient_noise import measures
from hetsgd.real.child import Child, main
from hetsgd.real.features import Batch, room_for
from hetsgd.real.gradient_norms import squared_norms
from hetsgd.real.losses import Halted, sum_rows
from hetsgd.real.messages import GRADIENT, IN_PLACE, KEEP, NO_NUMBERS, OWN, Numbers, Order, Report, ReportKind
from hetsgd.real.module_network import network_of
from hetsgd.real.parts import shared_parts
from hetsgd.real.rows import rows_at
from hetsgd.real.slots import Slots

_now = time.perf_counter
_SPINS: Final = 200
_PAUSE_S: Final = 5e-5
_WARM_STEPS: Final = 3
_WARM_S: Final = 0.05


class Lane:
    """Does a lane's share of its team's assignments."""

    def __init__(self, child: Child) -> None:
        setup, memory = child.setup, child.memory
        self._child = child
        self._network = network_of(setup.workload, max_batch=1)
        self._data = shared_parts(child.data, setup.workload, multiply=True)
        self._orders = [torch.from_numpy(order) for order in memory["orders"]]
        self._numbers = [order.data for order in memory["orders"]]
        self._decay = setup.weight_decay
        self._gradient: Tensor | None = None
        self._model = torch.from_numpy(memory["parameters"])
        self._own = torch.from_numpy(memory["own"][setup.worker_index])
        self._own_version = memory["own_version"][setup.worker_index]
        self._snapshot = torch.from_numpy(memory["snapshot"])
        self._evaluated = torch.from_numpy(memory["evaluated"][setup.worker_index])
        slots = Slots(memory, setup.seat)
        self._results = [[torch.from_numpy(slots.result(s, p)) for p in range(slots.lanes)] for s in range(slots.count)]
        self._starts = [[torch.from_numpy(slots.start(s, p)) for p in range(slots.lanes)] for s in range(slots.count)]
        self._reads = [torch.from_numpy(slots.read(s)) for s in range(slots.count)]
        self._arrived = memory["arrived"][:, 0]

    def _take(self, order: Order, start: int, stop: int) -> tuple[Batch, Tensor]:
        """Features and targets of positions [start, stop) of the epoch's order, valid until the next call."""
        slot = order.rows_slot
        if slot >= 0 and stop - start == 1:
            row = self._numbers[slot][start]
            return self._data.train.take(slice(row, row + 1))
        return self._data.train.take(rows_at(self._orders[slot] if slot >= 0 else None, start, stop))

    def prepare(self, order: Order) -> None:
        """Make room for the batch; a lane reads its rows where they lie."""
        if order.batch > self._network.max_batch:
            self._network = network_of(self._child.setup.workload, max_batch=room_for(order.batch))

    def run(self, order: Order) -> Report | None:
        """The pieces of this lane, each a step or a gradient."""
        began, spent_s = _now(), time.thread_time()
        chunks = order.chunks
        norms = self._norms(order, chunks)
        if order.write == IN_PLACE:
            done = self._steps(order, chunks, self._model, in_place=True)
        elif order.write == GRADIENT:
            done = self._gradients(order, chunks)
        else:
            done = self._replica(order, chunks)
        if done is None:
            return None
        read, ended = done
        wrote = self._child.counter.version() if order.write == IN_PLACE else read
        return Report(
            kind=ReportKind.DONE,
            serial=order.serial,
            read=read,
            wrote=wrote,
            start_s=began,
            end_s=ended,
            rows=sum(stop - start for start, stop in chunks),
            updates=len(chunks) if order.write == IN_PLACE else 0,
            steps=len(chunks),
            value=time.thread_time() - spent_s,
            train=norms,
        )

    def _norms(self, order: Order, chunks: list[tuple[int, int]]) -> Numbers:
        """Gradient norms of the first piece at the model that it is about to read, where the assignment measures."""
        every = self._child.setup.gradient_stats
        if order.position or not measures(order.id, every) or chunks[0][1] - chunks[0][0] < 2:
            return NO_NUMBERS
        began, (start, stop) = _now(), chunks[0]
        if self._gradient is None:
            self._gradient = self._network.vector()
        model = self._own if order.read == OWN else self._model
        x_BF, y_B = self._take(order, start, stop)
        rows = stop - start
        norms = squared_norms(self._network, model, x_BF, y_B, rows // 2, self._gradient).tolist()
        self._child.log.add("compute", began, _now(), id_=order.id)
        return (*norms, float(rows), float(rows // 2), 0.0)

    def _steps(
        self, order: Order, chunks: list[tuple[int, int]], target: Tensor, *, in_place: bool
    ) -> tuple[int, float] | None:
        """Steps on a model; the version that the first one read and when the last one ended, None if broken off."""
        child, take, rate, decay = self._child, self._take, order.rate, self._decay
        version, add, halted, step = child.counter.version, child.log.add, child.halted, self._network.step
        serial, id_ = order.serial, order.id
        first, ended = -1, 0.0
        for start, stop in chunks:
            began = _now()
            if halted(serial, began):
                return None
            read = version() if in_place else 0
            x_BF, y_B = take(order, start, stop)
            step(target, x_BF, y_B, rate, decay)
            ended = _now()
            add("compute", began, ended, id_=id_, read=read, rows=stop - start, update=in_place)
            if in_place:
                child.counter.count()
            first = read if first < 0 else first
        return first, ended

    def _gradients(self, order: Order, chunks: list[tuple[int, int]]) -> tuple[int, float] | None:
        """The gradient of this lane's one piece, of the model as it is when the piece starts."""
        child = self._child
        out, start_P = self._results[order.slot][order.position], self._starts[order.slot][order.position]
        read, ended = 0, 0.0
        for start, stop in chunks:
            began = _now()
            if child.halted(order.serial, began):
                return None
            read = child.counter.version()
            start_P.copy_(self._model)
            x_BF, y_B = self._take(order, start, stop)
            self._network.gradient(start_P, x_BF, y_B, out)
            ended = _now()
            child.log.add("compute", began, ended, id_=order.id, read=read, rows=stop - start)
        return read, ended

    def _replica(self, order: Order, chunks: list[tuple[int, int]]) -> tuple[int, float] | None:
        """The lanes' Hogwild on a replica of the team, each lane having copied its share of what the replica reads."""
        keep, own, slot = order.write == KEEP, order.read == OWN, order.slot
        began = _now()
        read = int(self._own_version[0]) if own else self._child.counter.version()
        source, target = self._own if own else self._model, self._own if keep else self._results[slot][0]
        copies = [(target, source)] if target is not source else []
        copies.append((self._starts[slot][0], target))
        if keep:
            copies.append((self._reads[slot], self._model))
            if not own and order.position == 0:
                self._own_version[0] = read
        if not self._pull(order, copies, began):
            return None
        done = self._steps(order, chunks, target, in_place=False)
        return None if done is None else (read, done[1])

    def _pull(self, order: Order, copies: list[tuple[Tensor, Tensor]], began: float) -> bool:
        """Copy this lane's share of each vector, then wait for the shares of the others; False if broken off."""
        child = self._child
        lanes = self._sharing(order)
        size = self._model.shape[0]
        low, high = order.position * size // lanes, (order.position + 1) * size // lanes
        for target, source in copies:
            target[low:high] = source[low:high]
        first = child.setup.first
        arrived = self._arrived[first : first + lanes]
        arrived[order.position] = order.serial
        spins = 0
        while arrived.min() < order.serial:
            if child.halted(order.serial, _now()):
                return False
            spins += 1
            time.sleep(0.0 if spins < _SPINS else _PAUSE_S)
        moved = (high - low) * source.element_size() * len(copies)
        child.log.add("pull", began, _now(), id_=order.id, bytes_=moved)
        return True

    def _sharing(self, order: Order) -> int:
        """How many lanes have a part in the order: those without rows are not told of it."""
        return min(order.lanes, -(-(order.stop - order.start) // order.batch)) if order.batch else order.lanes

    def evaluate(self, order: Order) -> Report | None:
        """The loss of this lane's part of the rows, of the global model as it is now or of the snapshot."""
        child, began, read = self._child, _now(), self._child.counter.version()
        spent_s = time.thread_time()
        model = self._snapshot
        if not order.source:
            model = self._evaluated
            if not self._pull(order, [(model, self._model)], began):
                return None
            began_loss = _now()
        else:
            began_loss = began
        network, data = self._network, self._data

        def halted() -> bool:
            return child.halted(order.serial, _now())

        try:
            train = sum_rows(network, model, data.train, order.start, order.stop, halted=halted)
            test = sum_rows(network, model, data.test, order.test_start, order.test_stop, halted=halted)
        except Halted:
            return None
        ended = _now()
        child.log.add("evaluate", began_loss, ended, id_=order.id)
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

    def warm(self, order: Order) -> None:
        """Steps and gradients of the batch size on copies, until code and memory are warm."""
        self.prepare(order)
        scratch, out = self._model.clone(), torch.empty_like(self._model)
        chunk = self._take(order, order.start, order.stop)
        began = _now()
        for _ in range(_WARM_STEPS):
            if order.write == GRADIENT:
                self._network.gradient(scratch, *chunk, out)
            else:
                self._network.step(scratch, *chunk, order.rate, self._decay)
            if _now() - began > _WARM_S:
                return


if __name__ == "__main__":
    main(Lane)
