"""What the parent process and its children say to each other: messages of one fixed size in each direction.

An order goes from the parent to a child, a report back. Times are those of `time.perf_counter`, which all processes
of one machine share. `serial` numbers orders over the whole run; the lanes of a team get the same one.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from hetsgd.models.policy import READS, WRITES, Read, Write


class OrderKind(IntEnum):
    """What a child is told."""

    ASSIGN = 0  # compute; begin when `go` is set, else at the GO of the same serial
    GO = 1  # the assignment `serial` may read the model
    EVALUATE = 2  # the loss of rows [start, stop) of the training and of the test part
    WARM = 3  # steps of `batch` rows on a scratch model, so that the first real one is not slow
    START = 4  # the clock of the run starts
    CANCEL = 5  # everything given out so far is void: say when idle
    FINISH = 6  # the clock of the run stops: drop what is queued, report
    QUIT = 7


class Order(NamedTuple):
    """One order; fields that a kind does not use are 0.

    `lanes` children share the rows, this one as number `position`; `rows_slot` is the place of the epoch's row
    order (-1: file order), `slot` the place for the result (-1: none). For an evaluation, `source` is 0 for the
    global model as it is at the start and 1 for the snapshot that the parent has laid down; `test_start` and
    `test_stop` bound its test rows.
    """

    kind: int
    serial: int
    id: int = 0
    go: int = 0
    start: int = 0
    stop: int = 0
    lanes: int = 1
    position: int = 0
    batch: int = 0
    steps: int = 0
    rate: float = 0.0
    read: int = 0
    write: int = 0
    rows_slot: int = -1
    slot: int = -1
    source: int = 0
    test_start: int = 0
    test_stop: int = 0

    @property
    def chunks(self) -> list[tuple[int, int]]:
        """Positions [start, stop) of this child's pieces, as `Assign.chunks` cuts them."""
        first, stride = self.start + self.position * self.batch, self.batch * self.lanes
        return [(low, min(low + self.batch, self.stop)) for low in range(first, self.stop, stride)]


class ReportKind(IntEnum):
    """What a child says."""

    READY = 0
    DONE = 1  # an assignment (its part of one) is finished
    LOSS = 2
    WARMED = 3
    IDLE = 4  # the answer to CANCEL
    FINISHED = 5  # the answer to FINISH; `value` is the processor time since START in seconds
    FAILED = 6  # an exception: its text lies in the shared memory


Numbers = tuple[float, ...]
NO_NUMBERS: Final[Numbers] = (0.0,) * 5


class Report(NamedTuple):
    """One report; fields that a kind does not use are 0.

    `read` and `wrote` are versions, `rows`, `updates` and `steps` counts of this child, `value` of an assignment or
    a loss the processor time of its computing in seconds. For a loss, `start_s` is the time and `read` the version
    of the snapshot, and the values are sums over the child's rows, see `losses.py`. An assignment that has measured
    gradient norms has them in `train`: two squared norms, and the rows of each.
    """

    kind: int
    serial: int
    read: int = 0
    wrote: int = 0
    start_s: float = 0.0
    end_s: float = 0.0
    rows: int = 0
    updates: int = 0
    steps: int = 0
    value: float = 0.0
    train: Numbers = NO_NUMBERS
    test: Numbers = NO_NUMBERS


_ORDER: Final = struct.Struct("=10qd7q")
_REPORT: Final = struct.Struct("=4q2d3q11d")
ORDER_BYTES: Final = _ORDER.size
REPORT_BYTES: Final = _REPORT.size
_RECEIVED_BYTES: Final = 64 * ORDER_BYTES

READ_CODE: Final[dict[Read, int]] = {name: code for code, name in enumerate(READS)}
WRITE_CODE: Final[dict[Write, int]] = {name: code for code, name in enumerate(WRITES)}
IN_PLACE: Final = WRITE_CODE["in_place"]
GRADIENT: Final = WRITE_CODE["gradient"]
REPLICA: Final = WRITE_CODE["replica"]
KEEP: Final = WRITE_CODE["keep"]
OWN: Final = READ_CODE["own"]


def pack_order(order: Order) -> bytes:
    """The bytes of an order.

    >>> unpack_order(pack_order(Order(kind=0, serial=7, rate=0.5))).rate
    0.5
    """
    return _ORDER.pack(*order)


def unpack_order(data: bytes) -> Order:
    """The order in `ORDER_BYTES` bytes."""
    return Order._make(_ORDER.unpack(data))


def pack_report(report: Report) -> bytes:
    """The bytes of a report."""
    return _REPORT.pack(*report[:10], *report.train, *report.test)


def unpack_reports(data: bytes) -> list[Report]:
    """The reports in a whole number of `REPORT_BYTES` bytes."""
    return [Report._make((*values[:10], values[10:15], values[15:])) for values in _REPORT.iter_unpack(data)]


class Closed(Exception):
    """The parent has closed the connection or is gone."""


class Inbox:
    """The child's end of the connection. `orders` are those that have arrived, first come first."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""
        self.orders: deque[Order] = deque()

    def fetch(self, *, wait: bool) -> None:
        """Take in what has arrived; with `wait` at least a part of an order. Raises Closed at the end."""
        try:
            more = self._connection.recv(_RECEIVED_BYTES, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except ConnectionError as error:
            raise Closed from error
        if not more:
            raise Closed
        data = self._rest + more
        whole = len(data) - len(data) % ORDER_BYTES
        self.orders.extend(map(Order._make, _ORDER.iter_unpack(data[:whole])))
        self._rest = data[whole:]

    def report(self, reports: Sequence[Report]) -> None:
        """Send reports. Raises Closed when the parent is gone."""
        try:
            self._connection.sendall(b"".join(map(pack_report, reports)))
        except ConnectionError as error:
            raise Closed from error
