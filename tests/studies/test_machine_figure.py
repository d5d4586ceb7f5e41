"""The drawing of a machine: every part with its figures, nothing over anything else."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from hetsgd.models.machine_file import load_machine
from hetsgd.models.machine_names import machine_names
from hetsgd.studies.figures.machine import machine_figure, machine_of
from hetsgd.studies.figures.style import picture
from hetsgd.studies.record import described

BUILT_IN = [name for name in machine_names() if name != "local"]


def resolved(name: str, **overrides: Any) -> dict[str, Any]:
    return described(load_machine(name, overrides))


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_part_is_named_and_no_text_lies_over_another_or_beyond_the_edge(name: str) -> None:
    machine = load_machine(name)
    figure = machine_figure(described(machine))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]  # matplotlib does not say what it returns
    renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]  # matplotlib does not say what it returns
    texts = figure.axes[0].texts
    words = "\n".join(text.get_text() for text in texts)
    names = [socket.name for socket in machine.sockets] + [card.name for card in machine.accelerators]
    for part in [*names, *(link.name for link in machine.links)]:
        assert part in words
    boxes = [(text.get_bbox_patch() or text).get_window_extent(renderer) for text in texts]
    for (one, first), (other, second) in combinations(zip(texts, boxes, strict=True), 2):
        assert not first.overlaps(second), f"{one.get_text()!r} lies over {other.get_text()!r}"
    page = figure.bbox
    for text, box in zip(texts, boxes, strict=True):
        inside = page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1
        assert inside, f"{text.get_text()!r} reaches beyond the edge"


def test_the_figures_are_those_of_the_machine_and_unused_links_are_told() -> None:
    figure = machine_figure(resolved("dgx-h200"))
    words = "\n".join(text.get_text() for text in figure.axes[0].texts)
    for part in ("56 cores x 2 threads", "DRAM 1.02 TB\n250 GB/s", "L3 105 MiB", "pcie0  55 GB/s, 10 µs", "L2 60 MiB"):
        assert part in words
    assert "dashed: no transfer takes it" in words
    lines = figure.axes[0].lines
    assert sum(line.get_linestyle() == "--" for line in lines) == 7
    assert picture(figure, "svg").startswith(b"<?xml")


def test_a_machine_comes_back_from_what_a_run_recorded() -> None:
    machine = load_machine("aws-p3.16xlarge", {"accelerators": 3})
    plain = replace(machine, sources=(), assumed=())
    assert machine_of(described(machine)) == plain
    older = described(machine)
    del (
        older["price_usd_per_hour"],
        older["sockets"][0]["idle_watts"],
        older["accelerators"][0]["l2_bandwidth_bytes_per_s"],
    )
    assert machine_of(older).price_usd_per_hour is None
