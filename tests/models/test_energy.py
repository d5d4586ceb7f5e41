"""Energy and cost: linear in time and in how busy the processors are; none where the machine does not say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsgd.models.energy import NOT_KNOWN, has_watts, spent
from hetsgd.models.machine import Machine
from hetsgd.models.machine_file import load_machine
from hetsgd.models.metrics import metrics
from hetsgd.models.trace import Place, Trace


def with_watts(machine: Machine) -> Machine:
    sockets = tuple(replace(socket, idle_watts=20.0, busy_watts=20.0 + 16 * 5.0) for socket in machine.sockets)
    cards = tuple(replace(card, idle_watts=40.0, busy_watts=300.0) for card in machine.accelerators)
    return replace(machine, sockets=sockets, accelerators=cards, price_usd_per_hour=None)


@pytest.fixture
def machine() -> Machine:
    """Two sockets of 16 cores: 20 W each and 5 W for each core at work; a device of 40 W to 300 W; 2 lanes."""
    return with_watts(load_machine("aws-p3.16xlarge", {"cpu_lanes": 2}))


def trace_of(level: str = "full") -> Trace:
    """100 s: a lane computes for 50 s and copies for 10 s, the device computes from 20 s to 60 s and pushes for 5 s."""
    trace = Trace(level="full" if level == "full" else "summary")
    trace.place(Place(name="cpu[0]", worker="cpu", kind="cpu", cpus=1))
    trace.place(Place(name="gpu0", worker="gpu0", kind="accelerator"))
    trace.place(Place(name="pcie0:up", worker=None, kind="link"))
    trace.place(Place(name="merge", worker=None, kind="merge"))
    trace.span("pull", "cpu[0]", "cpu", 0, 0.0, 10.0)
    trace.span("compute", "cpu[0]", "cpu", 0, 10.0, 60.0)
    trace.span("wait", "cpu[0]", "cpu", 0, 60.0, 100.0)
    trace.span("compute", "gpu0", "gpu0", 1, 20.0, 60.0)
    trace.span("push", "pcie0:up", "gpu0", 1, 60.0, 65.0)
    trace.span("merge", "merge", "", 0, 65.0, 67.0)
    trace.elapsed_s = 100.0
    return trace


def test_energy_is_idle_power_and_what_work_adds(machine: Machine) -> None:
    found = spent(trace_of(), machine, {0.5: 40.0, 0.9: None})
    idle_w = 20.0 + 20.0 + 40.0
    assert found.energy_j == pytest.approx(100.0 * idle_w + 60.0 * 5.0 + 40.0 * 260.0 + 2.0 * 5.0)
    assert found.energy_to_loss_j == {0.5: pytest.approx(40.0 * idle_w + 40.0 * 5.0 + 20.0 * 260.0), 0.9: None}
    assert found.cost_usd is None


def test_without_spans_energy_to_a_level_is_at_the_mean_power(machine: Machine) -> None:
    kept, totals = (spent(trace_of(level), machine, {0.5: 50.0}) for level in ("full", "summary"))
    assert totals.energy_j == pytest.approx(kept.energy_j)
    assert (totals.energy_to_loss_j or {})[0.5] == pytest.approx((kept.energy_j or 0.0) / 2)


def test_lanes_that_share_a_core_share_its_watts(machine: Machine) -> None:
    full = replace(machine, cpu_lanes=64)  # two lanes on each core
    one, both = (spent(trace_of(), on, {}).energy_j or 0.0 for on in (machine, full))
    assert one - both == pytest.approx(60.0 * 2.5)


def test_a_stand_in_is_a_core_of_its_socket(machine: Machine) -> None:
    card = replace(machine.accelerators[0], device="cpu", idle_watts=None, busy_watts=None)
    assert has_watts(replace(machine, accelerators=(card,)))
    energy_j = spent(trace_of(), replace(machine, accelerators=(card,)), {}).energy_j
    assert energy_j == pytest.approx(100.0 * 40.0 + (60.0 + 40.0 + 2.0) * 5.0)


def test_cost_is_the_time_at_the_price(machine: Machine) -> None:
    found = spent(trace_of(), replace(machine, price_usd_per_hour=36.0), {0.5: 50.0, 0.9: None})
    assert found.cost_usd == pytest.approx(1.0)
    assert found.cost_to_loss_usd == {0.5: pytest.approx(0.5), 0.9: None}


def test_a_machine_that_does_not_say_has_neither(machine: Machine) -> None:
    silent = replace(machine, accelerators=(replace(machine.accelerators[0], idle_watts=None),))
    assert not has_watts(silent)
    assert spent(trace_of(), silent, {0.5: 1.0}) == NOT_KNOWN
    assert metrics(trace_of()).spent == NOT_KNOWN
