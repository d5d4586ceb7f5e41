"""The machine at hand: what was detected and measured is plausible, and stand-ins take their cores."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from hetsgd.models.machine import Accelerator
from hetsgd.models.machine_file import load_machine
from hetsgd.models.machine_local import Rates, available_cores, cache_bytes, local_machine, measure, memory_bytes

CARD = Accelerator(
    name="cuda:0", device="cuda:0", flops_float32=1e13, flops_float64=5e12, half_batch=64.0,
    memory_bandwidth_bytes_per_s=1e12, memory_bytes=1 << 34, l2_bytes=1 << 22, launch_s=5e-6, kernels_per_layer=5.0,
)  # fmt: skip


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of four cores whose rates are known."""
    rates = Rates(
        core_bytes_per_s=1e10, core_l3_bytes_per_s=2e10, all_bytes_per_s=3e10, flops_float32=1e11,
        flops_float64=5e10, half_batch=10.0,
    )  # fmt: skip
    monkeypatch.setattr("hetsgd.models.machine_local.available_cores", lambda: 4)
    monkeypatch.setattr("hetsgd.models.machine_local.measure", lambda cores: rates)


def test_measuring_is_quick_done_once_and_plausible() -> None:
    cores = available_cores()
    measure.cache_clear()
    begun = time.process_time()
    rates = measure(cores)
    assert time.process_time() - begun < 1.5 * (1 + cores)
    assert measure(cores) is rates
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
