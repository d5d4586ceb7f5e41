"""Energy and cost of a run, for machines that give their watts and their price.

The power of a processor is taken as linear in how busy it is, from idle to busy (Fan, Weber and Barroso 2007: within a
few percent for servers): idle watts as long as the run lasts, and the rest for the time that its cores or the device
compute. Only processors count: sockets and accelerators that the machine of the run has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from hetsgd.models.cost import core_share, lane_socket, lanes_per_socket
from hetsgd.models.machine import Accelerator, Machine, Socket
from hetsgd.models.trace import SPAN_KINDS, Place, Trace

_WORK = frozenset({"compute", "evaluate", "merge"})
_CORE_WORK = _WORK | {"pull"}
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a run spent until its end, and until each level of loss (None: not reached); None: not known."""

    energy_j: float | None = None
    energy_to_loss_j: Mapping[float, float | None] | None = None
    cost_usd: float | None = None
    cost_to_loss_usd: Mapping[float, float | None] | None = None


NOT_KNOWN: Final = Spent()


def spent(trace: Trace, machine: Machine, times: Mapping[float, float | None]) -> Spent:
    """Energy and cost of a run on this machine; `times`: seconds to each level of loss.

    Energy needs the watts of every socket and accelerator, cost the price of an hour; what the machine does not give is
    None. Energy to a level counts the spans until then, or the mean power of the run where no spans were kept.
    """
    energy = _energy_until(trace, machine) if has_watts(machine) else None
    price = machine.price_usd_per_hour

    def cost(until_s: float) -> float:
        return (price or 0.0) * until_s / _HOUR_S

    return Spent(
        energy_j=None if energy is None else energy(trace.elapsed_s),
        energy_to_loss_j=None if energy is None else _at_levels(energy, times),
        cost_usd=None if price is None else cost(trace.elapsed_s),
        cost_to_loss_usd=None if price is None else _at_levels(cost, times),
    )


def has_watts(machine: Machine) -> bool:
    """Whether every socket and accelerator says what it draws; a stand-in is a core of its socket."""
    cards = [card for card in machine.accelerators if not card.stand_in]
    entries: list[Socket | Accelerator] = [*machine.sockets, *cards]
    return all(entry.idle_watts is not None and entry.busy_watts is not None for entry in entries)


def _at_levels(value: Callable[[float], float], times: Mapping[float, float | None]) -> dict[float, float | None]:
    return {level: None if until_s is None else value(until_s) for level, until_s in times.items()}


def _energy_until(trace: Trace, machine: Machine) -> Callable[[float], float]:
    """Joules from the start of a run until a time of it."""
    entries: list[Socket | Accelerator] = [*machine.sockets, *machine.accelerators]
    idle_w = sum(entry.idle_watts or 0.0 for entry in entries)
    watts = {place.name: _extra_watts(machine, place) for place in trace.places.values()}
    watts = {name: extra for name, extra in watts.items() if extra > 0.0}
    total_j = sum(
        watts[place] * seconds
        for (place, kind), seconds in trace.totals.busy_s.items()
        if place in watts and kind in _kinds(trace.places[place])
    )
    spans = trace["spans"]
    if not len(spans):
        mean_w = total_j / trace.elapsed_s if trace.elapsed_s else 0.0
        return lambda until_s: (idle_w + mean_w) * until_s
    of_text = np.zeros(len(trace.texts))
    on_core = np.zeros(len(trace.texts), dtype=bool)
    for name, extra in watts.items():
        code = trace.code(name)
        of_text[code], on_core[code] = extra, trace.places[name].kind != "accelerator"
    counted = np.array([kind in _WORK for kind in SPAN_KINDS])
    counted_on_core = np.array([kind in _CORE_WORK for kind in SPAN_KINDS])
    kinds, places = spans["kind"], spans["place_text"]
    power = of_text[places] * np.where(on_core[places], counted_on_core[kinds], counted[kinds])

    def until(until_s: float) -> float:
        if until_s >= trace.elapsed_s:
            return idle_w * until_s + total_j
        seconds = np.clip(np.minimum(spans["end_s"], until_s) - spans["start_s"], 0.0, None)
        return idle_w * until_s + float(np.sum(power * seconds))

    return until


def _kinds(place: Place) -> frozenset[str]:
    """Span kinds during which the processor of a place works: a core also copies, a device has engines for that."""
    return _WORK if place.kind == "accelerator" else _CORE_WORK


def _extra_watts(machine: Machine, place: Place) -> float:
    """What a place draws more when it works: its part of its socket's cores, or its device."""
    if place.kind == "link":
        return 0.0
    if place.kind == "accelerator":
        card = machine.accelerator(place.name)
        if not card.stand_in:
            return (card.busy_watts or 0.0) - (card.idle_watts or 0.0)
    index = _lane_of(place)
    home = 0 if index is None else lane_socket(machine, index)
    socket = machine.sockets[home]
    share = 1.0 if index is None else core_share(socket, lanes_per_socket(machine)[home])
    return share / socket.cores * ((socket.busy_watts or 0.0) - (socket.idle_watts or 0.0))


def _lane_of(place: Place) -> int | None:
    """The lane of a place of the CPU team; None for a merge place and a stand-in, which are cores of the first socket.

    >>> _lane_of(Place(name="cpu[3]", worker="cpu", kind="cpu"))
    3
    """
    if place.kind != "cpu":
        return None
    return int(place.name.rpartition("[")[2].rstrip("]"))
