"""Shared memory and the rings in it: what one side writes the other reads, and a full ring loses nothing."""

from __future__ import annotations

import os
import threading

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hetsgd.real.logs import RING_RECORDS, LogReader, LogWriter, UpdateCounter, log_arrays
from hetsgd.real.messages import Order, Report, pack_order, pack_report, unpack_order, unpack_reports
from hetsgd.real.shared_memory import SharedMemory, layout_of


def test_two_mappings_are_one_memory() -> None:
    layout = layout_of({"a": ((3,), "f4"), "nothing": ((0, 4), "f8"), "b": ((2, 2), "i8")})
    one = SharedMemory(layout)
    other = SharedMemory(layout, os.dup(one.descriptor))
    one["b"][1, 1] = 7
    assert other["b"].tolist() == [[0, 0], [0, 7]]
    assert other["nothing"].shape == (0, 4)
    one.close_descriptor()
    one.close_descriptor()
    other["a"][:] = 1.5
    assert one["a"].tolist() == [1.5, 1.5, 1.5]
    other.close_descriptor()


def test_a_ring_that_is_full_waits_and_loses_nothing() -> None:
    memory = SharedMemory(layout_of(log_arrays(1)))
    reader, writer = LogReader(memory, 0), LogWriter(memory, 0)
    count = 2 * RING_RECORDS + 100

    def write() -> None:
        for number in range(count):
            writer.add("compute", float(number), number + 0.5, id_=number, read=3, rows=2, update=number % 2 == 0)

    thread = threading.Thread(target=write)
    thread.start()
    while thread.is_alive():
        reader.drain()
        thread.join(0.001)
    records = reader.records()
    memory.close_descriptor()
    assert records["id"].tolist() == list(range(count))
    assert records["update"].sum() == count // 2
    assert (records["end_s"] - records["start_s"] == 0.5).all()


def test_the_version_is_the_sum_of_all_counters() -> None:
    memory = SharedMemory(layout_of(log_arrays(3)))
    counters = [UpdateCounter(memory, index) for index in range(4)]
    for index, times in enumerate((2, 0, 5, 1)):
        for _ in range(times):
            counters[index].count()
    memory.close_descriptor()
    assert [counter.version() for counter in counters] == [8] * 4


numbers = st.integers(-(2**63), 2**63 - 1)
reals = st.floats(allow_nan=False)


@given(st.lists(numbers, min_size=17, max_size=17), reals)
def test_orders_survive_the_way(values: list[int], rate: float) -> None:
    order = Order._make([*values[:10], rate, *values[10:]])
    assert unpack_order(pack_order(order)) == order


@given(st.lists(numbers, min_size=7, max_size=7), st.lists(reals, min_size=13, max_size=13))
def test_reports_survive_the_way(values: list[int], rest: list[float]) -> None:
    parts = [*values[:4], *rest[:2], *values[4:], rest[2], tuple(rest[3:8]), tuple(rest[8:])]
    report = Report._make(parts)
    assert unpack_reports(pack_report(report) * 2) == [report, report]


def test_records_that_were_before_the_start_do_not_count() -> None:
    memory = SharedMemory(layout_of(log_arrays(1)))
    reader, writer = LogReader(memory, 0), LogWriter(memory, 0)
    writer.add("load", 0.0, 1.0, id_=1)
    reader.discard()
    writer.add("load", 1.0, 2.0, id_=2)
    memory.close_descriptor()
    assert reader.records()["id"].tolist() == [2]
    assert isinstance(reader.records(), np.ndarray)
