"""The check of invariants 1 to 3: silent on a sound trace, and each kind of damage is found and named."""

from collections.abc import Callable
from typing import Any

import pytest

from hetsgd.models.invariants import check
from hetsgd.models.trace import SCHEMA, Table, Trace

SmallRun = Callable[..., Trace]


def change(trace: Trace, table: str, row: int, **values: Any) -> None:
    """Overwrite columns of one row."""
    for column, value in values.items():
        trace[table][column][row] = value


def without(trace: Trace, table: str, row: int) -> None:
    """Take a row out of a table."""
    rows = trace[table]
    kept = Table(SCHEMA[table])
    for number, values in enumerate(rows):
        if number != row:
            kept.add(tuple(values))
    trace.tables[table] = kept


@pytest.mark.parametrize("level", ["none", "summary", "full"])
def test_a_sound_run_has_nothing_wrong(small_run: SmallRun, level: str) -> None:
    assert check(small_run(level)) == []
    assert check(small_run(level), rows=20) == []
    assert check(Trace()) == []


def rows_without_a_fate(trace: Trace) -> None:
    without(trace, "fates", 2)
    trace.totals.rows["in_place"] -= 8


def two_fates(trace: Trace) -> None:
    trace.tables["fates"].add((0, 0, 2.0, -1, 4, 0))
    trace.totals.rows["in_place"] += 4


def a_fate_of_nothing(trace: Trace) -> None:
    trace.tables["fates"].add((77, 0, 2.0, -1, 4, 0))
    trace.totals.rows["in_place"] += 4


def fewer_rows(trace: Trace) -> None:
    change(trace, "fates", 0, rows=3)
    trace.totals.rows["in_place"] -= 1


def rows_given_out_twice(trace: Trace) -> None:
    change(trace, "assignments", 2, start=11, stop=19)


def rows_left_out(trace: Trace) -> None:
    change(trace, "assignments", 2, start=13, stop=21)


def totals_differ(trace: Trace) -> None:
    trace.totals.rows["merged"] += 1


def merged_twice(trace: Trace) -> None:
    trace.tables["merges"].extend(trace["merges"].copy())
    change(trace, "merges", 1, id=1)
    trace.tables["merge_inputs"].add((1, 1, 1.0, 2))


def merged_and_in_flight(trace: Trace) -> None:
    trace.tables["merge_inputs"].add((0, 3, 1.0, 2))


def overlap(trace: Trace) -> None:
    change(trace, "spans", 0, end_s=2.5)


def backwards(trace: Trace) -> None:
    change(trace, "spans", 0, start_s=2.0, end_s=1.0)


def not_finite(trace: Trace) -> None:
    change(trace, "spans", 0, end_s=float("nan"))


def too_busy(trace: Trace) -> None:
    trace.totals.busy_s["gpu", "compute"] += 6.0


def negative_time(trace: Trace) -> None:
    trace.totals.busy_s["gpu", "compute"] = -1.0


def unknown_place(trace: Trace) -> None:
    del trace.places["merge"]


def after_the_end(trace: Trace) -> None:
    change(trace, "spans", len(trace["spans"]) - 1, end_s=10.5)


def version_repeated(trace: Trace) -> None:
    change(trace, "updates", 1, version=1)


def version_falls(trace: Trace) -> None:
    change(trace, "updates", 6, at_s=1.0)


def reads_the_future(trace: Trace) -> None:
    change(trace, "updates", 2, read=3)


def reads_before_the_start(trace: Trace) -> None:
    change(trace, "updates", 2, read=-1)


def update_not_in_the_table(trace: Trace) -> None:
    trace.totals.updates["cpu"] += 1


def negative_staleness(trace: Trace) -> None:
    trace.totals.staleness["cpu"][-2] += 1


def negative_rows(trace: Trace) -> None:
    trace.totals.rows["held"] = -1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (rows_without_a_fate, "1: assignment 2 has no fate"),
        (two_fates, "1: assignment 0 has 2 fates"),
        (a_fate_of_nothing, "1: assignment 77 has a fate and was never given out"),
        (fewer_rows, "1: assignment 0: 4 rows given out, 3 have a fate"),
        (rows_given_out_twice, "1: epoch 0: rows from 11 on are given out twice or left out"),
        (rows_left_out, "1: epoch 0: rows from 13 on are given out twice or left out"),
        (totals_differ, "1: rows merged: the totals say 9, the fates 8"),
        (merged_twice, "1: assignment 1 was merged 2 times"),
        (merged_and_in_flight, "1: assignment 3: its fate and the merges disagree"),
        (negative_rows, "1: rows held: -1 is negative"),
        (overlap, "2: cpu[0]: spans overlap at 2 s, 1 in all"),
        (backwards, "2: cpu[0]: a span ends before it starts, at 2 s"),
        (not_finite, "2: cpu[0]: a span has no finite time"),
        (too_busy, "2: gpu: 11 s of spans in a run of 10 s"),
        (negative_time, "2: gpu: compute took -1.0 s"),
        (unknown_place, "2: merge was busy and never declared"),
        (after_the_end, "2: gpu: spans from 1 to 10.5 s lie outside the run"),
        (version_repeated, "3: version 1 is followed by 1 at 2 s, 2 such steps in all"),
        (version_falls, "3: version 0 is followed by 7 at 1 s, 2 such steps in all"),
        (reads_the_future, "3: version 3 was computed from version 3, which is not older"),
        (reads_before_the_start, "3: an update read a version below 0"),
        (update_not_in_the_table, "3: the totals count 8 updates, the table has 7"),
        (negative_staleness, "3: cpu: an update of staleness -2 read what it wrote or later"),
    ],
)
def test_damage_is_found_and_named(small_run: SmallRun, damage: Callable[[Trace], None], message: str) -> None:
    trace = small_run()
    damage(trace)
    assert message in check(trace)


def test_rows_of_an_epoch_can_be_given(small_run: SmallRun) -> None:
    assert check(small_run(), rows=21) == ["1: epoch 0: 20 of 21 rows were given out"]
    assert check(small_run(), rows=19) == [
        "1: epoch 0: 20 of 19 rows were given out",
        "1: epoch 1: 20 of 19 rows were given out",
    ]


def test_a_merge_that_had_not_landed_is_none(small_run: SmallRun) -> None:
    trace = small_run()
    change(trace, "merges", 0, version=-1)
    change(trace, "fates", 1, fate=4)
    trace.totals.rows["merged"], trace.totals.rows["held"] = 0, 8
    assert check(trace) == []


def test_a_discarded_result_is_no_merge(small_run: SmallRun) -> None:
    trace = small_run()
    change(trace, "merges", 0, rule=5, version=-1)
    change(trace, "fates", 1, fate=2)
    trace.totals.rows["merged"], trace.totals.rows["discarded"] = 0, 8
    assert check(trace) == []
