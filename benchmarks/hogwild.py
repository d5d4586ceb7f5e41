"""Hogwild on this machine against bare loops, a textbook version and the limit of its memory."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np

from benchmarks.pairs import Comparison, Group, Rate
from benchmarks.processes import ROWS, TRIAD_BYTES, network_shape
from hetsgd.models.data.dataset import Dataset
from hetsgd.models.machine import Machine
from hetsgd.models.machine_file import load_machine
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.real import train

SECONDS = 3.0
_STEP_PASSES = 4
"""Passes over the weights that a fused step cannot do without: read twice, updated in place (read and write)."""


@cache
def lanes_machine() -> Machine:
    """This machine with a lane on every core and no accelerator."""
    local = load_machine("local")
    return replace(local, cpu_lanes=local.logical_cpus, accelerators=(), links=())


def random_dataset() -> Dataset:
    """Rows of the shape of covtype, so that the benchmark needs no data."""
    generator, shape = np.random.default_rng(0), network_shape()
    x = generator.random((ROWS, shape.features), dtype=np.float32)
    y = generator.integers(0, shape.outputs, ROWS)
    return Dataset(
        name="random", train_x=x, train_y=y, test_x=x[:64], test_y=y[:64], classes=shape.outputs, multilabel=False,
        source="random rows of the shape of covtype",
    )  # fmt: skip


def _ours(batch: int) -> Rate:
    def measure() -> float:
        plan = Plan(
            machine=lanes_machine(),
            workload=replace(network_shape(), test_rows=64),
            policy="hogwild",
            recipe=recipe("hogwild", cpu_batch=batch),
            run=RunSettings(
                stop=StopRule(seconds=SECONDS), learning_rate=1e-3, lookahead=1, lanes="free", evaluation="deferred",
                trace="summary",
            ),
        )  # fmt: skip
        trace = train(plan, random_dataset()).trace
        return sum(trace.totals.updates.values()) / trace.elapsed_s

    return measure


def _loop(kind: str, batch: int) -> Rate:
    def measure() -> float:
        lanes = str(lanes_machine().cpu_lanes)
        command = [sys.executable, "-m", "benchmarks.processes", kind, str(batch), lanes, str(SECONDS)]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    return measure


def _memory_limit(batch: int) -> Rate:
    """Steps per second if nothing but the bytes of the weights counted, at the measured triad rate."""
    triad = _loop("triad", batch)
    step_bytes = _STEP_PASSES * network_shape().model_bytes
    return lambda: triad() * TRIAD_BYTES / step_bytes


def _group(batch: int) -> Group:
    references: dict[str, Rate] = {"bare loop": _loop("bare", batch), "textbook Hogwild": _loop("textbook", batch)}
    name = f"Hogwild updates, batch {batch}"
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
    return Group(name=name, ours=_ours(batch), references=references, comparisons=tuple(comparisons), rounds=3)


GROUPS = tuple(_group(batch) for batch in (1, 16, 256))
