"""The check of an accelerator: it finds what is wrong, says what it could not judge, and stays within its time."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsgd.models.trace import SPAN_CODE, Trace
from hetsgd.real import warm_start
from hetsgd.real.merge_cases import CASES, MergeCase, OneAccelerator, check_case, one_accelerator
from hetsgd.studies import gpu_check
from hetsgd.studies.gpu_check import SHORT, Bench, bench, run_checks
from hetsgd.studies.gpu_findings import Finding, verdict, write_findings
from hetsgd.studies.gpu_model import hetsgd, validation_findings
from hetsgd.studies.overlap import overlap


@pytest.fixture(scope="module")
def stand_in() -> Bench:
    return bench("cpu", SHORT)


def test_the_short_check_passes_on_a_stand_in(stand_in: Bench, tmp_path: Path) -> None:
    """And what a stand-in cannot show is not judged, rather than passed."""
    findings: list[Finding] = []
    run_checks(stand_in, tmp_path, findings)
    by_part = {part: [f for f in findings if f.part == part] for part in ("merges", "overlap", "throughput", "model")}
    assert [f.status for f in by_part["merges"]] == ["ok", "ok"]
    assert {f.status for f in by_part["overlap"]} == {"skipped"}
    assert all(f.value is not None and f.value > 0.0 for f in by_part["throughput"])
    assert [f.status for f in by_part["model"]] == ["skipped"]
    write_findings(tmp_path, "a stand-in", findings)
    stored = json.loads((tmp_path / "gpu_check.json").read_text())
    assert stored["schema"] == "hetsgd.gpu-check/1"
    assert len(stored["findings"]) == len(findings)


@pytest.mark.slow
def test_every_case_agrees_with_its_loop(stand_in: Bench) -> None:
    machine = one_accelerator(stand_in.machine, stand_in.accelerator)
    with warm_start():
        found = [check_case(case, machine) for case in CASES]
    assert {agreement.case: agreement.error for agreement in found if not agreement.holds} == {}


def test_a_merge_that_does_something_else_is_found(stand_in: Bench) -> None:
    machine = one_accelerator(stand_in.machine, stand_in.accelerator)
    (average,) = [case for case in CASES if case.name == "replica, average"]
    wrong = MergeCase(name="wrong", recipe=OneAccelerator(rule="average", weight=0.2501), change=average.change)
    agreement = check_case(wrong, machine)
    assert not agreement.holds
    assert agreement.error > 1e-6


def test_a_part_that_breaks_is_told_and_the_others_go_on(
    stand_in: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Bench) -> Any:
        yield Finding(part="merges", what="first", found="0", status="ok")
        raise RuntimeError("out of memory on the device")

    monkeypatch.setattr(gpu_check, "_merges", broken)
    monkeypatch.setattr(gpu_check, "_throughput", lambda _: iter(()))
    findings: list[Finding] = []
    run_checks(stand_in, tmp_path, findings)
    assert [(f.part, f.status) for f in findings[:2]] == [("merges", "ok"), ("merges", "wrong")]
    assert findings[1].found == "out of memory on the device"
    assert {f.part for f in findings[2:]} == {"overlap", "model"}


def test_nothing_begins_once_the_time_is_over(stand_in: Bench, tmp_path: Path) -> None:
    findings: list[Finding] = []
    run_checks(replace(stand_in, until_s=time.monotonic() - 1.0), tmp_path, findings)
    assert [f.status for f in findings] == ["skipped"] * 4


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    begun = time.monotonic()
    code, _, _ = hetsgd(["simulate", "--policy", "hogwild", "--seconds", "1000000"], time.monotonic() + 0.5, tmp_path)
    assert code is None
    assert time.monotonic() - begun < 20.0


def spans(*rows: tuple[str, float, float]) -> Trace:
    trace = Trace(level="full")
    for kind, start_s, end_s in rows:
        trace.span(kind, "acc0", "acc0", 0, start_s, end_s, 0)  # type: ignore[arg-type]  # plain text for brevity
    return trace


@pytest.mark.parametrize(
    ("load", "hidden_s"),
    [
        ((1.0, 3.0), 2.0),  # all of it while computing
        ((4.0, 5.0), 0.0),  # between two steps
        ((3.0, 6.0), 2.0),  # the end of one step and the start of the next
        ((0.0, 9.0), 7.0),  # around everything
    ],
)
def test_only_copies_while_the_worker_computes_are_hidden(load: tuple[float, float], hidden_s: float) -> None:
    trace = spans(("load", -1.0, -0.5), ("compute", 0.0, 4.0), ("load", *load), ("compute", 5.0, 8.0))
    found = overlap(trace, "acc0", "load")
    assert found.copied_s == pytest.approx(load[1] - load[0])
    assert found.hidden_s == pytest.approx(hidden_s)


def test_the_overlap_is_that_of_a_naive_sum() -> None:
    rng = np.random.default_rng(0)
    edges = np.sort(rng.uniform(0.0, 10.0, 20)).reshape(10, 2)
    starts = rng.uniform(0.0, 10.0, 12)
    loads = np.stack([starts, starts + rng.uniform(0.0, 1.0, 12)], axis=1)
    loads = loads[np.argsort(loads[:, 0])]
    trace = spans(*(("compute", *edge) for edge in edges), *(("load", *load) for load in loads))
    wanted = sum(max(min(b, d) - max(a, c), 0.0) for a, b in loads[1:] for c, d in edges)
    assert overlap(trace, "acc0", "load").hidden_s == pytest.approx(wanted)
    assert len(trace["spans"][trace["spans"]["kind"] == SPAN_CODE["load"]]) == 12


@pytest.mark.parametrize(
    ("error", "floor", "status"), [(0.08, 0.01, "ok"), (0.2, 0.01, "short"), (0.2, 0.15, "ok"), (None, None, "short")]
)
def test_a_prediction_is_judged_beside_the_noise(error: float | None, floor: float | None, status: str) -> None:
    validation = {"median_error": error, "noise_floor": floor, "kendall_tau": None, "verdict": "it held"}
    first, *_, last = validation_findings(validation)
    assert first.status == status
    assert last.found == "it held"


def test_the_verdict_counts() -> None:
    def finding(status: Any) -> Finding:
        return Finding(part="p", what="w", found="f", status=status)

    found = [finding(status) for status in ("ok", "ok", "short", "wrong", "skipped")]
    assert verdict(found) == "2 of 4 checks passed, 1 failed, 1 below the figure wanted; 1 not judged here."
