"""A machine as a graph: memories, sockets, links and accelerators with their rates and capacities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hetsgd.models.machine import Accelerator, Link, Machine, Noise, Socket
from hetsgd.studies.figures.style import CLASS_COLOURS, WIDTH, themed
from hetsgd.studies.interval import cache_size, seconds

_MEMORY: Final = "#8c8c8c"
_DRAM_X, _SOCKET_X, _DEVICE_X = 0.08, 0.33, 0.86
_ROW: Final = 0.84
_LABEL_AT: Final = 0.62
"""Labels of links lie nearer to the accelerators, where the lines are apart."""


def machine_figure(resolved: Mapping[str, Any]) -> Figure:
    """The graph of a machine from its resolved inputs: solid lines are taken by transfers, dashed ones are not."""
    machine = machine_of(resolved)
    with themed():
        heights = _heights(machine)
        rows = max(len(machine.accelerators), 1.6 * len(machine.sockets))
        figure = Figure(figsize=(WIDTH, 0.35 + _ROW * rows))
        axis = figure.subplots()
        axis.set_axis_off()
        axis.set_xlim(0.0, 1.0)
        axis.set_ylim(-0.3 * _ROW, _ROW * (rows + 0.02))
        used = _carrying(machine)
        for link in machine.links:
            _draw_link(axis, link, machine, heights, link.name in used)
        for socket in machine.sockets:
            _draw_socket(axis, socket, heights[socket.name])
        for card in machine.accelerators:
            _box(axis, _DEVICE_X, heights[card.name], _device_words(card), CLASS_COLOURS["accelerator"])
        _note(axis, machine)
    return figure


def machine_of(resolved: Mapping[str, Any]) -> Machine:
    """The machine of a run's resolved inputs, without its measured step times."""
    plain = {key: value for key, value in resolved.items() if key not in ("calibrated", "assumed", "sources")}
    sockets = tuple(Socket(**{**entry, "calibration": None}) for entry in resolved["sockets"])
    cards = tuple(Accelerator(**{**entry, "calibration": None}) for entry in resolved["accelerators"])
    links = tuple(Link(**{**entry, "ends": tuple(entry["ends"])}) for entry in resolved["links"])
    noise = Noise(**resolved["noise"])
    return Machine(**{**plain, "sockets": sockets, "accelerators": cards, "links": links, "noise": noise})


def _carrying(machine: Machine) -> set[str]:
    """Links that transfers or written lines take: from the first socket to the accelerators, and between sockets."""
    home, used = machine.sockets[0].name, set[str]()
    ways = [(home, card.name) for card in machine.accelerators]
    ways += list(pairwise(socket.name for socket in machine.sockets))
    for one, other in ways:
        used |= {link.name for link, _ in machine.route(one, other)}
    return used


def _heights(machine: Machine) -> dict[str, float]:
    """The height of each socket and accelerator: accelerators in order, each socket at the middle of its own."""
    graph = machine.graph()
    count = len(machine.accelerators)
    rows = max(count, 1.6 * len(machine.sockets))
    heights: dict[str, float] = {}
    step = rows / max(count, 1)
    for number, card in enumerate(machine.accelerators):
        heights[card.name] = _ROW * (rows - (number + 0.5) * step)
    for number, socket in enumerate(machine.sockets):
        own = [heights[card.name] for card in machine.accelerators if graph.has_edge(socket.name, card.name)]
        even = _ROW * (rows - (number + 0.5) * rows / len(machine.sockets))
        heights[socket.name] = sum(own) / len(own) if own and len(machine.sockets) == 1 else even
    if count == 1:
        near = [socket for socket in machine.sockets if graph.has_edge(socket.name, machine.accelerators[0].name)]
        heights[machine.accelerators[0].name] = heights[(near or machine.sockets)[0].name]
    return heights


def _draw_socket(axis: Axes, socket: Socket, height: float) -> None:
    axis.plot([_DRAM_X, _SOCKET_X], [height, height], color="0.35", linewidth=2.2, zorder=1)
    _box(axis, _SOCKET_X, height, _socket_words(socket), CLASS_COLOURS["cpu"])
    dram = (f"DRAM {_size(socket.dram_bytes)}", f"{_rate(socket.dram_bandwidth_bytes_per_s)}")
    _box(axis, _DRAM_X, height, dram, _MEMORY)


def _draw_link(axis: Axes, link: Link, machine: Machine, heights: Mapping[str, float], used: bool) -> None:
    sockets = {socket.name for socket in machine.sockets}
    line: dict[str, Any] = {"color": "0.35" if used else "0.7", "linestyle": "-" if used else "--", "zorder": 1}
    words = f"{link.name}  {_rate(link.bytes_per_s(machine.pinned))}, {seconds(link.latency_s)}"
    one, other = link.ends
    if {one, other} <= sockets:
        heights_of = sorted((heights[one], heights[other]))
        axis.plot([_SOCKET_X, _SOCKET_X], heights_of, linewidth=1.8, **line)
        _label(axis, _SOCKET_X, sum(heights_of) / 2, words, used)
    elif {one, other} & sockets:
        socket, card = (one, other) if one in sockets else (other, one)
        ends_x, ends_y = (_SOCKET_X, _DEVICE_X), (heights[socket], heights[card])
        axis.plot(ends_x, ends_y, linewidth=1.6, **line)
        x, y = (low + _LABEL_AT * (high - low) for low, high in (ends_x, ends_y))
        _label(axis, x, y, words, used)
    else:
        middle = (heights[one] + heights[other]) / 2
        axis.plot([_DEVICE_X, _DEVICE_X], [heights[one], heights[other]], linewidth=1.4, **line)
        _label(axis, _DEVICE_X, middle, words, used)


def _label(axis: Axes, x: float, y: float, words: str, used: bool) -> None:
    axis.text(
        x, y, words, ha="center", va="center", fontsize=7.5, color="0.15" if used else "0.5", zorder=2,
        bbox={"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none"},
    )  # fmt: skip


def _box(axis: Axes, x: float, y: float, lines: Sequence[str], colour: str) -> None:
    axis.text(
        x, y, "\n".join(lines), ha="center", va="center", fontsize=8, linespacing=1.25, zorder=3,
        bbox={"boxstyle": "round,pad=0.4", "facecolor": "white", "edgecolor": colour, "linewidth": 1.8},
    )  # fmt: skip


def _note(axis: Axes, machine: Machine) -> None:
    memory = "pinned" if machine.pinned else "pageable"
    words = [f"Links: rate of one direction from {memory} memory, latency"]
    words.append("TFLOP/s: 32 / 64 bit, peak")
    if set(_names(machine.links)) - _carrying(machine):
        words.append("dashed: no transfer takes it")
    axis.text(0.0, -0.28 * _ROW, ".  ".join(words) + ".", fontsize=7.5, color="0.4", va="bottom")


def _names(links: Iterable[Link]) -> list[str]:
    return [link.name for link in links]


def _socket_words(socket: Socket) -> tuple[str, ...]:
    threads = "" if socket.threads_per_core == 1 else f" x {socket.threads_per_core} threads"
    single, double = socket.core_flops_float32 / 1e9, socket.core_flops_float64 / 1e9
    caches = [f"L2 {cache_size(socket.l2_bytes)} a core"] if socket.l2_bytes else []
    caches += [f"L3 {cache_size(socket.l3_bytes)}"] if socket.l3_bytes else []
    return (
        f"{socket.name}: {socket.cores} core{'s' if socket.cores > 1 else ''}{threads}",
        f"{single:.3g} / {double:.3g} GFLOP/s a core",
        ", ".join(caches) or "no cache known",
        f"one core draws {_rate(socket.core_bandwidth_bytes_per_s)}",
    )


def _device_words(card: Accelerator) -> tuple[str, ...]:
    kind = "a core of the host" if card.stand_in else card.device
    memory = "" if card.stand_in else f", {_size(card.memory_bytes)}"
    return (
        f"{card.name} ({kind})",
        f"{card.flops_float32 / 1e12:.3g} / {card.flops_float64 / 1e12:.3g} TFLOP/s, L2 {cache_size(card.l2_bytes)}",
        f"memory {_rate(card.memory_bandwidth_bytes_per_s)}{memory}",
    )


def _size(size_bytes: float) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:.3g} {unit}"
    return f"{size_bytes / 1e3:.3g} kB"


def _rate(bytes_per_s: float) -> str:
    return f"{_size(bytes_per_s)}/s"
