"""Links and noise from measurements: copies as runs make them, and the spread of repeated steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.calibration_scope import distinct_accelerators, make_of
from hetsgd.models.machine import Link, Machine, Noise
from hetsgd.models.repeats import central, median_of
from hetsgd.models.sample_store import SampleStore


def measured_link(store: SampleStore, base: Machine, link: Link) -> Link:
    """The link of an accelerator with the rates of its copies, as runs make them: pinned where the device can.

    The pageable rate is that of plain copies where the device tells the two apart.
    """
    accelerator = next((acc for acc in base.accelerators if acc.name in link.ends), None)
    if accelerator is None:
        return link
    measured = {make_of(acc): acc.name for acc in reversed(base.accelerators)}
    name = measured[make_of(accelerator)]
    run = affine(_copies(store, f"copy of a run {name}"))
    if run is None:
        return link
    latency_s, rate = run
    pageable = affine(_copies(store, f"pageable copy {name}"))
    return replace(
        link,
        latency_s=latency_s,
        pinned_bytes_per_s=rate,
        pageable_bytes_per_s=rate if pageable is None else pageable[1],
    )


def _copies(store: SampleStore, prefix: str) -> list[tuple[float, float]]:
    """(bytes, typical seconds) of the copies whose key begins so and ends with their size."""
    return [
        (float(key.rsplit(" ", 2)[1]), central([values[0] for values in store.all(key)]).value)
        for key in store.measured() if key.startswith(prefix)
    ]  # fmt: skip


def affine(points: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Latency and rate of copies: least squares of log(latency + bytes / rate) on log seconds; None without points.

    >>> latency_s, rate = affine([(1e3, 1.1e-5), (1e6, 1.01e-3), (1e8, 0.10001)])
    >>> round(latency_s * 1e6), round(rate / 1e9, 2)
    (10, 1.0)
    """
    if not points:
        return None
    from scipy.optimize import least_squares

    sizes = np.array([size for size, _ in points])
    times = np.array([seconds for _, seconds in points])
    slope = float(np.max(sizes) / times[int(np.argmax(sizes))])
    start = np.array([math.log(max(float(np.min(times)) / 2.0, 1e-9)), -math.log(slope)])

    def residuals(point: NDArray[Any]) -> NDArray[Any]:
        found: NDArray[Any] = np.log(np.exp(point[0]) + sizes * np.exp(point[1])) - np.log(times)
        return found

    found = least_squares(residuals, start, loss="soft_l1", f_scale=0.1)
    return math.exp(float(found.x[0])), math.exp(-float(found.x[1]))


def measured_noise(store: SampleStore, base: Machine) -> Noise:
    """The spread of repeated steps on lanes, and on accelerators (the mean over makes)."""
    accelerators = [median_of(store, f"noise {acc.name}") for acc in distinct_accelerators(base)]
    known = [sigma for sigma in accelerators if sigma is not None]
    return Noise(
        cpu_sigma=median_of(store, f"noise {base.sockets[0].name}") or 0.0,
        accelerator_sigma=float(np.mean(known)) if known else 0.0,
    )
