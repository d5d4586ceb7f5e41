"""When a child says that it has finished: every report alone, or several short ones at once."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from hetsgd.models.data.dataset import Dataset
from hetsgd.real.child import Child, Setup
from hetsgd.real.messages import (
    GRADIENT,
    IN_PLACE,
    REPORT_BYTES,
    Inbox,
    Order,
    OrderKind,
    Report,
    ReportKind,
    pack_order,
    unpack_reports,
)
from hetsgd.real.parts import share_data
from hetsgd.real.run_memory import run_arrays
from hetsgd.real.shared_memory import SharedMemory, layout_of
from tests.real.small_runs import Bench


class Told(Inbox):
    """Counts the reports of each message."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self.sizes: list[int] = []

    def report(self, reports: Sequence[Report]) -> None:
        self.sizes.append(len(reports))
        super().report(reports)


class Instantly:
    """Does every assignment in `seconds` of a clock of its own."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._turn = itertools.count()

    def prepare(self, order: Order) -> None:
        pass

    def run(self, order: Order) -> Report:
        start_s = next(self._turn) * self._seconds
        return Report(kind=ReportKind.DONE, serial=order.serial, start_s=start_s, end_s=start_s + self._seconds)

    def evaluate(self, order: Order) -> Report:
        return Report(kind=ReportKind.LOSS, serial=order.serial)

    def warm(self, order: Order) -> None:
        pass


def told(orders: Sequence[Order], seconds: float) -> tuple[list[int], list[Report]]:
    """The sizes of the messages of a child that finds all these orders at once, and its reports, READY left out."""
    data = Dataset(
        name="d", train_x=np.zeros((8, 2), np.float32), train_y=np.array([0, 1] * 4),
        test_x=np.zeros((2, 2), np.float32), test_y=np.array([0, 1]), classes=2, multilabel=False, source="made",
    )  # fmt: skip
    plan = Bench(data).plan("hogwild", accelerators=())
    memory, shared = SharedMemory(layout_of(run_arrays(plan, plan.fleet(), 1, 6))), share_data(plan.workload, data)
    memory["deadline"][0] = float("inf")
    here, there = socket.socketpair()
    setup = Setup(
        name="cpu[0]", index=0, first=0, worker="cpu", worker_index=0, seat="cpu", device="cpu", core=None,
        workload=plan.workload, weight_decay=0.0, gradient_stats=0, memory=memory.layout, data=shared.layout,
    )  # fmt: skip
    inbox = Told(there)
    child = Child(setup, (memory.descriptor, shared.descriptor), inbox)
    here.sendall(b"".join(map(pack_order, orders)))
    serving = threading.Thread(target=child.serve, args=(Instantly(seconds),))
    serving.start()
    expected, received = (1 + len(orders)) * REPORT_BYTES, b""
    here.settimeout(10.0)
    while len(received) < expected:
        received += here.recv(expected)
    here.sendall(pack_order(Order(kind=OrderKind.QUIT, serial=0)))
    serving.join(10.0)
    for end in (here, there):
        end.close()
    memory.close_descriptor()
    shared.close_descriptor()
    return inbox.sizes[1:], unpack_reports(received)[1:]


def assignments(count: int, write: int) -> list[Order]:
    return [Order(kind=OrderKind.ASSIGN, serial=serial, go=1, write=write) for serial in range(1, count + 1)]


def test_short_steps_in_place_are_reported_together_while_half_of_the_orders_are_still_to_be_done() -> None:
    sizes, reports = told(assignments(6, IN_PLACE), 1e-4)
    assert sizes == [3, 2, 1]
    assert [report.serial for report in reports] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("count", "write", "seconds"),
    [(2, IN_PLACE, 1e-4), (6, IN_PLACE, 0.006), (6, GRADIENT, 1e-4)],
    ids=["few orders", "long steps", "results that others wait for"],
)
def test_other_reports_go_out_at_once(count: int, write: int, seconds: float) -> None:
    assert told(assignments(count, write), seconds)[0] == [1] * count


def test_nothing_is_held_back_when_the_child_turns_to_something_else() -> None:
    orders = [
        *assignments(3, IN_PLACE),
        Order(kind=OrderKind.EVALUATE, serial=9),
        Order(kind=OrderKind.CANCEL, serial=10),
    ]
    sizes, reports = told(orders, 1e-4)
    assert [report.kind for report in reports] == [ReportKind.DONE] * 3 + [ReportKind.LOSS, ReportKind.IDLE]
    assert sizes[-2:] == [1, 1]
