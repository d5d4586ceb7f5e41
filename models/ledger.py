"""What the coordinator knows of its workers and the data: tallies, the row cursor, and the view of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, overload

from hetsgd.models.policy import Assign, Fault, Fleet, Kind, Loss, Member, Merge, Result, Seat

if TYPE_CHECKING:
    from hetsgd.models.coordinator import Coordinator


class WorkerTally:
    """Counts of one worker. Policies see it through `policy.Tally`; only the coordinator writes it."""

    __slots__ = (
        "alive", "asked", "batch", "dead", "done", "in_flight", "kind", "lanes", "last_rows", "last_s", "name",
        "stats", "updates",
    )  # fmt: skip

    def __init__(self, member: Member) -> None:
        self.name: str = member.name
        self.kind: Kind = member.kind
        self.lanes: int = member.lanes
        self.alive: bool = True
        self.dead: set[Seat] = set()
        self.asked: int = 0
        self.done: int = 0
        self.updates: int = 0
        self.in_flight: int = 0
        self.batch: int = 0
        self.last_s: float = 0.0
        self.last_rows: int = 0
        self.stats: Mapping[str, float] = {}

    def finished(self, result: Result) -> None:
        """Count a result that came in."""
        self.in_flight -= 1
        self.done += 1
        self.updates += result.updates
        self.last_s = result.end_s - result.start_s
        self.last_rows = result.rows
        if result.stats:
            self.stats = result.stats

    def lost(self, member: Member, fault: Fault) -> None:
        """Count a lost lane or worker. A team that goes on keeps its seat; a lost free lane loses its own."""
        if fault.lanes_left and fault.seat.lane < 0:
            self.lanes = fault.lanes_left
            return
        self.dead.add(fault.seat)
        self.alive = len(self.dead) < len(member.seats)
        if self.alive:
            self.lanes -= 1


class Cursor:
    """Where the run is in the data: the epoch and the next row position of its order."""

    __slots__ = ("epoch", "epochs", "position", "rows")

    def __init__(self, rows: int, epochs: int | None) -> None:
        self.rows = rows
        self.epochs = epochs
        self.epoch = 0
        self.position = 0

    @property
    def left(self) -> int:
        """Rows of this epoch that have not been given out."""
        return self.rows - self.position

    @property
    def last_epoch(self) -> bool:
        """Whether this epoch is the last that the stop rule allows."""
        return self.epochs is not None and self.epoch + 1 >= self.epochs

    def take(self, rows: int) -> tuple[int, int]:
        """The next `rows` positions, cut at the end of the epoch."""
        start = self.position
        stop = start + rows
        self.position = stop = stop if stop < self.rows else self.rows
        return start, stop

    def next_epoch(self) -> None:
        """Begin the next epoch."""
        self.epoch += 1
        self.position = 0


class _ReadOnly(Sequence[Loss]):
    """A list as it is now and will be, for those who may only read it."""

    __slots__ = ("_items",)

    def __init__(self, items: list[Loss]) -> None:
        self._items = items

    @overload
    def __getitem__(self, index: int) -> Loss: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Loss]: ...
    def __getitem__(self, index: int | slice) -> Loss | Sequence[Loss]:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)


class CoordinatorView:
    """The read-only face of the coordinator's books that policies get; one object for the whole run."""

    __slots__ = ("_coordinator", "epoch", "held", "in_flight", "losses", "now_s", "workers")

    def __init__(
        self,
        coordinator: Coordinator,
        tallies: dict[str, WorkerTally],
        in_flight: dict[int, Assign],
        held: dict[int, Result],
        losses: list[Loss],
    ) -> None:
        self._coordinator = coordinator
        self.workers: Mapping[str, WorkerTally] = MappingProxyType(tallies)
        self.in_flight: Mapping[int, Assign] = MappingProxyType(in_flight)
        self.held: Mapping[int, Result] = MappingProxyType(held)
        self.losses: Sequence[Loss] = _ReadOnly(losses)
        self.now_s = 0.0
        self.epoch = 0
        """The epoch that rows are given out of."""

    @property
    def rows_left(self) -> int:
        """Rows of the epoch that have not been given out."""
        return self._coordinator.cursor.left

    @property
    def version(self) -> int:
        """The newest version that an engine has reported."""
        return self._coordinator.version

    @property
    def merging(self) -> Sequence[Merge]:
        """The merges under way, in the order in which they will land."""
        return tuple(self._coordinator.merging.values())

    def staleness(self, result: Result) -> int:
        """Staleness the result would have if merged now: updates since it was read, and merges before it."""
        return self._coordinator.version + len(self._coordinator.merging) - result.read


def tallies_of(fleet: Fleet) -> dict[str, WorkerTally]:
    """A fresh tally for each worker of the fleet."""
    return {member.name: WorkerTally(member) for member in fleet.members}
