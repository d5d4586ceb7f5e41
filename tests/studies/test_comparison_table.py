"""Two runs side by side: what was chosen first, what was only measured anew in one line, all within 100 columns."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from hetsgd.studies.comparison import compare_runs, input_differences
from hetsgd.studies.comparison_table import print_comparison
from hetsgd.studies.record import StoredRun
from tests.studies.records import record

SOCKET = {"name": "cpu0", "cores": 2, "core_flops_float32": 10e9, "dram_bandwidth_bytes_per_s": 5e9}
LOCAL: dict[str, Any] = {
    "engine": "sim", "machine": {"name": "local", "cpu_lanes": 1, "sockets": [SOCKET]}, "machine_set": [],
    "policy": {"name": "hogbatch", "object": "hetsgd.models.policies.hogbatch:Hogbatch", "keys": {"cpu_batch": 4}},
    "versions": {"hetsgd": "0.1.0"},
}  # fmt: skip


def changed(**figures: float) -> dict[str, Any]:
    other = copy.deepcopy(LOCAL)
    other["machine"]["sockets"][0] |= figures
    return other


def run(resolved: dict[str, Any], seconds: float, share: float = 0.5) -> StoredRun:
    return StoredRun(
        folder=Path("x"), record=record([(0.0, 0.7), (seconds, 0.5)], update_share={"cpu": share}), resolved=resolved
    )


def test_figures_measured_anew_on_this_machine_are_no_choice_unless_they_were_set() -> None:
    found = input_differences(LOCAL, changed(core_flops_float32=11e9, cores=3))
    assert [item.name for item in found.chosen] == ["machine.sockets.cpu0.cores"]
    assert [item.name for item in found.measured] == ["machine.sockets.cpu0.core_flops_float32"]
    chosen = {**changed(core_flops_float32=11e9), "machine_set": ["cpu0.core_flops_float32"]}
    assert [item.name for item in input_differences(LOCAL, chosen).chosen] == [
        "machine.sockets.cpu0.core_flops_float32"
    ]
    named = copy.deepcopy(LOCAL)
    named["machine"]["name"] = "mine"
    other = changed(core_flops_float32=11e9)
    other["machine"]["name"] = "mine"
    assert [item.name for item in input_differences(named, other).chosen] == ["machine.sockets.cpu0.core_flops_float32"]


def test_the_tables_are_readable_at_100_columns(capsys: pytest.CaptureFixture[str]) -> None:
    other = changed(core_flops_float32=12e9)
    other["policy"] = {"name": "x" * 90, "object": "somewhere.quite.deep:" + "Y" * 300, "keys": {}}
    found = compare_runs(run(LOCAL, 2.0), run(other, 3.0))
    print_comparison(found, "out/" + "a" * 150, "out/b")
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[0].startswith("A: out/aaa")
    assert max(len(line) for line in lines[1:]) <= 100
    assert text.index("policy.name") < text.index("Results")
    assert "Of the machine at hand 1 figure measured anew, up to 20 % apart (--all shows them)." in text
    assert "core_flops_float32" not in text
    assert "cpu_lanes" not in text
    (elapsed,) = [line for line in lines if "elapsed_s" in line]
    assert elapsed.split() == ["elapsed_s", "2", "s", "3", "s", "+50.0", "%"]
    print_comparison(found, "a", "b", everything=True)
    text = capsys.readouterr().out
    assert "core_flops_float32" in text
    assert "machine.cpu_lanes" in text


def test_there_is_no_negative_zero(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(compare_runs(run(LOCAL, 2.0, 0.5), run(LOCAL, 2.0, 0.4999999)), "a", "b")
    text = capsys.readouterr().out
    assert "+0.0 points" in text
    assert "-0" not in text
    assert "Inputs: the same." in text


def test_changes_are_factors_where_per_cent_say_little_and_points_where_they_are_shares(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_comparison(compare_runs(run(LOCAL, 0.02, 0.25), run(LOCAL, 10.0, 0.5)), "a", "b")
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.split()}
    assert lines["elapsed_s"].rstrip().endswith("x 500")
    assert any(
        line.rstrip().endswith("+25.0 points") for name, line in lines.items() if name.startswith("update_share")
    )
