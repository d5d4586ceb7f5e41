"""The places of a real run in its trace: lanes, accelerators, their links and the merge place."""

from __future__ import annotations

from collections.abc import Sequence

from hetsgd.models.machine import Machine
from hetsgd.models.policy import Fleet, Seat
from hetsgd.models.trace import Place, Trace
from hetsgd.real.children import ChildProcess
from hetsgd.real.logs import LogReader
from hetsgd.real.versions import Log


def declare(trace: Trace, machine: Machine, fleet: Fleet) -> None:
    """Declare every place that spans can be recorded on."""
    for member in fleet.members:
        if member.kind == "cpu":
            for lane in range(member.lanes):
                trace.place(Place(name=str(Seat(member.name, lane)), worker=member.name, kind="cpu", cpus=1))
            continue
        stand_in = machine.accelerator(member.name).stand_in
        trace.place(Place(name=member.name, worker=member.name, kind="accelerator", cpus=int(stand_in)))
        for name in link_places(machine, member.name):
            trace.place(Place(name=name, worker=None, kind="link"))
    trace.place(Place(name="merge", worker=None, kind="merge"))


def link_places(machine: Machine, accelerator: str) -> tuple[str, str]:
    """The places of copies to and from an accelerator: the two directions of its link.

    Accelerators that share a link have a slot of their own on it, since their copies may overlap.
    """
    link = next((link for link in machine.links if accelerator in link.ends), None)
    if link is None:
        return f"{accelerator}:down", f"{accelerator}:up"
    sharing = [acc.name for acc in machine.accelerators if acc.name in link.ends]
    number = sharing.index(accelerator)
    slot = f"[{number}]" if number else ""
    return f"{link.name}:down{slot}", f"{link.name}:up{slot}"


def logs_of(machine: Machine, children: Sequence[ChildProcess], readers: Sequence[LogReader]) -> list[Log]:
    """The logs of all children with their places."""
    logs = []
    for child, reader in zip(children, readers, strict=True):
        worker, lane = child.setup.worker, child.lane
        place = str(Seat(worker, lane))
        down, up = (place, place) if child.kind == "cpu" else link_places(machine, worker)
        logs.append(
            Log(
                worker=worker, kind=child.kind, lane=lane, place=place, down=down, up=up, records=reader.records()
            )
        )  # fmt: skip
    return logs
