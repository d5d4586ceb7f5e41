"""Settings of the whole suite, and one small run worked out by hand.

Hypothesis draws the same examples everywhere and knows no deadline.
"""

from collections.abc import Callable

import pytest
from hypothesis import settings

from hetsgd.models.policy import READS, RULES, WRITES
from hetsgd.models.run import TraceLevel
from hetsgd.models.trace import FATES, SCHEMA, Place, Trace

# Two shared cores make single examples slow now and then, which says nothing about the code.
settings.register_profile("reproducible", derandomize=True, deadline=None)
settings.load_profile("reproducible")


_WRITE: dict[str, int] = {name: code for code, name in enumerate(WRITES)}
_FATE: dict[str, int] = {name: code for code, name in enumerate(FATES)}


@pytest.fixture
def small_run() -> Callable[..., Trace]:
    """The trace, at a level, of ten seconds of a CPU team of two lanes and one accelerator on 20 rows an epoch.

    The accelerator's gradient (rows 4..12 of epoch 0) merges at 4.5 s as version 3; the lanes write in place at 2, 6
    and 9 s (versions 1, 2, 4, 5, 6, 7); the team dies at 9.5 s; the accelerator's second batch is in flight at the
    end. It evaluates from 6 to 8 s and once more after the run.
    """

    def build(level: TraceLevel = "full") -> Trace:
        trace = Trace(level=level)
        trace.elapsed_s, trace.logical_cpus, trace.stop_reason = 10.0, 4, "10 s are over"
        trace.workers.update({"cpu": "cpu", "gpu": "accelerator"})
        for lane in ("cpu[0]", "cpu[1]"):
            trace.place(Place(name=lane, worker="cpu", kind="cpu", cpus=1))
        trace.place(Place(name="gpu", worker="gpu", kind="accelerator"))
        for link in ("pcie:down", "pcie:up"):
            trace.place(Place(name=link, worker=None, kind="link"))
        trace.place(Place(name="merge", worker=None, kind="merge", cpus=1))
        _decisions(trace)
        _spans_and_updates(trace)
        totals = trace.totals
        totals.batch.update({"cpu": 1, "gpu": 16})
        totals.rows.update({"in_place": 14, "merged": 8, "in_flight": 16, "lost": 2})
        totals.steps.update({"cpu": 6, "accelerator": 1})
        totals.memory["dram"] = 4096
        totals.flops.update({"cpu": 400.0, "accelerator": 2000.0})
        totals.cpu_s["cpu"] = 14.5
        totals.driver_busy_s["gpu"] = 4.5
        totals.overwritten, totals.events = 1, 33
        return trace

    return build


def _decisions(trace: Trace) -> None:
    """Assignments and what became of them, merges, losses, the epoch and the fault."""
    cpu, gpu, none, grow = (trace.code(text) for text in ("cpu", "gpu", "", "grow"))
    nan = float("nan")
    global_read = READS.index("global")
    for id_, asked_s, worker, epoch, start, stop, lanes, batch, write in (
        (0, 0.0, cpu, 0, 0, 4, 2, 2, "in_place"),
        (1, 0.0, gpu, 0, 4, 12, 1, 8, "gradient"),
        (2, 2.0, cpu, 0, 12, 20, 2, 4, "in_place"),
        (3, 8.0, gpu, 1, 0, 16, 1, 16, "gradient"),
        (4, 8.0, cpu, 1, 16, 18, 2, 1, "in_place"),
        (5, 9.0, cpu, 1, 18, 20, 2, 1, "in_place"),
    ):
        row = (
            id_,
            id_,
            asked_s,
            worker,
            -1,
            epoch,
            start,
            stop,
            lanes,
            batch,
            1,
            0.1,
            global_read,
            _WRITE[write],
            grow,
        )
        if trace.level != "none":
            trace.tables["assignments"].add(row)
    for result in (
        (0, 0.0, 2.0, 0, 2, 4, 2, 2), (1, 1.0, 3.5, 0, 0, 8, 0, 1), (2, 2.0, 6.0, 2, 5, 8, 2, 2),
        (4, 8.0, 9.0, 5, 7, 2, 2, 2),
    ):  # fmt: skip
        trace.tables["results"].add(result)
    for id_, fate, at_s, merge, rows, reason in (
        (0, "in_place", 2.0, -1, 4, none), (1, "merged", 4.5, 0, 8, none), (2, "in_place", 6.0, -1, 8, none),
        (4, "in_place", 9.0, -1, 2, none), (5, "lost", 9.5, -1, 2, trace.code("killed")),
        (3, "in_flight", 10.0, -1, 16, none),
    ):  # fmt: skip
        trace.tables["fates"].add((id_, _FATE[fate], at_s, merge, rows, reason))
    landed = {"id": 0, "call": 5, "rule": RULES.index("gradient"), "decided_s": 3.5, "start_s": 4.0, "end_s": 4.5}
    landed |= {"version": 3, "rate": 0.1, "write_back_text": none, "reason_text": none}
    trace.tables["merges"].add(tuple(landed.get(name, 0) for name, _ in SCHEMA["merges"]))
    trace.tables["merge_inputs"].add((0, 1, 1.0, 2))
    for evaluation in (
        (-1, 0, 0, 0.0, 0.0, 1.0, nan, 0.5, nan), (0, 0, 5, 6.0, 8.0, 0.4, 0.5, 0.8, 0.75),
        (1, 1, 7, 10.0, 10.0, 0.2, 0.3, 0.9, 0.85),
    ):  # fmt: skip
        trace.tables["evaluations"].add(evaluation)
    trace.tables["epochs"].add((0, 0.0, 8.0))
    trace.tables["faults"].add((9.5, cpu, -1, trace.code("killed"), 2))


def _spans_and_updates(trace: Trace) -> None:
    """Who was busy when, and the seven updates."""
    for lane, name in enumerate(("cpu[0]", "cpu[1]")):
        trace.span("compute", name, "cpu", 0, 0.0, 2.0)
        trace.update("cpu", lane + 1, 0, 2.0, "cpu", lane, 0, 2)
    trace.span("load", "pcie:down", "gpu", 1, 0.0, 0.5, 320)
    trace.span("pull", "pcie:down", "gpu", 1, 0.5, 1.0, 100)
    trace.span("compute", "gpu", "gpu", 1, 1.0, 3.0)
    trace.span("push", "pcie:up", "gpu", 1, 3.0, 3.5, 100)
    trace.span("merge", "merge", "", 0, 4.0, 4.5)
    trace.totals.updates["accelerator"] += 1.0
    trace.totals.staleness["accelerator"][2] += 1
    if trace.level == "full":
        trace.updates.add((3, 0, 4.5, trace.code(""), -1, -1, 0, 8))
    for lane, name in enumerate(("cpu[0]", "cpu[1]")):
        trace.span("compute", name, "cpu", 2, 2.0, 6.0)
        trace.update("cpu", lane + 4, 2, 6.0, "cpu", lane, 2, 4)
    trace.span("evaluate", "gpu", "gpu", 0, 6.0, 8.0)
    trace.span("load", "pcie:down", "gpu", 3, 8.0, 8.5, 640)
    for lane, name in enumerate(("cpu[0]", "cpu[1]")):
        trace.span("wait", name, "cpu", -1, 6.0, 8.0)
        trace.span("compute", name, "cpu", 4, 8.0, 9.0)
        trace.update("cpu", lane + 6, 5, 9.0, "cpu", lane, 4, 1)
        trace.span("compute", name, "cpu", 5, 9.0, 9.5)
    trace.span("compute", "gpu", "gpu", 3, 9.0, 10.0)
