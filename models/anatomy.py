"""Where an assignment's time goes on a machine when nothing else runs: order, copies, steps, result and merge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from hetsgd.models.cost import (
    core_share,
    lane_socket,
    lane_step,
    lanes_per_socket,
    merge_bytes,
    weights_tier,
    written_line_s,
)
from hetsgd.models.cost_terms import Term, accelerator_terms, lane_terms
from hetsgd.models.machine import Accelerator, Direction, Machine
from hetsgd.models.plan import Plan
from hetsgd.models.policy import Merge, Work

Part = Literal["order", "load", "pull", "compute", "push", "report", "merge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One part of an assignment with its terms; each is done `times` times."""

    part: Part
    terms: tuple[Term, ...]
    times: int = 1

    @property
    def seconds(self) -> float:
        """Seconds of the whole part."""
        return self.times * sum(term.seconds for term in self.terms)


def lane_anatomy(plan: Plan, work: Work, lane: int, merge: Merge | None = None) -> tuple[Piece, ...]:
    """The parts of an assignment of the CPU team, as one lane sees it.

    `merge`: what becomes of the result, if it is merged. The lanes share their DRAM: what they take longer for that
    when all compute at once is a term of its own.
    """
    machine, workload = plan.machine, plan.workload
    index = lane_socket(machine, lane)
    socket, lanes = machine.sockets[index], lanes_per_socket(machine)[index]
    members = plan.fleet().members
    devices = [machine.accelerator(member.name) for member in members if member.kind == "accelerator"]
    beside = sum(device.stand_in for device in devices)
    tier, line_s = weights_tier(machine, workload), written_line_s(machine, index)
    terms = lane_terms(
        workload, socket, batch=work.batch, write=work.write, tier=tier, lanes=lanes, line_s=line_s, beside=beside
    )
    load = lane_step(
        workload, socket, batch=work.batch, write=work.write, tier=tier, lanes=lanes, line_s=line_s, beside=beside
    )
    waiting_s = 0.0
    if tier == "dram":
        waiting_s = max(load.dram_bytes / _fair_rate(machine, index) - load.alone_s, 0.0)
    if waiting_s > 0.0:
        count = machine.cpu_lanes if machine.weights_on == "one_socket" else lanes
        waiting = Term(
            name=f"DRAM shared by {count} lanes", seconds=waiting_s, bound="DRAM bandwidth", served="DRAM",
            bytes=load.dram_bytes,
        )  # fmt: skip
        terms = (*terms, waiting)
    pieces = [_order(machine)]
    if work.read == "global" and work.write in ("replica", "keep"):
        pieces.append(Piece(part="pull", terms=(_host_copy(machine, 2.0 * workload.model_bytes, "model copied"),)))
    pieces.append(Piece(part="compute", terms=terms, times=work.steps))
    return (*pieces, _report(machine), *_merge(machine, workload.model_bytes, merge, work))


def _fair_rate(machine: Machine, index: int) -> float:
    """Bytes/s of DRAM that a lane on this socket has when all lanes of the team draw at once."""
    used = lanes_per_socket(machine)
    shares = [core_share(socket, lanes) for socket, lanes in zip(machine.sockets, used, strict=True)]
    home = machine.sockets[index if machine.weights_on == "interleaved" else 0]
    drawing = [index] if machine.weights_on == "interleaved" else range(len(used))
    return home.dram_bandwidth_bytes_per_s * shares[index] / sum(used[other] * shares[other] for other in drawing)


def accelerator_anatomy(plan: Plan, work: Work, name: str, merge: Merge | None = None) -> tuple[Piece, ...]:
    """The parts of an assignment of an accelerator; `merge` as for a lane."""
    machine, workload = plan.machine, plan.workload
    device = machine.accelerator(name)
    members = plan.fleet().members
    lanes = sum(member.lanes for member in members if member.kind == "cpu")
    cores = sum(machine.accelerator(member.name).stand_in for member in members if member.kind == "accelerator")
    beside = lanes + cores - 1 if device.stand_in else 0
    rows = work.batch * work.steps
    pieces = [_order(machine)]
    terms = _transfer(machine, device, "down", rows * workload.row_bytes, f"{rows:,} rows")
    pieces.append(Piece(part="load", terms=tuple(terms)))
    if work.read == "global":
        pieces.append(
            Piece(part="pull", terms=tuple(_transfer(machine, device, "down", workload.model_bytes, "model")))
        )
    steps = accelerator_terms(workload, device, batch=work.batch, write=work.write, beside=beside)
    pieces.append(Piece(part="compute", terms=steps, times=work.steps))
    if work.write != "keep":
        what = "gradient" if work.write == "gradient" else "model"
        pieces.append(Piece(part="push", terms=tuple(_transfer(machine, device, "up", workload.model_bytes, what))))
    return (*pieces, _report(machine), *_merge(machine, workload.model_bytes, merge, work))


def _order(machine: Machine) -> Piece:
    decided = Term(name="decision", seconds=machine.decision_s, bound="policy")
    return Piece(part="order", terms=(decided, Term(name="message", seconds=machine.message_s, bound="latency")))


def _report(machine: Machine) -> Piece:
    return Piece(part="report", terms=(Term(name="message", seconds=machine.message_s, bound="latency"),))


def _host_copy(machine: Machine, size_bytes: float, name: str) -> Term:
    """Copying within the memory of the first socket, by one core."""
    socket = machine.sockets[0]
    rate = min(socket.core_bandwidth_bytes_per_s, socket.dram_bandwidth_bytes_per_s)
    return Term(name=name, seconds=size_bytes / rate, bound="core bandwidth", served="DRAM", bytes=size_bytes)


def _transfer(
    machine: Machine, device: Accelerator, direction: Direction, size_bytes: int, what: str
) -> Iterator[Term]:
    """Latency and bytes of a transfer between host memory and an accelerator; its slowest link bounds it."""
    home = machine.sockets[0]
    ends = (home.name, device.name) if direction == "down" else (device.name, home.name)
    links = [link for link, _ in machine.route(*ends)]
    slowest = min(links, key=lambda link: link.bytes_per_s(machine.pinned))
    draws = 2 if device.stand_in else 1
    rate, by = slowest.bytes_per_s(machine.pinned), "link rate"
    if home.dram_bandwidth_bytes_per_s / draws < rate:
        rate, by = home.dram_bandwidth_bytes_per_s / draws, "DRAM bandwidth"
    stretch = slowest.bytes_per_s(machine.pinned) / rate
    served = " + ".join(link.name for link in links)
    memory = "pinned" if machine.pinned else "pageable"
    latency_s = sum(link.latency_s for link in links) * stretch
    yield Term(name="latency", seconds=latency_s, bound="latency", served=served)
    yield Term(
        name=f"{what}, {memory}", seconds=size_bytes / rate, bound=by, served=served, bytes=float(size_bytes)
    )  # fmt: skip


def _merge(machine: Machine, model_bytes: int, merge: Merge | None, work: Work) -> Iterator[Piece]:
    """The merge of a result in host memory; what a kept replica's way up and down takes is not in it."""
    if merge is None or merge.rule == "discard" or work.write == "in_place":
        return
    size = float(merge_bytes(merge, model_bytes, host_write_backs=0))
    inputs = "1 result" if len(merge.inputs) == 1 else f"{len(merge.inputs)} results"
    yield Piece(part="merge", terms=(_host_copy(machine, size, f"{merge.rule} of {inputs}"),))
