"""Loops on as many processes as there are lanes: what a Hogwild run is measured against.

Started as `python -m benchmarks.processes KIND BATCH PROCESSES SECONDS`; prints the total rate. Each process has
one thread and a core of its own where the OS allows it; all start together.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.multiprocessing as multiprocessing
from torch import Tensor, nn

from hetsgd.models.workload import Workload
from hetsgd.real.network import Network

ROWS = 8192
_TRIAD_ITEMS = 1 << 25
_WARM_UP_STEPS = 5


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


def _bare(model: Any, x: Tensor, y: Tensor, batch: int) -> Callable[[int], None]:
    network = Network(network_shape(), max_batch=batch)

    def step(low: int) -> None:
        network.step(model, x[low : low + batch], y[low : low + batch], 1e-3)

    return step


def _textbook(model: Any, x: Tensor, y: Tensor, batch: int) -> Callable[[int], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loss_of = nn.CrossEntropyLoss()

    def step(low: int) -> None:
        optimizer.zero_grad()
        loss_of(model(x[low : low + batch]), y[low : low + batch]).backward()
        optimizer.step()

    return step


def _matmul(model: Any, x: Tensor, y: Tensor, batch: int) -> Callable[[int], None]:
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


def _triad(model: Any, x: Tensor, y: Tensor, batch: int) -> Callable[[int], None]:
    a, b, c = (torch.ones(_TRIAD_ITEMS) for _ in range(3))

    def step(low: int) -> None:
        torch.add(b, c, alpha=0.5, out=a)

    return step


KINDS: dict[str, Callable[[Any, Tensor, Tensor, int], Callable[[int], None]]] = {
    "bare": _bare,
    "textbook": _textbook,
    "matmul": _matmul,
    "triad": _triad,
}
TRIAD_BYTES = 3 * 4 * _TRIAD_ITEMS


def _loop(kind: str, batch: int, index: int, model: Any, seconds: float, barrier: Any, counts: Any) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[index % len(cores)]})
    generator = torch.Generator().manual_seed(index)
    x = torch.rand(ROWS, network_shape().features, generator=generator)
    y = torch.randint(0, 2, (ROWS,), generator=generator)
    step = KINDS[kind](model, x, y, batch)
    for _ in range(_WARM_UP_STEPS):
        step(0)
    barrier.wait()
    done, low, start_s = 0, 0, time.perf_counter()
    while (now_s := time.perf_counter()) - start_s < seconds:
        step(low)
        done += 1
        low = (low + batch) % (ROWS - batch)
    counts[index] = done / (now_s - start_s)


def total_rate(kind: str, batch: int, processes: int, seconds: float) -> float:
    """Steps per second of all processes together."""
    context = multiprocessing.get_context("spawn")
    workload = network_shape()
    model: Any
    if kind == "textbook":
        model = module_of(workload)
        model.share_memory()
    else:
        model = (torch.rand(workload.parameters) - 0.5) * 0.1
        model.share_memory_()
    barrier, counts = context.Barrier(processes), context.Array("d", processes)
    children = [
        context.Process(target=_loop, args=(kind, batch, index, model, seconds, barrier, counts))
        for index in range(processes)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    return float(sum(counts[:]))


if __name__ == "__main__":
    print(total_rate(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
