"""A trace in the Trace Event format, which Perfetto (ui.perfetto.dev) and Chrome show as a timeline."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hetsgd.models.series import batch_series
from hetsgd.models.trace import SPAN_KINDS, Trace
from hetsgd.studies.failure import BadInput, NotSaved

_MICROSECONDS: Final = 1e6
_BATCH_BINS: Final = 500
# One process per class of place, in this order from top to bottom.
_GROUPS: Final = {"cpu": "CPU lanes", "accelerator": "accelerators", "link": "links", "merge": "merges"}


def check_target(path: Path, *, force: bool = False) -> None:
    """Raise BadInput where the file exists (unless `force`), or its folder is missing or cannot be written."""
    if path.exists() and not path.is_file():
        raise BadInput(f"--perfetto: {path}: must be a file, and is a folder or device")
    if path.exists() and not force:
        raise BadInput(f"--perfetto: {path}: exists already; name another file, or replace it with --force")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise BadInput(f"--perfetto: {path.parent}: must be a folder that can be written")


def write_perfetto(trace: Trace, path: Path) -> int:
    """Write spans, losses and batch sizes of a trace as JSON; returns the number of events.

    Raises BadInput where the trace holds no spans, NotSaved where the file cannot be written: it is whole or not there.
    """
    if trace.level != "full":
        raise BadInput(f"trace: holds no spans at level {trace.level!r}; run again with --set run.trace=full")
    events = list(_events(trace))
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}), encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise NotSaved(f"{path}: cannot be written: {error.strerror or error}") from error
    return len(events)


def _events(trace: Trace) -> Iterator[dict[str, Any]]:
    process = {kind: number for number, kind in enumerate(_GROUPS, start=1)}
    for kind, number in process.items():
        yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": _GROUPS[kind]}}
        yield {"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}}
    thread = {name: number for number, name in enumerate(trace.places, start=1)}
    for name, place in trace.places.items():
        owner = {"pid": process[place.kind], "tid": thread[name]}
        yield {"ph": "M", "name": "thread_name", **owner, "args": {"name": name}}
    yield from _spans(trace, process, thread)
    yield from _curves(trace)


def _spans(trace: Trace, process: dict[str, int], thread: dict[str, int]) -> Iterator[dict[str, Any]]:
    for span in trace["spans"]:
        name = trace.texts[span["place_text"]]
        kind = SPAN_KINDS[span["kind"]]
        start_s = float(span["start_s"])
        yield {
            "ph": "X", "name": kind, "cat": kind, "pid": process[trace.places[name].kind], "tid": thread[name],
            "ts": start_s * _MICROSECONDS, "dur": (float(span["end_s"]) - start_s) * _MICROSECONDS,
            "args": {"id": int(span["id"]), "worker": trace.texts[span["worker_text"]], "bytes": int(span["bytes"])},
        }  # fmt: skip


def _curves(trace: Trace) -> Iterator[dict[str, Any]]:
    for row in trace["evaluations"]:
        if math.isfinite(row["train"]):
            yield _counter("training loss", float(row["at_s"]), float(row["train"]))
    if trace.elapsed_s > 0.0:
        series = batch_series(trace, bins=_BATCH_BINS)
        for worker, sizes in series.values.items():
            before = math.nan
            for at_s, size in zip(series.edges_s[1:], sizes, strict=True):
                if math.isfinite(size) and size != before:
                    yield _counter(f"batch of {worker}", float(at_s), float(size))
                    before = size


def _counter(name: str, at_s: float, value: float) -> dict[str, Any]:
    return {"ph": "C", "name": name, "pid": 0, "ts": at_s * _MICROSECONDS, "args": {"value": value}}
