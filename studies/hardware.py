"""The lanes and devices that a real run uses, from `--cpu-lanes` and `--accelerators`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hetsgd.models.machine_names import LOCAL
from hetsgd.studies.failure import BadInput, checking
from hetsgd.studies.resolve import Ready

if TYPE_CHECKING:
    from hetsgd.models.machine import Machine


def with_hardware(ready: Ready, cpu_lanes: int | None, accelerators: str | None) -> Ready:
    """The run with that many CPU lanes and these devices; None leaves the machine's own.

    Raises BadInput where this machine has no such device or not so many processors.
    """
    machine = ready.plan.machine
    if accelerators is not None:
        machine = _with_devices(machine, _devices(accelerators))
    if cpu_lanes is not None:
        with checking("--cpu-lanes"):
            machine = replace(machine, cpu_lanes=cpu_lanes)
    return replace(ready, plan=replace(ready.plan, machine=machine))


def _devices(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise BadInput(f"--accelerators: must name devices such as cuda:0, or cpu, or none, got {text!r}")
    if names == ("none",):
        return ()
    real = [name for name in names if name != "cpu"]
    if real and len(real) < len(names):
        raise BadInput(f"--accelerators: cpu is a stand-in and cannot be mixed with devices, got {text!r}")
    if len(set(real)) < len(real):
        raise BadInput(f"--accelerators: a device may be named once, got {text!r}")
    return names


def _with_devices(machine: Machine, devices: tuple[str, ...]) -> Machine:
    """The machine with exactly these devices as accelerators."""
    if machine.name == LOCAL:
        return _local(machine, devices)
    if len(devices) > len(machine.accelerators):
        raise BadInput(
            f"--accelerators: machine {machine.name} describes {len(machine.accelerators)} accelerators, "
            f"got {len(devices)} devices"
        )
    chosen = tuple(
        replace(described, device=device) for described, device in zip(machine.accelerators, devices, strict=False)
    )
    gone = {described.name for described in machine.accelerators[len(devices) :]}
    return replace(machine, accelerators=chosen, links=tuple(x for x in machine.links if not gone & set(x.ends)))


def _local(machine: Machine, devices: tuple[str, ...]) -> Machine:
    from hetsgd.models.machine_local import local_machine

    if all(device == "cpu" for device in devices):
        fresh = local_machine((), used=len(devices))
    else:
        from hetsgd.real.devices import find_accelerators

        here = {found.device: found for found in find_accelerators()}
        missing = [device for device in devices if device not in here]
        if missing:
            names = ", ".join(here) or "none"
            raise BadInput(
                f"--accelerators: no device {missing[0]!r} on this machine (found: {names}); "
                "cpu is a stand-in that always works"
            )
        fresh = local_machine(tuple(here[device] for device in devices))
    # Only what depends on the devices changes: settings of the command line stay.
    return replace(
        machine,
        description=fresh.description,
        accelerators=fresh.accelerators,
        links=fresh.links,
        cpu_lanes=fresh.cpu_lanes,
        sources=fresh.sources,
        assumed=fresh.assumed,
    )
