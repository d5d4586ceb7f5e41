"""Traces on disk: one Parquet file a table, the texts their codes stand for, and the totals as JSON."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsgd.models.edge import nearest
from hetsgd.models.trace import SCHEMA, Array, Place, Totals, Trace
from hetsgd.studies.trace_columns import CODES, COLUMNS, TABLES

if TYPE_CHECKING:
    import pandas as pd

TRACE_SCHEMA = "hetsgd.trace/1"


class TraceStoreError(ValueError):
    """A folder does not hold a trace that can be read; the message names the file."""


def write_trace(trace: Trace, folder: Path) -> None:
    """Write a trace into an existing empty folder: `<table>.parquet`, `texts.parquet` and `totals.json`.

    Each column carries its meaning and unit as metadata of the Parquet schema (`description`, `unit`).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in SCHEMA:
        rows = trace[name]
        arrays = [pa.array(np.ascontiguousarray(rows[column])) for column in rows.dtype.names or ()]
        fields = [
            pa.field(
                column, array.type, metadata=dict(zip(("unit", "description"), COLUMNS[name][column], strict=True))
            )
            for column, array in zip(rows.dtype.names or (), arrays, strict=True)
        ]
        table = pa.table(arrays, schema=pa.schema(fields, metadata={"description": TABLES[name]}))
        pq.write_table(table, folder / f"{name}.parquet", compression="zstd")
    texts = pa.table({"text": pa.array(trace.texts, type=pa.string())})
    pq.write_table(texts, folder / "texts.parquet", compression="zstd")
    (folder / "totals.json").write_text(json.dumps(_head(trace), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def read_trace(folder: Path) -> Trace:
    """The trace that `write_trace` wrote: the same tables, texts and totals.

    Raises TraceStoreError where a file is missing or is not what this version writes.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        head = json.loads((folder / "totals.json").read_text(encoding="utf-8"))
        if head["schema"] != TRACE_SCHEMA:
            raise TraceStoreError(f"{folder}/totals.json: schema must be {TRACE_SCHEMA}, got {head['schema']!r}")
        trace = _trace(head)
        for text in pq.read_table(folder / "texts.parquet")["text"].to_pylist():
            trace.code(text)
        for name, columns in SCHEMA.items():
            trace.tables[name].extend(_rows(pq.read_table(folder / f"{name}.parquet"), columns))
    except TraceStoreError:
        raise
    except OSError as error:
        raise TraceStoreError(f"{folder}: holds no whole trace: {error}") from error
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError, pa.ArrowException) as error:
        raise TraceStoreError(f"{folder}: must be a trace of {TRACE_SCHEMA}: {error!r}") from error
    return trace


def frame(trace: Trace, table: str) -> pd.DataFrame:
    """One table as a pandas frame, its codes as words: `worker_text` becomes `worker`, `fate` a word.

    Raises ValueError for a table that a trace does not have, with those that it has.
    """
    import pandas as pd

    if table not in SCHEMA:
        raise ValueError(f"table: there is no {table!r}, {nearest(str(table), SCHEMA)}")

    rows = trace[table]
    columns: dict[str, Any] = {}
    for name, kind in SCHEMA[table]:
        if name.endswith("_text"):
            columns[name.removesuffix("_text")] = pd.Categorical.from_codes(rows[name], pd.Index(trace.texts))
        elif kind == "i1":
            columns[name] = pd.Categorical.from_codes(rows[name], pd.Index(CODES[name]))
        else:
            columns[name] = rows[name]
    return pd.DataFrame(columns)


def _rows(stored: Any, columns: list[tuple[str, str]]) -> Array:
    rows: Array = np.empty(stored.num_rows, dtype=columns)
    for name, _ in columns:
        rows[name] = stored[name].to_numpy()
    return rows


def _head(trace: Trace) -> dict[str, Any]:
    """All of a trace but its tables and texts."""
    totals = trace.totals
    return {
        "schema": TRACE_SCHEMA,
        "level": trace.level,
        "elapsed_s": trace.elapsed_s,
        "logical_cpus": trace.logical_cpus,
        "status": trace.status,
        "stop_reason": trace.stop_reason,
        "notes": trace.notes,
        "workers": trace.workers,
        "places": [
            {"name": place.name, "worker": place.worker, "kind": place.kind, "cpus": place.cpus}
            for place in trace.places.values()
        ],
        "totals": {
            "busy_s": [[place, kind, seconds] for (place, kind), seconds in totals.busy_s.items()],
            "bytes": dict(totals.bytes),
            "updates": dict(totals.updates),
            "steps": dict(totals.steps),
            "rows": dict(totals.rows),
            "staleness": {kind: sorted(counts.items()) for kind, counts in totals.staleness.items()},
            "batch": totals.batch,
            "memory": totals.memory,
            "flops": dict(totals.flops),
            "cpu_s": dict(totals.cpu_s),
            "driver_busy_s": dict(totals.driver_busy_s),
            "overwritten": totals.overwritten,
            "events": totals.events,
        },
    }


def _trace(head: dict[str, Any]) -> Trace:
    """An empty trace with the totals of a stored one."""
    trace = Trace(level=head["level"])
    trace.elapsed_s, trace.logical_cpus = head["elapsed_s"], head["logical_cpus"]
    trace.status, trace.stop_reason = head["status"], head["stop_reason"]
    trace.notes = list(head.get("notes", ()))
    trace.workers.update(head["workers"])
    for place in head["places"]:
        trace.place(Place(**place))
    stored, totals = head["totals"], Totals()
    for place_name, kind, seconds in stored["busy_s"]:
        totals.busy_s[place_name, kind] = seconds
    for name in ("bytes", "updates", "steps", "rows", "batch", "memory", "flops", "cpu_s", "driver_busy_s"):
        getattr(totals, name).update(stored[name])
    for kind, counts in stored["staleness"].items():
        totals.staleness[kind] = Counter({int(value): int(count) for value, count in counts})
    totals.overwritten, totals.events = stored["overwritten"], stored["events"]
    trace.totals = totals
    return trace
