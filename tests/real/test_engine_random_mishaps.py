"""Twenty random moments for each kind of mishap: nothing measured is lost, and nothing is left behind."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final

import pytest

from hetsgd.models.invariants import check
from hetsgd.models.run import StopRule
from hetsgd.real.watch import Watch
from hetsgd.real.workforce import ChildLost
from tests.real.mishaps import Mishap, at, faults, hang, kill, pids, starve
from tests.real.small_runs import Bench
from tests.real.test_engine_processes import nothing_left as nothing_left
from tests.real.test_engine_processes import script, start

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("impatient")]

TIMES: Final = 20
SECONDS: Final[dict[str, float]] = {"kill": 0.8, "hang": 2.5, "starve": 0.8}
HOGBATCH: Final = {"accelerator_batch": 32}
SYNCHRONOUS: Final = {"cpu_batch": 8, "accelerator_batch": 32}
EASGD: Final = {"cpu_batch": 4, "accelerator_batch": 16, "steps": 4}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A second of silence is too long here."""
    monkeypatch.setattr("hetsgd.real.workforce.Watch", partial(Watch, least_s=1.0, unknown_s=4.0))
    yield
    for name in ("cpu[0]", "cpu[1]", "acc0"):
        for pid in pids(name):  # of a test that failed: a stopped process would stay
            kill(pid)


@pytest.mark.parametrize("mishap", [kill, hang, starve])
@pytest.mark.parametrize(
    ("policy", "keys", "mode", "lanes", "name"),
    [
        ("hogbatch", HOGBATCH, "barrier", 2, "cpu[1]"),
        ("hogbatch", HOGBATCH, "barrier", 2, "acc0"),
        ("synchronous", SYNCHRONOUS, "barrier", 2, "cpu[0]"),
        ("synchronous", SYNCHRONOUS, "barrier", 2, "acc0"),
        ("easgd", EASGD, "barrier", 2, "cpu[1]"),
        ("easgd", EASGD, "barrier", 2, "acc0"),
        ("hogbatch", HOGBATCH, "free", 2, "cpu[0]"),
    ],
)
def test_whenever_it_happens_the_books_are_in_order(
    bench: Bench, mishap: Mishap, policy: str, keys: dict[str, Any], mode: str, lanes: int, name: str
) -> None:
    """`bench.run` checks the invariants (rows, versions, places) and that the decisions can be replayed."""
    rng = random.Random(f"{mishap.__name__} {policy} {name}")
    told, seconds = 0, SECONDS[mishap.__name__]
    for number in range(TIMES):
        delay_s = rng.uniform(0.0, seconds + 0.4)
        plan = bench.plan(
            policy, lanes=lanes, keys=keys, mode=mode, stop=StopRule(seconds=seconds), seed=number,
            lookahead=number % 2 if policy != "synchronous" else 0, evaluate_every_s=0.2,
        )  # fmt: skip
        began = time.monotonic()
        trace, lost = None, name
        with at(delay_s, mishap, name) as met:
            try:
                trace = bench.run(plan).trace
            except ChildLost as error:  # nothing was measured yet: it was still starting
                lost = str(error)
        assert time.monotonic() - began < 60.0
        assert name in lost
        if trace is None:
            continue
        assert trace.status == "done", trace.stop_reason
        assert len(trace["evaluations"]) >= 2
        told += len(trace["faults"])
        assert len(trace["faults"]) <= (1 if met else 0)
        assert all(what.startswith(name) for _, what, _ in faults(trace))
        assert [pid for each in ("cpu[0]", "cpu[1]", "acc0") for pid in pids(each)] == []
    if mishap is not starve:  # a child that needs no more memory does not notice
        assert told >= TIMES // 4


@pytest.mark.parametrize("evaluation", ["blocking", "deferred"])
def test_whenever_an_interrupt_comes_the_run_is_kept_whole(evaluation: str) -> None:
    """From the first line of the script on, once or several times; `nothing_left` looks for what stayed."""
    rng = random.Random(evaluation)
    kept = 0
    for _ in range(TIMES):
        process = start(["-c", script(3.0, evaluation)])
        assert process.stdout is not None
        assert process.stdout.readline() == "main\n"
        time.sleep(rng.uniform(0.0, 4.0))
        for _ in range(rng.choice([1, 1, 2])):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, rng.choice([signal.SIGINT, signal.SIGTERM]))
            time.sleep(rng.uniform(0.0, 0.2))
        out, errors = process.communicate(timeout=40)
        if process.returncode == 0:
            assert "status interrupted" in out or "status done" in out, out
            assert "wrong []" in out
            assert errors == ""
            kept += 1
        else:
            # Before `train` has taken over, or after it has returned, Python answers as it does for any script.
            assert process.returncode in (-signal.SIGINT, -signal.SIGTERM, 1), errors
            assert "train(plan" not in errors or "KeyboardInterrupt" in errors
    assert kept >= TIMES // 2


def test_the_check_of_the_books_can_fail(bench: Bench) -> None:
    trace = bench.run(bench.plan("hogbatch", keys=HOGBATCH, stop=StopRule(seconds=0.3))).trace
    trace["fates"]["rows"][0] += 1
    assert check(trace, rows=bench.data.rows) != []
