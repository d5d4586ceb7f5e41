"""Hogwild on this machine against bare loops, a textbook version and the limit of its memory."""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import Final

import numpy as np

from benchmarks.pairs import Comparison, Group, Rate
from benchmarks.processes import RATE, ROWS, TRIAD_BYTES, loops, network_shape, total_rate
from hetsgd.models.data.dataset import Dataset
from hetsgd.models.machine import Machine
from hetsgd.models.machine_file import load_machine
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.trace import Trace
from hetsgd.real import train
from hetsgd.real.launch import warm_start

SECONDS: Final = {1: 1.0, 16: 1.0, 256: 3.0}
_LOOKAHEAD: Final = 16
_STEP_PASSES: Final = 3
"""Passes over the weights that a step cannot do without: read forward, read backward and written while in a cache."""


@cache
def lanes_machine() -> Machine:
    """This machine with a lane on every core and no accelerator."""
    local = load_machine("local")
    return replace(local, cpu_lanes=local.logical_cpus, accelerators=(), links=())


@cache
def random_dataset() -> Dataset:
    """Rows of the shape of covtype, so that the benchmark needs no data."""
    generator, shape = np.random.default_rng(0), network_shape()
    x = generator.random((ROWS, shape.features), dtype=np.float32)
    y = generator.integers(0, shape.outputs, ROWS)
    return Dataset(
        name="random", train_x=x, train_y=y, test_x=x[:64], test_y=y[:64], classes=shape.outputs, multilabel=False,
        source="random rows of the shape of covtype",
    )  # fmt: skip


@cache
def keep_warm() -> ExitStack:
    """From now on runs share a process that has loaded torch."""
    stack = ExitStack()
    stack.enter_context(warm_start())
    atexit.register(stack.close)
    return stack


def trained(batch: int, steps: int) -> Trace:
    """A run of Hogwild on all cores, `steps` steps an assignment."""
    keep_warm()
    plan = Plan(
        machine=lanes_machine(),
        workload=replace(network_shape(), test_rows=64),
        policy="hogwild",
        recipe=recipe("hogwild", cpu_batch=batch, cpu_steps=steps),
        run=RunSettings(
            stop=StopRule(seconds=SECONDS[batch]), learning_rate=RATE, lookahead=_LOOKAHEAD, lanes="free",
            evaluation="deferred", trace="summary",
        ),
    )  # fmt: skip
    return train(plan, random_dataset()).trace


def _ours(batch: int, steps: int) -> Rate:
    def measure() -> float:
        trace = trained(batch, steps)
        return sum(trace.totals.updates.values()) / trace.elapsed_s

    return measure


def _loop(kind: str, batch: int) -> Rate:
    return lambda: total_rate(kind, batch, lanes_machine().cpu_lanes, SECONDS[batch])


def _memory_limit(batch: int) -> Rate:
    """Steps per second if nothing but the bytes of the weights counted, at the measured triad rate."""
    triad = _loop("triad", batch)
    step_bytes = _STEP_PASSES * network_shape().model_bytes
    return lambda: triad() * TRIAD_BYTES / step_bytes


def _group(batch: int, steps: int = 1) -> Group:
    references: dict[str, Rate] = {"bare loop": _loop("bare", batch), "textbook Hogwild": _loop("textbook", batch)}
    name = f"Hogwild updates, batch {batch}" + (f", {steps} steps an assignment" if steps > 1 else "")
    comparisons = [
        Comparison(name=name, unit="updates/s", reference="bare loop", floor=0.9, aim=0.95),
        Comparison(
            name=name, unit="updates/s", reference="textbook Hogwild", floor={1: 2.0, 16: 1.5}.get(batch),
            aim={1: 3.0}.get(batch),
        ),
    ]  # fmt: skip
    if batch == 1:
        references["memory limit"] = _memory_limit(batch)
        comparisons.append(Comparison(name=name, unit="updates/s", reference="memory limit", floor=0.6))
    if batch == 256:
        references["plain products"] = _loop("matmul", batch)
        comparisons.append(Comparison(name=name, unit="updates/s", reference="plain products", floor=0.6))
    return Group(name=name, ours=_ours(batch, steps), references=references, comparisons=tuple(comparisons), rounds=7)


def _cost(batch: int, steps: int) -> Group:
    """What a lane's own Python costs, by the clock of the processor, which other programs do not stretch as much."""

    def ours() -> float:
        totals = trained(batch, steps).totals
        return sum(totals.updates.values()) / totals.cpu_s["cpu"]

    def bare() -> float:
        lanes = lanes_machine().cpu_lanes
        samples = loops(lanes).together([("bare", batch)] * lanes, SECONDS[batch])
        return sum(sample.per_processor_s for sample in samples) / lanes

    name = f"lane updates per processor second, batch {batch}, {steps} step{'s' if steps > 1 else ''} an assignment"
    comparison = Comparison(name=name, unit="updates/s", reference="bare loop", aim=0.95)
    return Group(name=name, ours=ours, references={"bare loop": bare}, comparisons=(comparison,))


GROUPS = (_group(1), _group(1, 8), _group(16), _group(256), _cost(1, 1), _cost(1, 8))
