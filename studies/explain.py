"""Where the time of an assignment goes: the terms of the cost model beside what the simulator made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hetsgd.models.anatomy import Piece, accelerator_anatomy, lane_anatomy
from hetsgd.models.policy import READS, RULES, WRITES, Merge, Work
from hetsgd.models.trace import SPAN_CODE, SpanKind, Trace
from hetsgd.studies.execute import Finished, run_simulated
from hetsgd.studies.failure import BadInput
from hetsgd.studies.interval import seconds

if TYPE_CHECKING:
    from hetsgd.models.loss_curve import LossReference
    from hetsgd.models.plan import Plan, ProgressSink
    from hetsgd.studies.resolve import Ready

_TITLES: Final = {
    "order": "decision and order", "load": "rows to the device", "pull": "model read", "compute": "compute",
    "push": "result written back", "report": "report", "merge": "merge of the result",
}  # fmt: skip
_SPANS: Final[tuple[SpanKind, ...]] = ("load", "pull", "compute", "push")
_WIDTH: Final = 33
_ROUNDING: Final = 1e-9


class Explained(Finished):
    """A finished run whose record also says where the time of each worker's assignments goes (`explain`)."""

    def record(self, reference: LossReference | None = None) -> dict[str, Any]:
        """The `hetsgd.run/1` object with a list `explain`: see `explain`."""
        return {**Finished.record(self, reference), "explain": explain(self.ready.plan, self.trace)}


def run_explained(ready: Ready, progress: ProgressSink | None = None) -> Explained:
    """Simulate a run, as `run_simulated` does, and explain it."""
    finished = run_simulated(ready, progress)
    return Explained(**{field.name: getattr(finished, field.name) for field in fields(finished)})


def check_explain(ready: Ready) -> Ready:
    """The run as it is; BadInput where it would leave no spans to explain."""
    if ready.plan.run.trace != "full":
        raise BadInput(f"--explain: needs every span of the run: run.trace must be full, got {ready.plan.run.trace!r}")
    return ready


def explain(plan: Plan, trace: Trace) -> list[dict[str, Any]]:
    """One object for each worker of a run: its usual assignment, the terms of its time, and what the run measured.

    `alone_s` is what the cost model says when nothing else runs, `run_s` the mean over the run's assignments of that
    kind. Needs a trace of level `full`; a worker that had no whole assignment is left out.
    """
    found = []
    for worker in trace.workers:
        usual = _usual(trace, worker)
        if usual is not None:
            work, lane, ids = usual
            found.append(_worker(plan, trace, worker, work, lane, ids))
    return found


def _worker(plan: Plan, trace: Trace, worker: str, work: Work, lane: int, ids: Any) -> dict[str, Any]:
    merge = _usual_merge(trace, ids)
    if trace.workers[worker] == "cpu":
        pieces = lane_anatomy(plan, work, lane, merge)
    else:
        pieces = accelerator_anatomy(plan, work, worker, merge)
    run_s = _measured(trace, worker, ids, plan.machine.message_s, plan.machine.decision_s)
    return {
        "worker": worker,
        "batch": work.batch,
        "steps": work.steps,
        "read": work.read,
        "write": work.write,
        "assignments": len(ids),
        "parts": [_part(piece, run_s.get(piece.part)) for piece in pieces],
        "wait_s": run_s["wait"],
        # A merge comes after the assignment, and others are given out meanwhile.
        "alone_s": sum(piece.seconds for piece in pieces if piece.part != "merge"),
        "run_s": run_s["total"],
    }


def _part(piece: Piece, run_s: float | None) -> dict[str, Any]:
    terms = [
        {
            "name": term.name, "seconds": term.seconds, "bound": term.bound, "served": term.served,
            "flops": term.flops, "bytes": term.bytes,
        }
        for term in piece.terms
    ]  # fmt: skip
    return {"part": piece.part, "times": piece.times, "alone_s": piece.seconds, "run_s": run_s, "terms": terms}


# -- what the run did --------------------------------------------------------------------------------------------


def _usual(trace: Trace, worker: str) -> tuple[Work, int, Any] | None:
    """The work that a worker was given most often in whole, one of its lanes, and the ids of those assignments."""
    rows = trace["assignments"]
    rows = rows[rows["worker_text"] == trace.code(worker)]
    rows = rows[rows["stop"] - rows["start"] == rows["batch"].astype(np.int64) * rows["steps"] * rows["lanes"]]
    rows = rows[np.isin(rows["id"], trace["results"]["id"])]
    if not len(rows):
        return None
    kinds = Counter(zip(*(rows[name].tolist() for name in ("batch", "steps", "read", "write")), strict=True))
    (batch, steps, read, write), _ = max(kinds.items(), key=lambda item: (item[1], item[0]))
    same = (rows["batch"] == batch) & (rows["steps"] == steps) & (rows["read"] == read) & (rows["write"] == write)
    work = Work(batch=batch, steps=steps, rate=float(rows["rate"][same][0]), read=READS[read], write=WRITES[write])
    return work, max(int(rows["lane"][same][0]), 0), rows["id"][same]


def _usual_merge(trace: Trace, ids: Any) -> Merge | None:
    """A merge as most of those that these results entered."""
    inputs, merges = trace["merge_inputs"], trace["merges"]
    entered = merges[np.isin(merges["id"], inputs["merge"][np.isin(inputs["id"], ids)]) & (merges["version"] >= 0)]
    if not len(entered):
        return None
    counts = Counter(int(np.sum(inputs["merge"] == id_)) for id_ in entered["id"][:1000])
    count, row = counts.most_common(1)[0][0], entered[0]
    return Merge(
        inputs=tuple(range(count)), rule=RULES[row["rule"]], weights=(1.0,) * count, momentum=float(row["momentum"]),
        compensate=float(row["compensate"]),
    )  # fmt: skip


def _measured(trace: Trace, worker: str, ids: Any, message_s: float, decision_s: float) -> dict[str, float]:
    """Mean seconds of each part over these assignments, of all of it (`total`), and of what no part explains (`wait`).

    From the request to the report's arrival. Of a team the parts of its lanes are averaged: `wait` holds what it waits
    for the slowest.
    """
    order = np.argsort(ids)
    ids = ids[order]
    assigned, results = trace["assignments"], trace["results"]
    asked_s = assigned["asked_s"][np.isin(assigned["id"], ids)][
        np.argsort(assigned["id"][np.isin(assigned["id"], ids)])
    ]
    ended = results[np.isin(results["id"], ids)]
    ended_s = ended["end_s"][np.argsort(ended["id"])]
    total_s = float(np.mean(ended_s - asked_s)) + message_s
    found = {"total": total_s, "order": decision_s + message_s, "report": message_s}
    spans = trace["spans"]
    spans = spans[(spans["worker_text"] == trace.code(worker)) & np.isin(spans["id"], ids)]
    # A replica that a merge fetches carries the id of the merge: it does not lie within the assignment.
    place = np.searchsorted(ids, spans["id"])
    within = (spans["start_s"] >= asked_s[place]) & (spans["end_s"] <= ended_s[place])
    spans = spans[within]
    for kind in _SPANS:
        own = spans[spans["kind"] == SPAN_CODE[kind]]
        if len(own):
            if kind != "compute":
                # A way over several links has a span on each of them.
                own = np.unique(own[["id", "start_s", "end_s"]])
            found[kind] = float(np.sum(own["end_s"] - own["start_s"])) / _parts_at_once(own, kind, len(ids))
    wait_s = total_s - sum(value for part, value in found.items() if part != "total")
    found["wait"] = wait_s if wait_s > _ROUNDING * total_s else 0.0
    merges = trace["merges"]
    landed = merges[merges["version"] >= 0]
    if len(landed):
        found["merge"] = float(np.mean(landed["end_s"] - landed["start_s"]))
    return found


def _parts_at_once(spans: Any, kind: SpanKind, assignments: int) -> int:
    """By what the seconds of a kind are divided: the assignments, or the lanes' parts of them."""
    return len(spans) if kind == "compute" else assignments


# -- for a person ------------------------------------------------------------------------------------------------


def explain_lines(workers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The explanation in lines of at most 100 characters."""
    yield "Where an assignment's time goes. alone: the cost model, nothing else runs; run: mean over the run;"
    yield "hidden: overlapped by what the step is bound by"
    for worker in workers:
        yield ""
        steps = "" if worker["steps"] == 1 else f" x {worker['steps']} steps"
        yield (
            f"{worker['worker']}: batch {worker['batch']}{steps}, reads {worker['read']}, writes {worker['write']}, "
            f"{worker['assignments']:,} assignments"
        )
        yield _line("  part", "alone", "run", "bound by", "served by")
        after: list[Mapping[str, Any]] = []
        for part in worker["parts"]:
            if part["part"] == "merge":
                after.append(part)
                continue
            yield from _part_lines(part)
        if worker["wait_s"]:
            yield _line("  waiting: its turn, a merge, others", "", seconds(worker["wait_s"]), "", "")
        yield _line("  total", seconds(worker["alone_s"]), seconds(worker["run_s"]), "", "")
        for part in after:
            yield from _part_lines(part)


def _part_lines(part: Mapping[str, Any]) -> Iterator[str]:
    terms = part["terms"]
    times = "" if part["times"] == 1 else f" ({part['times']} times)"
    one = len(terms) == 1
    yield _line(
        f"  {_TITLES[part['part']]}{times}", seconds(part["alone_s"]),
        "-" if part["run_s"] is None else seconds(part["run_s"]), terms[0]["bound"] if one else "",
        terms[0]["served"] if one else "",
    )  # fmt: skip
    for term in terms:
        if not one:
            hidden = term["seconds"] == 0.0 and term["bytes"] > 0.0
            alone = "hidden" if hidden else seconds(term["seconds"])
            yield _line(f"    {term['name']}", alone, "", term["bound"], term["served"])


def _line(name: str, alone: str, run: str, bound: str, served: str) -> str:
    shown = name if len(name) <= _WIDTH + 3 else name[:_WIDTH] + "..."
    return f"{shown:<{_WIDTH + 3}} {alone:>10} {run:>10}  {bound:<23} {served}".rstrip()[:100]
