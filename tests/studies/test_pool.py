"""The pool runs jobs in children, survives a child's death and leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import cloudpickle
import psutil
import pytest

from hetsgd.studies.pool import run_all

# A child cannot import this file by its name, so the functions travel by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def double(number: int) -> tuple[int, int]:
    return 2 * number, os.getpid()


def fail(number: int) -> int:
    if number == 1:
        raise ValueError(f"no {number}")
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def sleep(_: Any) -> None:
    time.sleep(60)


def test_jobs_run_in_children_and_come_back_with_their_index() -> None:
    outcomes = list(run_all(double, [3, 4, 5], workers=2))
    assert {outcome.index: outcome.value[0] for outcome in outcomes} == {0: 6, 1: 8, 2: 10}
    assert os.getpid() not in {outcome.value[1] for outcome in outcomes}


def test_a_job_that_raises_and_a_child_that_dies_take_no_other_job_with_them() -> None:
    outcomes = {outcome.index: outcome for outcome in run_all(fail, [0, 1, 2, 3], workers=1)}
    assert outcomes[1].error == "ValueError: no 1"
    assert "in fail\nValueError: no 1" in outcomes[1].detail
    assert "ended with code -9" in outcomes[2].error
    assert (outcomes[0].value, outcomes[3].value) == (0, 3)


def test_closing_ends_the_children() -> None:
    jobs = run_all(sleep, [0, 1], workers=2)
    before = set(psutil.Process().children())
    with pytest.raises(KeyboardInterrupt):
        _interrupt_after(jobs, 1.0)
    jobs.close()
    assert set(psutil.Process().children()) <= before


def _interrupt_after(jobs: Any, seconds: float) -> None:
    signal.signal(signal.SIGALRM, _raise)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    next(jobs)


def _raise(*_: Any) -> None:
    raise KeyboardInterrupt


def test_an_unguarded_script_can_use_it() -> None:
    script = (
        "from hetsgd.studies.pool import run_all\n"
        "def twice(x): return 2 * x\n"
        "print(sorted(o.value for o in run_all(twice, [1, 2], workers=2)))\n"
    )
    child = subprocess.run([sys.executable, "-"], input=script, capture_output=True, text=True, timeout=60, check=False)
    assert child.stdout == "[2, 4]\n", child.stderr


def test_zero_workers_are_refused() -> None:
    with pytest.raises(ValueError, match="workers must be >= 1, got 0"):
        next(run_all(double, [1], workers=0))
