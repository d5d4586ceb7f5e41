"""Loops on as many processes as there are lanes: what a run of the executor is measured against.

The processes stay up and wait between samples, so that samples are short and can be taken in turn with others. Each
has one thread and a core of its own where the OS allows it; they start each sample together.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch
import torch.multiprocessing as multiprocessing
from torch import Tensor, nn

from hetsgd.models.workload import Workload
from hetsgd.real.network import Network

ROWS: Final = 8192
RATE: Final = 1e-3
_TRIAD_ITEMS: Final = 1 << 25
TRIAD_BYTES: Final = 3 * 4 * _TRIAD_ITEMS
_WARM_UP_STEPS: Final = 3

Step = Callable[[int], None]
"""Does one step on the rows from `low` on."""


def network_shape() -> Workload:
    """The paper's network for covtype in float32 with bias: 54-512x6-2."""
    return Workload(
        name="covtype",
        dataset="random",
        rows=ROWS,
        test_rows=0,
        features=54,
        outputs=2,
        hidden=(512,) * 6,
        precision="float32",
    )


def module_of(workload: Workload) -> nn.Module:
    """The same network as a torch module, as a textbook has it."""
    layers: list[nn.Module] = []
    for layer in workload.layers:
        layers += [nn.Linear(layer.inputs, layer.outputs), nn.Sigmoid()]
    return nn.Sequential(*layers[:-1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shared:
    """What the processes share: one flat model, and the same network as a module."""

    flat_P: Tensor
    module: nn.Module


def _bare(shared: Shared, x: Tensor, y: Tensor, batch: int) -> Step:
    """The executor's own fused step on the shared model."""
    network = Network(network_shape(), max_batch=batch)

    def step(low: int) -> None:
        network.step(shared.flat_P, x[low : low + batch], y[low : low + batch], RATE)

    return step


def _stand_in(shared: Shared, x: Tensor, y: Tensor, batch: int) -> Step:
    """What an accelerator does with its rows: gather them, copy the model, step on the copy, copy it back."""
    network = Network(network_shape(), max_batch=batch)
    replica_P, order = torch.empty_like(shared.flat_P), torch.randperm(len(x))
    x_BF, y_B = torch.empty(batch, x.shape[1]), torch.empty(batch, dtype=y.dtype)

    def step(low: int) -> None:
        rows = order[low : low + batch]
        torch.index_select(x, 0, rows, out=x_BF)
        torch.index_select(y, 0, rows, out=y_B)
        replica_P.copy_(shared.flat_P)
        network.step(replica_P, x_BF, y_B, RATE)
        shared.flat_P.copy_(replica_P)

    return step


def _textbook(shared: Shared, x: Tensor, y: Tensor, batch: int) -> Step:
    """Hogwild as the examples of PyTorch have it."""
    model, loss_of = shared.module, nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step(low: int) -> None:
        optimizer.zero_grad()
        loss_of(model(x[low : low + batch]), y[low : low + batch]).backward()
        optimizer.step()

    return step


def _matmul(shared: Shared, x: Tensor, y: Tensor, batch: int) -> Step:
    """The products of one step alone, each through the library's plain `mm` into a buffer."""
    layers = network_shape().layers
    inputs = [torch.rand(batch, layer.inputs) for layer in layers]
    deltas = [torch.rand(batch, layer.outputs) for layer in layers]
    weights = [torch.rand(layer.inputs, layer.outputs) for layer in layers]
    gradients = [torch.empty_like(weight) for weight in weights]

    def step(low: int) -> None:
        for k, weight in enumerate(weights):
            torch.mm(inputs[k], weight, out=deltas[k])
            torch.mm(inputs[k].t(), deltas[k], out=gradients[k])
            if k:
                torch.mm(deltas[k], weight.t(), out=inputs[k])

    return step


def _triad(shared: Shared, x: Tensor, y: Tensor, batch: int) -> Step:
    a, b, c = (torch.ones(_TRIAD_ITEMS) for _ in range(3))

    def step(low: int) -> None:
        torch.add(b, c, alpha=0.5, out=a)

    return step


_KINDS: Final[dict[str, Callable[[Shared, Tensor, Tensor, int], Step]]] = {
    "bare": _bare,
    "stand-in": _stand_in,
    "textbook": _textbook,
    "matmul": _matmul,
    "triad": _triad,
}
Job = tuple[str, int]
"""A kind of loop and its batch size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Steps of one process per second of the clock and of its own processor time."""

    per_s: float
    per_processor_s: float


def _measure(step: Step, batch: int, seconds: float) -> Sample:
    done, low, spent_s, start_s = 0, 0, time.thread_time(), time.perf_counter()
    while (now_s := time.perf_counter()) - start_s < seconds:
        step(low)
        done += 1
        low = (low + batch) % (ROWS - batch + 1)
    return Sample(per_s=done / (now_s - start_s), per_processor_s=done / (time.thread_time() - spent_s))


def _serve(index: int, connection: Any, barrier: Any, shared: Shared) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[index % len(cores)]})
    generator = torch.Generator().manual_seed(index)
    x = torch.rand(ROWS, network_shape().features, generator=generator)
    y = torch.randint(0, 2, (ROWS,), generator=generator)
    while (order := connection.recv()) is not None:
        (kind, batch), seconds = order
        with torch.inference_mode(kind != "textbook"):
            step = _KINDS[kind](shared, x, y, batch)
            for _ in range(_WARM_UP_STEPS):
                step(0)
            barrier.wait()
            connection.send(_measure(step, batch, seconds))


class Loops:
    """Processes that wait for something to loop over; they end with this process."""

    def __init__(self, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        flat_P: Any = (torch.rand(network_shape().parameters) - 0.5) * 0.1
        shared = Shared(flat_P=flat_P.share_memory_(), module=module_of(network_shape()).share_memory())
        barrier = context.Barrier(processes)
        self._kept = (shared, barrier)  # until the last process has opened them
        self._connections = []
        for index in range(processes):
            here, there = context.Pipe()
            arguments = (index, there, barrier, shared)
            context.Process(target=_serve, args=arguments, daemon=True).start()
            self._connections.append(here)

    def together(self, jobs: Sequence[Job], seconds: float) -> list[Sample]:
        """One job for each process, all at the same time."""
        for connection, job in zip(self._connections, jobs, strict=True):
            connection.send((job, seconds))
        return [connection.recv() for connection in self._connections]


@cache
def loops(processes: int) -> Loops:
    """The processes of this benchmark run."""
    return Loops(processes)


def total_rate(kind: str, batch: int, processes: int, seconds: float) -> float:
    """Steps per second of all processes together, doing the same."""
    return sum(sample.per_s for sample in loops(processes).together([(kind, batch)] * processes, seconds))
