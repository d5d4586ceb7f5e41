"""The invariants find what is wrong with a trace: each is broken once in an otherwise sound one."""

from collections.abc import Callable

import numpy as np
import pytest

from hetsgd.models.invariants import check
from hetsgd.models.policies import recipe
from hetsgd.models.policy import Fleet, Member, Seat
from hetsgd.models.rehearsal import Kill, RehearsalError, rehearse
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.trace import FATES, Place, Trace

ROWS = 60


def sound() -> Trace:
    """A run of gradients with a lost worker and dropped gradients, with spans of one place."""
    members = (Member(name="cpu", kind="cpu", lanes=2), *(Member(name=n, kind="accelerator") for n in ("a", "b")))
    made = recipe("ringmaster", cpu_batch=2, accelerator_batch=5, threshold=1)
    fleet = Fleet(members=members, rows=ROWS, learning_rate=0.1, lookahead=1)
    run = RunSettings(stop=StopRule(epochs=2), lookahead=1)
    trace = rehearse(made, fleet, run, np.random.default_rng(3), [Kill(at_s=1.1, seat=Seat("b"))])
    assert {FATES[code] for code in trace["fates"]["fate"].tolist()} == {"merged", "discarded", "lost"}
    trace.place(Place(name="pcie:down", worker=None, kind="link"))
    trace.span("pull", "pcie:down", "a", 0, 0.0, 1.0)
    trace.span("pull", "pcie:down", "a", 1, 0.5, 2.0)  # transfers share a link
    return trace


def test_a_sound_trace_breaks_no_law() -> None:
    assert check(sound(), rows=ROWS) == []


def forget_a_fate(trace: Trace) -> None:
    trace["fates"]["id"][0] = trace["fates"]["id"][1]


def invent_a_fate(trace: Trace) -> None:
    trace.tables["fates"].add((999, 0, 0.0, -1, 0, 0))


def lose_rows(trace: Trace) -> None:
    trace["fates"]["rows"][0] -= 1


def give_rows_twice(trace: Trace) -> None:
    trace["assignments"]["start"][1] -= 1


def leave_rows(trace: Trace) -> None:
    trace["assignments"]["epoch"][-1] += 1


def merge_twice(trace: Trace) -> None:
    trace["merge_inputs"]["id"][0] = trace["merge_inputs"]["id"][1]


def call_it_in_place(trace: Trace) -> None:
    trace["fates"]["fate"][0] = FATES.index("in_place")


def overlap(trace: Trace) -> None:
    start_s = trace["spans"]["start_s"][trace["spans"]["place_text"] == trace.code("a")][1]
    trace.span("wait", "a", "a", 2, start_s - 0.1, start_s + 0.1)


def run_backwards(trace: Trace) -> None:
    trace.span("wait", "a", "a", 2, 1e3, 999.0)


def write_a_version_twice(trace: Trace) -> None:
    trace["updates"]["version"][1] = trace["updates"]["version"][0]


def let_versions_fall(trace: Trace) -> None:
    trace["updates"]["version"][[0, 1]] = trace["updates"]["version"][[1, 0]]
    trace["updates"]["read"][:2] = 0


def read_the_future(trace: Trace) -> None:
    trace["updates"]["read"][0] = trace["updates"]["version"][0]


def write_before_reading(trace: Trace) -> None:
    trace["results"]["wrote"][3] = trace["results"]["read"][3] - 1


def read_before_ones_own_update(trace: Trace) -> None:
    merges, inputs = trace["merges"], trace["merge_inputs"]
    slow = merges[(merges["version"] >= 0) & (merges["end_s"] > merges["decided_s"])][0]
    owner = int(inputs["id"][inputs["merge"] == slow["id"]][0])
    worker = trace["assignments"]["worker_text"][trace["assignments"]["id"] == owner]
    later = trace["assignments"]["id"][(trace["assignments"]["worker_text"] == worker)][-1]
    computes = trace["spans"]["id"] == later
    trace["spans"]["start_s"][computes] = (slow["decided_s"] + slow["end_s"]) / 2


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        (forget_a_fate, "fates"),
        (invent_a_fate, "1: assignment 999 has a fate and was never given out"),
        (lose_rows, "have a fate"),
        (give_rows_twice, "1: epoch 0: rows from"),
        (leave_rows, "rows were given out"),
        (merge_twice, "was merged 2 times"),
        (call_it_in_place, "ended in_place, which its write does not allow"),
        (overlap, "2: a: spans overlap"),
        (run_backwards, "2: a: a span ends before it starts"),
        (write_a_version_twice, "3: version"),
        (let_versions_fall, "is followed by"),
        (read_the_future, "which is not older"),
        (write_before_reading, " was read, "),
        (read_before_ones_own_update, "of its seat's own result landed"),
    ],
)
def test_each_broken_law_is_named(breaks: Callable[[Trace], None], says: str) -> None:
    trace = sound()
    breaks(trace)
    found = check(trace, rows=ROWS)
    assert any(says in text for text in found), found


def test_a_rehearsal_that_does_not_end_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that loses its events is stopped, with the time and who waits."""
    from hetsgd.models import rehearsal

    monkeypatch.setattr(rehearsal, "_MOST_EVENTS", 5)
    fleet = Fleet(members=(Member(name="cpu", kind="cpu"),), rows=1000, learning_rate=0.1)
    with pytest.raises(RehearsalError, match="no end after 5 events, at "):
        rehearse(recipe("hogwild"), fleet, RunSettings(stop=StopRule(epochs=1)), np.random.default_rng(0))
