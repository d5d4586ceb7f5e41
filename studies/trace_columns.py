"""What each column of a stored trace means, with its unit: the metadata of the Parquet files and of docs/traces.md.

A unit `code into X` is a number that `hetsgd.frame` turns into a word; `text` is a position in `texts.parquet`.
"""

from __future__ import annotations

from typing import Final

from hetsgd.models.policy import EVENTS, READS, RULES, WRITES
from hetsgd.models.trace import ANSWERS, CALLS, FATES, SPAN_KINDS

CODES: Final[dict[str, tuple[str, ...]]] = {
    "read": READS, "write": WRITES, "rule": RULES, "fate": FATES, "kind": SPAN_KINDS, "call": CALLS, "answer": ANSWERS,
}  # fmt: skip
"""The words that a column of small integers stands for, by the column's name, in the order of its codes."""

_TEXT: Final = "text"
_ID: Final = ("id", "number of the assignment, counted from 0")
_WORKER: Final = (_TEXT, "name of the worker")
_LANE: Final = ("lane", "lane of a CPU team whose lanes are free, else -1")
_WHY: Final = (_TEXT, "reason of the policy in words")

TABLES: Final[dict[str, str]] = {
    "assignments": "One row per assignment: what a policy gave a worker.",
    "results": "One row per assignment that came to its end.",
    "fates": "What became of the rows of each assignment.",
    "stats": "Statistics that results carry, one row each.",
    "spans": "Who was busy with what, from when to when.",
    "updates": "One row per update of the global model.",
    "merges": "One row per merge that was decided, in the order in which they ended.",
    "merge_inputs": "The results that each merge took.",
    "evaluations": "The loss curve.",
    "epochs": "One row per finished epoch.",
    "faults": "Workers and lanes that were lost.",
    "calls": "Every call of the coordinator with its answer, in order: fed to a new one, it decides the same again.",
}

COLUMNS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "assignments": {
        "id": _ID,
        "call": ("call", "row of `calls` that gave it out"),
        "asked_s": ("s", "when the worker was asked"),
        "worker_text": _WORKER,
        "lane": _LANE,
        "epoch": ("epoch", "epoch of its rows, counted from 0"),
        "start": ("row", "first position in the epoch's order of rows"),
        "stop": ("row", "position behind the last one"),
        "lanes": ("lanes", "lanes that share its rows"),
        "batch": ("rows", "rows of a step, of each lane"),
        "steps": ("steps", "local steps asked of each lane"),
        "rate": ("1", "learning rate"),
        "read": (f"code into {'/'.join(READS)}", "which model is read"),
        "write": (f"code into {'/'.join(WRITES)}", "how the result is written"),
        "reason_text": _WHY,
    },
    "results": {
        "id": _ID,
        "start_s": ("s", "when work on it began"),
        "end_s": ("s", "when its result was there"),
        "read": ("version", "version of the model that was read"),
        "wrote": ("version", "last version of the model that it made or, where it wrote none, knew"),
        "rows": ("rows", "rows worked on"),
        "updates": ("updates", "updates of the model that it made itself"),
        "steps": ("steps", "steps over all lanes"),
    },
    "fates": {
        "id": _ID,
        "fate": (f"code into {'/'.join(FATES)}", "what became of its rows"),
        "at_s": ("s", "when that was known"),
        "merge": ("id", "merge that took or discarded it, else -1"),
        "rows": ("rows", "rows of the assignment"),
        "reason_text": (_TEXT, "why it was discarded or lost"),
    },
    "stats": {"id": _ID, "name_text": (_TEXT, "name of the statistic"), "value": ("1", "its value")},
    "spans": {
        "kind": (f"code into {'/'.join(SPAN_KINDS)}", "what was done"),
        "place_text": (_TEXT, "what was busy: a lane, a device, one direction of a link, the merge place"),
        "worker_text": (_TEXT, "worker that it was done for, empty for a merge"),
        "id": ("id", "assignment, merge or evaluation, -1 for a wait"),
        "start_s": ("s", "begin"),
        "end_s": ("s", "end"),
        "bytes": ("bytes", "bytes copied"),
    },
    "updates": {
        "version": ("version", "version written"),
        "read": ("version", "version read; staleness is version - 1 - read"),
        "at_s": ("s", "when it was written"),
        "worker_text": (_TEXT, "worker that wrote in place, empty for a merge"),
        "lane": ("lane", "lane that wrote in place, -1 for an accelerator or a merge"),
        "id": ("id", "assignment that wrote in place, -1 for a merge"),
        "merge": ("id", "merge, -1 for a write in place"),
        "rows": ("rows", "rows behind the update"),
    },
    "merges": {
        "id": ("id", "number of the merge, counted from 0"),
        "call": ("call", "row of `calls` after which it was decided"),
        "rule": (f"code into {'/'.join(RULES)}", "how its inputs enter the model"),
        "decided_s": ("s", "when it was decided"),
        "start_s": ("s", "begin; nan where it had not begun at the stop"),
        "end_s": ("s", "end; nan where it had not landed at the stop"),
        "version": ("version", "version written, -1 where it is no update"),
        "rate": ("1", "learning rate, or the weight of the rule"),
        "momentum": ("1", "momentum of the server"),
        "compensate": ("1", "factor of the delay compensation, 0 for none"),
        "at_read": ("0/1", "whether an elastic difference is taken at the read"),
        "write_back_text": (_TEXT, "workers whose replica it replaces, joined by commas"),
        "reason_text": _WHY,
    },
    "merge_inputs": {
        "merge": ("id", "merge"),
        "id": ("id", "assignment whose result went in"),
        "weight": ("1", "its weight"),
        "staleness": ("updates", "updates between its read and the merge, -1 where the merge is no update"),
    },
    "evaluations": {
        "id": ("id", "number of the evaluation, -1 for the initial model"),
        "epoch": ("epoch", "epoch under way"),
        "update": ("version", "version of the model that was evaluated"),
        "at_s": ("s", "time of the snapshot"),
        "end_s": ("s", "when the loss was known"),
        "train": ("1", "mean training loss; nan not computed, inf not finite"),
        "test": ("1", "mean test loss; nan without a test set"),
        "train_score": ("0..1", "accuracy, or F1 with several labels, on the training rows"),
        "test_score": ("0..1", "the same on the test rows"),
    },
    "epochs": {
        "epoch": ("epoch", "epoch, counted from 0"),
        "start_s": ("s", "begin"),
        "end_s": ("s", "end, a blocking evaluation included"),
    },
    "faults": {
        "at_s": ("s", "when it was known"),
        "worker_text": _WORKER,
        "lane": _LANE,
        "kind_text": (_TEXT, "what happened"),
        "rows": ("rows", "rows lost with it"),
    },
    "calls": {
        "call": (f"code into {'/'.join(CALLS)}", "what the coordinator was called for"),
        "at_s": ("s", "when"),
        "worker_text": (_TEXT, "worker that the call is about, or empty"),
        "lane": _LANE,
        "id": ("id", "assignment, merge or evaluation of the call, lanes left after a fault, or -1"),
        "answer": (f"code into {'/'.join(ANSWERS)}", "what it returned"),
        "answer_id": ("id", "assignment or evaluation returned, version merged, 1 for a fault half applied, or -1"),
        "detail_text": (_TEXT, "reason of a wait or stop, kind of a fault"),
        "until_s": ("s", "when a wait ends by itself, else nan"),
        "events": (f"bits of {'/'.join(EVENTS)}", "events that end a wait, the first the lowest bit; 0: any"),
    },
}
"""Unit and meaning of each column, by table."""
