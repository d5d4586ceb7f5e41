"""How much of a worker's copying its computing hides, from the spans of a trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.trace import SPAN_CODE, SpanKind, Trace

Spans = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Seconds of copies of one kind, and how many of them the worker was computing meanwhile."""

    copied_s: float
    hidden_s: float

    @property
    def share(self) -> float:
        """The hidden share; 0 where nothing was copied."""
        return self.hidden_s / self.copied_s if self.copied_s else 0.0


def overlap(trace: Trace, worker: str, kind: SpanKind) -> Overlap:
    """Copies of this kind (load, pull or push) of the worker against its computing.

    The first copy has nothing to hide behind and is left out. Needs a trace of level full.
    """
    spans = trace["spans"]
    own = spans[spans["worker_text"] == trace.code(worker)]
    copies = np.sort(own[own["kind"] == SPAN_CODE[kind]], order="start_s")[1:]
    busy = np.sort(own[own["kind"] == SPAN_CODE["compute"]], order="start_s")
    copied_s = float((copies["end_s"] - copies["start_s"]).sum())
    return Overlap(copied_s=copied_s, hidden_s=_shared_s(copies, busy))


def _shared_s(copies: Spans, busy: Spans) -> float:
    """Seconds that lie in a span of both; the spans of `busy` do not overlap each other."""
    if not len(copies) or not len(busy):
        return 0.0
    until = np.concatenate([[0.0], np.cumsum(busy["end_s"] - busy["start_s"])])

    def before(at_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Busy seconds before a time."""
        place = np.searchsorted(busy["start_s"], at_s, side="right")
        last = np.maximum(place - 1, 0)
        running = np.clip(at_s - busy["start_s"][last], 0.0, busy["end_s"][last] - busy["start_s"][last])
        return until[last] + np.where(place > 0, running, 0.0)

    return float((before(copies["end_s"]) - before(copies["start_s"])).sum())
