"""The machine at hand: what was detected and measured is plausible, and stand-ins take their cores."""

from __future__ import annotations

import json
import time
from dataclasses import fields, replace
from pathlib import Path

import pytest

from hetsgd.models.local_rates import Kept, Rates, host, rates_of
from hetsgd.models.machine import Accelerator
from hetsgd.models.machine_file import load_machine
from hetsgd.models.machine_local import (
    available_cores,
    best_of,
    cache_bytes,
    known_rates,
    local_machine,
    measure,
    memory_bytes,
)
from hetsgd.studies.machine_writer import machine_text

CARD = Accelerator(
    name="cuda:0", device="cuda:0", flops_float32=1e13, flops_float64=5e12, half_batch=64.0,
    memory_bandwidth_bytes_per_s=1e12, memory_bytes=1 << 34, l2_bytes=1 << 22, launch_s=5e-6, kernels_per_layer=5.0,
)  # fmt: skip


RATES = Rates(
    core_bytes_per_s=1e10, core_l3_bytes_per_s=2e10, all_bytes_per_s=3e10, flops_float32=1e11, flops_float64=5e10,
    half_batch=10.0,
)  # fmt: skip


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of four cores whose rates are known."""
    kept = Kept(rates=RATES, date="2026-05-04T03:02:01+00:00", path=None, fresh=True)
    monkeypatch.setattr("hetsgd.models.machine_local.available_cores", lambda: 4)
    monkeypatch.setattr("hetsgd.models.machine_local.known_rates", lambda cores, fresh: kept)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("HETSGD_CACHE", str(tmp_path))
    return tmp_path


def test_measuring_is_quick_and_plausible() -> None:
    cores = available_cores()
    begun = time.process_time()
    rates = measure(cores)
    assert time.process_time() - begun < 1.5 * (1 + cores)
    assert 5e8 < rates.core_bytes_per_s <= rates.core_l3_bytes_per_s < 1e13
    assert rates.core_bytes_per_s <= rates.all_bytes_per_s < 1e13
    assert 1e8 < rates.flops_float64 < 1e13
    assert 1e8 < rates.flops_float32 < 1e13
    assert 0.0 <= rates.half_batch < 1e4


def test_the_system_is_read() -> None:
    assert available_cores() >= 1
    assert memory_bytes() > 1 << 26
    for level in (2, 3):
        size = cache_bytes(level)
        assert size is None or size > 1 << 14


@pytest.mark.usefixtures("four_cores")
def test_without_a_device_one_core_stands_in() -> None:
    machine = local_machine()
    assert [(card.name, card.device) for card in machine.accelerators] == [("cpu:0", "cpu")]
    assert machine.cpu_lanes == 3
    assert machine.route("cpu0", "cpu:0")[0][0].pinned_bytes_per_s == 5e9, "a core reads and writes what it copies"
    assert machine.sockets[0].dram_bandwidth_bytes_per_s == 3e10


@pytest.mark.usefixtures("four_cores")
def test_more_stand_ins_take_more_cores_and_leave_at_least_one_lane() -> None:
    two = load_machine("local", {"accelerators": 2})
    assert [card.name for card in two.accelerators] == ["cpu:0", "cpu:1"]
    assert two.cpu_lanes == 2
    assert load_machine("local", {"accelerators": 6}).cpu_lanes == 1
    assert load_machine("local", {"accelerators": 0}).cpu_lanes == 4
    assert load_machine("local", {"cpu_lanes": 1}).cpu_lanes == 1


@pytest.mark.usefixtures("four_cores")
def test_devices_that_were_found_are_used_with_a_link_each() -> None:
    machine = load_machine("local", accelerators=[CARD, replace(CARD, name="cuda:1", device="cuda:1")])
    assert [card.name for card in machine.accelerators] == ["cuda:0", "cuda:1"]
    assert machine.cpu_lanes == 4, "a device has its own processor"
    assert all(machine.route("cpu0", card.name) for card in machine.accelerators)
    one = load_machine("local", {"accelerators": 1}, accelerators=[CARD, replace(CARD, name="cuda:1")])
    assert len(one.accelerators) == len(one.links) == 1
    with pytest.raises(ValueError, match="must be <= 1, got 3"):
        load_machine("local", {"accelerators": 3}, accelerators=[CARD])


def test_rates_are_kept_for_the_next_command_until_asked_for_anew(cache: Path) -> None:
    measured: list[Rates] = []

    def measuring() -> Rates:
        measured.append(replace(RATES, half_batch=float(len(measured))))
        return measured[-1]

    here = host(4, {"l2": 1})
    first, second = rates_of(here, measuring), rates_of(here, measuring)
    assert (len(measured), first.fresh, second.fresh) == (1, True, False)
    assert (second.rates, second.date, second.path) == (first.rates, first.date, first.path)
    assert "measured just now, kept in" in first.words()
    assert f"of {first.date[:10]}" in second.words()
    assert "--set machine.fresh=true renews" in second.words()
    assert rates_of(here, measuring, fresh=True).rates == measured[1]
    assert rates_of(here, measuring).rates == measured[1]
    content = json.loads(next((cache / "machines").glob("local-*.json")).read_text())
    assert {"date", "host", "rates"} < set(content)
    assert {"python", "numpy", "hetsgd"} == set(content["host"]["versions"])


def test_another_host_and_a_damaged_file_are_measured_anew(cache: Path) -> None:
    first = rates_of(host(4, {"l2": 1}), lambda: RATES)
    assert rates_of(host(8, {"l2": 1}), lambda: RATES).path != first.path
    assert first.path is not None
    for text in ("{", '{"date": "x", "rates": {"core_bytes_per_s": -1}}', "[]"):
        first.path.write_text(text)
        assert rates_of(host(4, {"l2": 1}), lambda: RATES).fresh


def test_without_a_folder_to_write_rates_are_measured_and_said_to_be_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HETSGD_CACHE", str(tmp_path / "file"))
    kept = rates_of(host(4, {}), lambda: RATES)
    assert (kept.path, kept.rates) == (None, RATES)
    assert "cannot be written" in kept.words()


def test_the_best_of_several_rounds_counts() -> None:
    slow = replace(RATES, core_bytes_per_s=2e10, flops_float32=5e10, half_batch=3.0)
    best = best_of([RATES, slow])
    assert (best.core_bytes_per_s, best.flops_float32, best.half_batch) == (2e10, 1e11, 10.0)
    assert best.core_l3_bytes_per_s == 2e10


@pytest.mark.usefixtures("cache")
def test_two_commands_see_the_same_machine_and_fresh_measures_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = iter(range(1, 100))
    monkeypatch.setattr(
        "hetsgd.models.machine_local.measure", lambda cores: replace(RATES, half_batch=float(next(rounds)))
    )
    machines = []
    for overrides in ({}, {}, {"fresh": "true"}, {}):
        known_rates.cache_clear()  # as a command of its own
        machines.append(load_machine("local", overrides).sockets[0].half_batch)
    known_rates.cache_clear()
    assert machines[0] == machines[1] != machines[2] == machines[3]
    with pytest.raises(ValueError, match=r"machine\.fresh: must be true or false, got 'perhaps'"):
        load_machine("local", {"fresh": "perhaps"})
    with pytest.raises(ValueError, match=r"machine\.fresh: no such key"):
        load_machine("ucmerced-k80", {"fresh": True})


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize("cards", [(), (CARD,)])
def test_every_figure_says_whether_it_was_said_measured_or_assumed(
    cards: tuple[Accelerator, ...], tmp_path: Path
) -> None:
    machine = local_machine(cards)
    sources = dict(machine.sources)
    entries = [("socket", entry) for entry in machine.sockets] + [("accelerator", a) for a in machine.accelerators]
    for group, entry in [*entries, *(("link", link) for link in machine.links)]:
        for field in fields(entry):
            if field.name not in ("name", "device", "ends", "calibration") and getattr(entry, field.name) is not None:
                assert sources[f"{group}.{entry.name}.{field.name}"]
    assert "measured on this machine, 2026-05-04" in sources["socket.cpu0.core_flops_float32"]
    assert "operating system" in sources["socket.cpu0.dram_bytes"]
    assert sources["socket.cpu0.step_overhead_s"].startswith("assumed: ")
    assert set(machine.assumed) == {field for field, text in sources.items() if text.startswith("assumed: ")}
    path = tmp_path / "here.toml"
    path.write_text(machine_text(machine, origin="x"), encoding="utf-8")
    read = load_machine(path)
    assert dict(read.sources) == sources
    assert set(read.assumed) == set(machine.assumed)
