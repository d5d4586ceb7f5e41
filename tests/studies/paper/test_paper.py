"""The reproduction: nothing published is lost or changed, every combination has its row, golden cells stay put."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hetsgd.models.learner import NoLearner
from hetsgd.models.policy import RULES
from hetsgd.sim import simulate
from hetsgd.studies.paper.bars import Check, checks, cpu_rows_ratio, error_of, misfit
from hetsgd.studies.paper.constants import Carried, carry, constants
from hetsgd.studies.paper.implementation import SETTINGS, Setting, machine_of, plan_of, workload_of
from hetsgd.studies.paper.prediction import Predicted, predict
from hetsgd.studies.paper.published import (
    ALGORITHMS,
    DATASETS,
    GPUS,
    METRICS,
    PUBLISHED,
    Key,
    figure,
    published,
)
from hetsgd.studies.paper.report import write_reproduction
from hetsgd.studies.paper.reproduction import COLUMNS, Cell, Reproduction, table_text
from hetsgd.studies.paper.search import Region, Tried, grid, search
from hetsgd.studies.paper.words import answer_lines, limits


@pytest.fixture(scope="module")
def cells() -> dict[Cell, Predicted]:
    """Every cell with the settings that are shipped."""
    return {
        Cell(gpu, dataset, algorithm): predict(gpu, dataset, algorithm, SETTINGS[gpu])
        for gpu in GPUS
        for dataset in DATASETS
        for algorithm in ALGORITHMS
    }


@pytest.fixture(scope="module")
def rows(cells: dict[Cell, Predicted]) -> list[dict[str, str]]:
    """The rows of paper.csv."""
    return list(csv.DictReader(io.StringIO(table_text(cells))))


def test_the_table_has_one_row_for_every_combination(rows: list[dict[str, str]]) -> None:
    found = [(row["dataset"], row["gpu"], row["algorithm"], row["metric"]) for row in rows]
    assert len(found) == len(set(found)) == 4 * 2 * 5 * 6
    assert set(found) == {(d, g, a, m) for d in DATASETS for g in GPUS for a in ALGORITHMS for m in METRICS}
    assert tuple(rows[0]) == COLUMNS


def test_published_values_are_those_of_the_shipped_file(rows: list[dict[str, str]]) -> None:
    shipped = list(csv.DictReader(io.StringIO(PUBLISHED.read_text(encoding="utf-8"))))
    assert len(shipped) == len(published()) == 59
    kept = {(row["dataset"], row["gpu"], row["algorithm"], row["metric"]): row for row in rows}
    for row in shipped:
        own = kept.pop((row["dataset"], row["gpu"], row["algorithm"], row["metric"]))
        assert {name: own[name] for name in row} == row
    assert all(row["value"] == row["mark"] == row["note"] == row["error"] == "" for row in kept.values())


def test_timing_is_predicted_everywhere_and_losses_nowhere(rows: list[dict[str, str]]) -> None:
    for row in rows:
        timing = row["metric"] in ("epoch_s", "cpu_update_share", "utilization_cpu", "utilization_gpu")
        assert bool(row["predicted"]) == timing
        assert bool(row["error"]) == (timing and bool(row["value"]))
    bound = next(row for row in rows if row["value"] == ">40")
    assert bound["error"] == ""


def test_every_published_time_share_and_utilization_is_within_its_bar(cells: dict[Cell, Predicted]) -> None:
    found = [check for cell, predicted in cells.items() for check in checks(*cell, predicted)]
    barred = [check for check in found if check.bar is not None]
    assert len(barred) == 31
    assert [check for check in barred if not check.holds] == []
    ratio = cpu_rows_ratio("V100", "covtype", cells[Cell("V100", "covtype", "cpu+gpu")])
    assert ratio is not None
    assert 1 / 1.5 <= ratio <= 1.5
    assert cpu_rows_ratio("K80", "covtype", cells[Cell("K80", "covtype", "cpu+gpu")]) is None


@pytest.mark.parametrize(
    ("gpu", "dataset", "algorithm", "epoch_s"),
    [
        ("K80", "covtype", "cpu", 367.0),
        ("K80", "covtype", "gpu", 3.892),
        ("K80", "covtype", "tensorflow", 7.161),
        ("K80", "covtype", "cpu+gpu", 4.28),
        ("V100", "w8a", "gpu", 0.185),
        ("V100", "real-sim", "cpu", 413.0),
        ("V100", "delicious", "gpu", 0.0849),
    ],
)
def test_golden_epochs(cells: dict[Cell, Predicted], gpu: str, dataset: str, algorithm: str, epoch_s: float) -> None:
    assert cells[Cell(gpu, dataset, algorithm)].epoch_s == pytest.approx(epoch_s, rel=0.02)


def test_the_implementation_is_that_of_the_authors_code() -> None:
    plan = plan_of("K80", "real-sim", "adaptive", SETTINGS["K80"])
    workload, run, machine = plan.workload, plan.run, plan.machine
    assert (workload.precision, workload.bias, workload.density, workload.sparse) == ("float64", False, 1.0, False)
    assert (run.order, run.lookahead, run.lanes, run.evaluation) == ("file", 0, "barrier", "blocking")
    assert (machine.pinned, machine.cpu_lanes, machine.accelerators[0].copy_engines) == (False, 48, 1)
    assert [len(workload_of(name).hidden) for name in DATASETS] == [6, 8, 8, 4]
    assert [workload_of(name).rows for name in DATASETS] == [581_012, 49_749, 12_920, 72_309]
    assert plan_of("V100", "w8a", "cpu", SETTINGS["V100"]).machine.cpu_lanes == 64


def test_an_epoch_is_counted_without_its_evaluation(cells: dict[Cell, Predicted]) -> None:
    plan = plan_of("K80", "w8a", "gpu", SETTINGS["K80"])
    trace = simulate(plan, NoLearner())
    predicted = cells[Cell("K80", "w8a", "gpu")]
    assert predicted.evaluation_s > 0.05
    assert 3 * (predicted.epoch_s + predicted.evaluation_s) == pytest.approx(trace.elapsed_s)
    card, link = plan.machine.accelerators[0], plan.machine.links[0]
    batches = [(8192, 6), (49_749 - 6 * 8192, 1)]
    compute_s = sum(
        count * plan.workload.step_flops(batch) / (card.flops_float64 * card.efficiency * batch / (batch + 64))
        for batch, count in batches
    )
    launches_s = 7 * 9 * 9 * 10e-6
    copied = 49_749 * plan.workload.row_bytes + 7 * 2 * plan.workload.model_bytes
    copies_s = copied / link.pageable_bytes_per_s + 7 * 3 * link.latency_s
    assert predicted.epoch_s == pytest.approx(compute_s + launches_s + copies_s, rel=0.01)


def test_tensorflow_keeps_its_model_on_the_gpu_until_it_is_evaluated() -> None:
    plan = plan_of("V100", "w8a", "tensorflow", SETTINGS["V100"])
    trace = simulate(plan, NoLearner())
    landed = [RULES[row["rule"]] for row in trace["merges"]]
    assert landed.count("overwrite") == 3  # one an epoch, before its loss
    assert trace.totals.rows["discarded"] + trace.totals.rows["merged"] == 3 * plan.workload.rows
    assert trace.totals.bytes["pcie0:up"] == 3 * plan.workload.model_bytes


def test_errors_of_times_are_relative_and_those_of_shares_differences() -> None:
    assert error_of("epoch_s", 9.0, 10.0) == pytest.approx(-0.1)
    assert error_of("utilization_gpu", 0.5, 0.4) == pytest.approx(0.1)
    at_its_bar = Check(key=Key("w8a", "K80", "cpu", "epoch_s"), published=1.0, predicted=1.25, bar=0.25)
    beyond = replace(at_its_bar, predicted=1.26)
    assert (at_its_bar.holds, beyond.holds) == (True, False)
    assert misfit([at_its_bar, replace(beyond, bar=None)]) == pytest.approx(1.0)
    assert figure("covtype", "K80", "gpu", "time_to_0.9_s").number is None  # >40 is a bound


def test_fitted_constants_are_few_and_said() -> None:
    found = constants()
    for gpu in GPUS:
        assert sum(constant.scope == gpu for constant in found) <= 2
        fitted = [field for field, source in machine_of(gpu).sources if "fitted" in source]
        names = {field.rsplit(".", 1)[-1] for field in fitted}
        assert names == {"dram_bandwidth_bytes_per_s", "efficiency", "cpu_sigma"}
    assert sum(constant.scope == "both" for constant in found) <= 4
    assert all(constant.fitted_to for constant in found)


@pytest.fixture(scope="module")
def carried() -> Carried:
    """What the constants that were fitted on covtype alone predict."""
    return carry("covtype", ("covtype", "w8a"), dict(SETTINGS))


def test_constants_fitted_on_one_data_set_carry_to_the_other(carried: Carried) -> None:
    errors = {
        check.key: check.error
        for check in carried.checks
        if check.key.metric == "epoch_s" and check.key.algorithm in ("cpu", "gpu")
    }
    assert all(abs(errors[Key("covtype", gpu, "cpu", "epoch_s")]) < 0.01 for gpu in GPUS)
    assert all(0.05 < abs(error) < 0.25 for key, error in errors.items() if key.dataset == "w8a")


def test_the_search_finds_the_same_again_and_keeps_what_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [replace(SETTINGS["V100"], cpu_upper=32), SETTINGS["V100"]]
    monkeypatch.setattr("hetsgd.studies.paper.search.grid", lambda gpu, quick=False: few)
    monkeypatch.setattr("hetsgd.studies.paper.search.BATCHES", (4096, 8192))
    first = search(tmp_path, ("V100",), workers=2)["V100"]
    assert (first.tried, first.best) == (2, SETTINGS["V100"])
    assert [tried.within for tried in first.batches] == [True, False]
    monkeypatch.setattr("hetsgd.studies.paper.search.run_all", lambda *_: iter(()))  # nothing is left to do
    assert search(tmp_path, ("V100",), workers=2)["V100"] == first
    stored: dict[str, Any] = json.loads((tmp_path / "search.json").read_text(encoding="utf-8"))
    stored["model"] = "another"
    (tmp_path / "search.json").write_text(json.dumps(stored), encoding="utf-8")
    with pytest.raises(KeyError):
        search(tmp_path, ("V100",), workers=2)


def test_what_stands_for_a_region_is_near_its_middle() -> None:
    def tried(upper: int, worst: float, epoch_s: float) -> Tried:
        return Tried(setting=Setting(batch=1, lower=1, upper=upper, cpu_upper=1), errors=(), worst=worst,
                     others=(("delicious", epoch_s, 0.5),))  # fmt: skip

    odd, middle, other, outside = tried(2, 0.5, 9.0), tried(3, 0.6, 1.0), tried(4, 0.7, 1.01), tried(5, 1.2, 1.0)
    batches = (replace(tried(2, 0.1, 1.0), setting=Setting(batch=64, lower=1, upper=2, cpu_upper=1)),)
    region = Region(gpu="K80", batches=batches, settings=(odd, middle, other, outside), tried=9)
    assert region.best == replace(middle.setting, batch=64)
    assert region.within == (odd, middle, other)
    nothing = replace(region, settings=(outside,))
    assert nothing.best.upper == 5


def test_the_shipped_settings_are_of_the_grid() -> None:
    for gpu in GPUS:
        assert SETTINGS[gpu] in grid(gpu)
        assert set(grid(gpu, quick=True)) <= set(grid(gpu))
        lanes, smallest = machine_of(gpu).cpu_lanes, min(workload_of(name).rows for name in DATASETS)
        assert all(setting.cpu_upper * lanes <= smallest for setting in grid(gpu))


def test_the_report_answers_first_and_says_what_does_not_match(
    tmp_path: Path, cells: dict[Cell, Predicted], carried: Carried
) -> None:
    tried = Tried(setting=SETTINGS["K80"], errors=(("w8a, adaptive, epoch_s", 0.1),), worst=0.4,
                  others=(("delicious", 0.5, 0.8), ("real-sim", 9.0, 0.7)))  # fmt: skip
    regions = {gpu: Region(gpu=gpu, batches=(tried,), settings=(tried,), tried=7) for gpu in GPUS}
    off = {**cells, Cell("K80", "covtype", "gpu"): replace(cells[Cell("K80", "covtype", "gpu")], epochs_s=(7.0,))}
    study = Reproduction(settings=SETTINGS, cells=off, regions=regions, carried=(carried,), quick=True)
    page = write_reproduction(tmp_path, study).read_text(encoding="utf-8")
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    answer, limit = answer_lines(study), limits(study)
    assert answer[0].startswith("30 of 31 published")
    assert "1 of 7 settings lie within all bars" in answer[2]
    assert limit[0] == "Outside its bar (25 %): epoch of gpu on covtype, K80, +100 %."
    assert any("fitted on covtype alone keep 12 of 12 bars" in line for line in limit)
    assert text.index(answer[0]) < text.index(limit[0]) < text.index("## Tables")
    assert all(name in page for name in ("covtype, V100, adaptive", "DRAM bandwidth", "read in the authors"))
    assert (tmp_path / "paper.csv").read_text(encoding="utf-8") == table_text(off)
    assert sorted({path.suffix for path in (tmp_path / "figures").iterdir()}) == [".png", ".svg"]
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == {"epochs", "shares", "utilization", "region"}
    content = json.loads((tmp_path / "paper.json").read_text(encoding="utf-8"))
    assert content["schema"] == "hetsgd.paper/1"
    assert sum(not check["holds"] for check in content["checks"]) == 1
