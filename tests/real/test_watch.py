"""How long a silence is too long: from what the same work took before, and from time that was really looked at."""

from __future__ import annotations

import pytest

from hetsgd.real.watch import TIMES, UNKNOWN_S, Owed, Watch


def owed(index: int = 0, rows: int = 100, serial: int = 1, waits: bool = False) -> Owed:
    return Owed(index=index, worker="cpu", what="assignment", serial=serial, rows=rows, waits_for_others=waits)


def test_patience_grows_with_the_work_and_with_measured_times() -> None:
    watch = Watch(least_s=1.0)
    assert watch.patience_s(owed()) == UNKNOWN_S
    watch.measured("cpu", "assignment", rows=1000, seconds=2.0)
    assert watch.patience_s(owed(rows=100)) == pytest.approx(1.0 + TIMES * 0.2)
    watch.measured("cpu", "assignment", rows=1000, seconds=6.0)
    assert watch.patience_s(owed(rows=100)) == pytest.approx(1.0 + TIMES * 0.4)


def test_until_a_step_is_measured_a_loss_says_how_fast_a_worker_is() -> None:
    watch = Watch(least_s=1.0)
    watch.measured("cpu", "loss", rows=1000, seconds=1.0)
    assert watch.patience_s(owed(rows=100)) == pytest.approx(1.0 + TIMES * 4 * 0.1)


def looks(watch: Watch, item: Owed, records: list[int], every_s: float = 0.5) -> list[bool]:
    return [watch.late([(item, count)], k * every_s) is not None for k, count in enumerate(records)]


def known() -> Watch:
    watch = Watch(least_s=1.0)
    watch.measured("cpu", "assignment", rows=10**6, seconds=0.001)
    return watch


def test_who_gives_a_sign_is_never_late() -> None:
    assert not any(looks(known(), owed(), list(range(40))))
    assert looks(known(), owed(), [7] * 5) == [False, False, False, True, False]


def test_time_that_nobody_looked_at_does_not_count() -> None:
    """The machine slept for an hour, or this process was stopped."""
    watch = known()
    assert watch.late([(owed(), 7)], 0.0) is None
    assert watch.late([(owed(), 7)], 3600.0) is None


def test_another_order_begins_another_silence() -> None:
    watch = known()
    for number in range(20):
        assert watch.late([(owed(serial=number // 2), 7)], 0.6 * number) is None


def test_of_several_the_one_that_the_others_wait_for_is_late() -> None:
    watch = known()
    for number in range(3):
        found = watch.late([(owed(0, waits=True), 7), (owed(1), 9)], 0.9 * number)
    assert found is not None
    assert found[0].index == 1
    assert watch.late([(owed(0), 7)], 2.8) is None, "the one that waited starts afresh"
