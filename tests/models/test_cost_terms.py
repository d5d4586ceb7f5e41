"""Every term of the cost model alone; together they are the cost model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsgd.models.calibration import Calibration
from hetsgd.models.cost import Tier, accelerator_step, lane_step
from hetsgd.models.cost_terms import Term, accelerator_terms, lane_terms
from hetsgd.models.machine_file import load_machine
from hetsgd.models.machine_names import machine_names
from hetsgd.models.policy import WRITES, Write
from hetsgd.models.step_fit import StepCosts, StepFit
from hetsgd.models.workload import Workload

NET = Workload(name="w", dataset="d", rows=10_000, test_rows=0, features=100, outputs=10, hidden=(300, 300))
SPARSE = replace(NET, features=20_000, density=0.002, sparse=True)
BUILT_IN = [name for name in machine_names() if name != "local"]


def total(terms: tuple[Term, ...]) -> float:
    return sum(term.seconds for term in terms)


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("batch", [1, 64, 4096])
@pytest.mark.parametrize("write", WRITES)
def test_the_terms_add_up_to_the_step(name: str, batch: int, write: Write) -> None:
    machine = load_machine(name)
    socket = replace(machine.sockets[0], core_l3_bandwidth_bytes_per_s=20e9)
    tiers: tuple[Tier, ...] = ("l2", "l3", "dram")
    for net in (NET, SPARSE, replace(NET, precision="float64", bias=False)):
        for tier in tiers:
            for lanes, line_s in ((1, 0.0), (60, 84e-9)):
                step = lane_step(net, socket, batch=batch, write=write, tier=tier, lanes=lanes, line_s=line_s)
                terms = lane_terms(net, socket, batch=batch, write=write, tier=tier, lanes=lanes, line_s=line_s)
                assert total(terms) == pytest.approx(step.alone_s, rel=1e-12)
        for card in (machine.accelerators[0], replace(machine.accelerators[0], device="cpu")):
            step = accelerator_step(net, card, batch=batch, write=write)
            terms = accelerator_terms(net, card, batch=batch, write=write)
            assert total(terms) == pytest.approx(step.alone_s, rel=1e-12)


def test_the_passes_move_the_bytes_of_the_step_and_say_what_bounds_it() -> None:
    socket = load_machine("aws-p3.16xlarge").sockets[0]
    terms = lane_terms(NET, socket, batch=1, tier="dram", line_s=84e-9)
    calls, *passes, lines = terms
    assert (calls.bound, lines.bound, lines.served) == ("calls", "written lines", "other cores")
    assert [term.name for term in passes[:3]] == [
        "layer 1 (100x300) forward", "layer 1 (100x300) backward", "layer 1 (100x300) update",
    ]  # fmt: skip
    assert {term.bound for term in passes} == {"DRAM bandwidth"}
    assert sum(term.bytes for term in passes) == 4 * NET.model_bytes
    large = lane_terms(NET, socket, batch=4096)[1:]
    assert {term.bound for term in large} == {"FLOPs"}
    assert sum(term.flops for term in large) == NET.step_flops(4096)


def test_an_accelerators_step_begins_with_its_launches_and_names_its_memory() -> None:
    card = replace(load_machine("aws-p3.16xlarge").accelerators[0], half_batch=0.0)
    launches, *passes = accelerator_terms(NET, card, batch=1)
    assert (launches.name, launches.bound) == ("27 kernels", "launches")
    assert launches.seconds == pytest.approx(270e-6)
    assert {(term.bound, term.served) for term in passes} == {("device memory bandwidth", "device memory")}
    cached = replace(card, l2_bandwidth_bytes_per_s=2e12)
    assert {term.served for term in accelerator_terms(NET, cached, batch=1)[1:]} == {"L2"}


def test_a_measured_step_is_split_as_its_fit_splits_it() -> None:
    costs = StepCosts(
        overhead_s=1e-5, layer_s=1e-5, l2_bytes_per_s=4e10, l3_bytes_per_s=2e10, dram_bytes_per_s=1e10,
        flops_per_s=5e10, half_batch=2.0, element_s=1e-9, row_s=1e-8,
    )  # fmt: skip
    fit = StepFit(
        precision="float32", lanes=1, fused=True, overlaps=False, l2_bytes=1 << 20, l3_bytes=1 << 25,
        batches=(1, 512), parameters=(1, 10**7), costs=costs,
    )  # fmt: skip
    socket = replace(load_machine("aws-p3.16xlarge").sockets[0], calibration=Calibration(fits=(fit,), slowdown=1.5))
    for write in WRITES:
        terms = lane_terms(NET, socket, batch=32, write=write)
        assert total(terms) == pytest.approx(lane_step(NET, socket, batch=32, write=write).alone_s, rel=1e-12)
        assert all("(measured)" in term.name for term in terms)
    arithmetic = next(term for term in terms if term.name.startswith("arithmetic"))
    assert arithmetic.seconds == pytest.approx(1.5 * NET.step_flops(32) / 5e10)
