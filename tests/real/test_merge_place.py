"""Merges land in their order, in a thread; results that wait longer than slots last move out of them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from hetsgd.models.policy import Merge
from hetsgd.models.workload import Workload
from hetsgd.real.logs import UpdateCounter, log_arrays
from hetsgd.real.merge_place import HandedIn, LandedMerge, MergePlace, SlotPool
from hetsgd.real.shared_memory import SharedMemory, layout_of
from hetsgd.real.slots import Slots, SlotShape

LOAD = Workload(name="w", dataset="d", rows=10, test_rows=0, features=2, outputs=2, hidden=(), precision="float64")
SIZE = LOAD.parameters


class Place:
    """A merge place on a small model, with one pool of two slots for a team of two lanes."""

    def __init__(self) -> None:
        arrays = log_arrays(1) | {"slots/cpu": SlotShape(slots=2, lanes=2).array(LOAD)}
        self.memory = SharedMemory(layout_of(arrays))
        self.memory.close_descriptor()
        self.model, self.own = np.zeros(SIZE), np.full(SIZE, 4.0)
        self.pool = SlotPool(Slots(self.memory, "cpu"), self.own)
        self.woken = threading.Event()
        self.versions = np.zeros(8, dtype=np.int64)
        self.merges = MergePlace(
            model=self.model, own={"cpu": self.own}, own_versions={"cpu": self.versions},
            counter=UpdateCounter(self.memory, 1), weight_decay=0.0, wake=self.woken.set,
        )  # fmt: skip

    def landed(self, count: int) -> list[LandedMerge]:
        """Wait for so many merges, then stop."""
        found: list[LandedMerge] = []
        while len(found) < count:
            assert self.woken.wait(5.0)
            self.woken.clear()
            found += self.merges.landed()
        self.merges.stop()
        return found

    def gradient(self, first: float, second: float, rows: tuple[int, int], held: list[HandedIn]) -> HandedIn:
        slot = self.pool.take(held, self.merges.check)
        self.pool.slots.result(slot, 0)[:] = first
        self.pool.slots.result(slot, 1)[:] = second
        return self.pool.handed_in("gradient", slot, rows)


def test_a_teams_gradient_is_the_mean_over_its_rows() -> None:
    place = Place()
    place.merges.submit(_gradient(0), [place.gradient(1.0, 5.0, (3, 1), [])])
    place.merges.submit(_gradient(1), [place.gradient(2.0, 0.0, (1, 1), [])])
    landed = place.landed(2)
    assert [item.version for item in landed] == [1, 2]
    assert landed[0].end_s <= landed[1].start_s
    np.testing.assert_allclose(place.model, -(2.0 + 1.0) * 0.5)


def test_results_move_out_of_their_slots_when_these_run_out() -> None:
    place = Place()
    held: list[HandedIn] = []
    for number in range(5):
        held.append(place.gradient(float(number), float(number), (1, 1), held))
    assert [item.slot >= 0 for item in held] == [False, False, False, True, True]
    merge = Merge(inputs=(0, 1, 2, 3, 4), rule="gradient", weights=(1.0,) * 5, rate=1.0, id=0)
    place.merges.submit(merge, held)
    place.landed(1)
    np.testing.assert_allclose(place.model, -(0.0 + 1.0 + 2.0 + 3.0 + 4.0))


def test_a_merge_that_was_not_begun_does_not_land_after_the_stop() -> None:
    place = Place()
    place.merges.stop()
    place.merges.submit(_gradient(0), [place.gradient(1.0, 1.0, (1, 1), [])])
    assert place.merges.landed() == []
    assert not place.model.any()


def test_a_replica_written_back_carries_the_version_of_the_merge() -> None:
    place = Place()
    slot = place.pool.take([], place.merges.check)
    kept = place.pool.handed_in("keep", slot, (1, 1))
    merge = Merge(inputs=(0,), rule="average", weights=(0.5,), write_back=("cpu",), id=0)
    place.merges.submit(merge, [kept])
    place.landed(1)
    np.testing.assert_allclose(place.model, 2.0)
    np.testing.assert_allclose(place.own, 2.0)
    assert place.versions[0] == 1


def test_an_error_in_a_merge_is_raised_where_it_was_asked_for() -> None:
    place = Place()
    item = place.gradient(1.0, 1.0, (1, 1), [])
    item.write = "replica"
    place.merges.submit(_gradient(7), [item])
    assert place.woken.wait(5.0)
    with pytest.raises(ValueError, match="merge 7: rule 'gradient' needs the gradient"):
        place.merges.landed()
    place.merges.stop()


def _gradient(number: int) -> Merge:
    return Merge(inputs=(number,), rule="gradient", weights=(1.0,), rate=0.5, id=number)
