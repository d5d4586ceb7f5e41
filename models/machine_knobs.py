"""Which figures of a machine can have no effect there, so that setting them is refused rather than ignored."""

from __future__ import annotations

from hetsgd.models.machine import Accelerator, Link, Machine, Socket


def without_effect(machine: Machine, owner: str, key: str) -> str | None:
    """Why a figure changes no result on this machine, in words with the fix; None where it may change one.

    `owner`: a socket, accelerator or link, or empty for a setting of the machine.
    """
    if key in ("idle_watts", "busy_watts"):
        return _watts(machine, owner, key)
    for socket in machine.sockets:
        if socket.name == owner:
            return _of_socket(socket, key)
    for accelerator in machine.accelerators:
        if accelerator.name == owner:
            return _of_accelerator(accelerator, key)
    for link in machine.links:
        if link.name == owner:
            return _of_link(machine, link, key)
    if key == "weights_on" and len(machine.sockets) == 1:
        return "there is one socket, so the model lies in its memory either way"
    return None


def _watts(machine: Machine, owner: str, key: str) -> str | None:
    entries: tuple[Socket | Accelerator, ...] = (*machine.sockets, *machine.accelerators)
    entry = next((entry for entry in entries if entry.name == owner), None)
    if isinstance(entry, Accelerator) and entry.stand_in:
        return "a stand-in is a core of its socket, whose watts count"
    other = "busy_watts" if key == "idle_watts" else "idle_watts"
    if entry is not None and getattr(entry, other) is None:
        return f"energy needs idle_watts and busy_watts; give {other} as well"
    return None


def _of_socket(socket: Socket, key: str) -> str | None:
    if key == "l3_bytes" and not socket.core_l3_bandwidth_bytes_per_s:
        return "without core_l3_bandwidth_bytes_per_s the L3 counts as DRAM; give that as well"
    return None


def _of_accelerator(accelerator: Accelerator, key: str) -> str | None:
    if accelerator.stand_in:
        if key == "l2_bandwidth_bytes_per_s":
            return "what fits the L2 of a stand-in costs its arithmetic only"
        return None
    if key == "l2_bytes" and not accelerator.l2_bandwidth_bytes_per_s:
        return "without l2_bandwidth_bytes_per_s everything comes from memory; give that as well"
    return None


def _of_link(machine: Machine, link: Link, key: str) -> str | None:
    home = machine.sockets[0].name
    carrying = {found.name for card in machine.accelerators for found, _ in machine.route(home, card.name)}
    if link.name not in carrying:
        between = {
            found.name
            for one in machine.sockets for other in machine.sockets if one is not other
            for found, _ in machine.route(one.name, other.name)
        }  # fmt: skip
        if link.name not in between or key != "latency_s":
            return f"no transfer takes this link: the fastest ways from {home} to the accelerators do without it"
    if key == "pinned_bytes_per_s" and not machine.pinned:
        return "transfers use pageable memory here; set machine.pinned=true as well"
    if key == "pageable_bytes_per_s" and machine.pinned:
        return "transfers use pinned memory here; set machine.pinned=false as well"
    return None
