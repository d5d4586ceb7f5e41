"""Starting children: from any thread, beside other runs, and after the process that starts them was killed."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest

from hetsgd.models.run import StopRule
from hetsgd.real import warm_start
from tests.real.small_runs import Bench

pytestmark = pytest.mark.usefixtures("watchdog")

KEYS = {"cpu_batch": 16}


def test_runs_from_other_threads_at_the_same_time(bench: Bench) -> None:
    """Signal handlers can only be set in the main thread; each run has its children to itself."""
    plan = bench.plan("hogwild", accelerators=(), keys=KEYS)
    alone = bench.run(plan).parameters
    with ThreadPoolExecutor(2) as pool:
        pair = list(pool.map(lambda _: bench.run(plan).parameters, range(2)))
    for parameters in pair:
        np.testing.assert_array_equal(parameters, alone)


def test_handlers_are_those_of_the_caller_after_a_run(bench: Bench) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    bench.run(bench.plan("hogwild", accelerators=(), keys=KEYS, stop=StopRule(epochs=1)))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_no_thread_is_left_behind(bench: Bench) -> None:
    before = threading.active_count()
    bench.run(bench.plan("ringmaster", keys={"cpu_batch": 16, "accelerator_batch": 32}))
    assert threading.active_count() == before


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux forks children from a warm process")
def test_a_warm_start_that_was_killed_is_replaced(bench: Bench) -> None:
    before = set(psutil.Process().children())
    with warm_start():
        (nursery,) = set(psutil.Process().children()) - before
        nursery.kill()
        nursery.wait(5.0)
        assert bench.run(bench.plan("hogwild", accelerators=(), keys=KEYS)).trace.status == "done"
    assert set(psutil.Process().children()) == before
