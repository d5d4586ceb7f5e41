"""Fair sharing of a capacity, against closed forms and its own laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsgd.sim.clock import Clock
from hetsgd.sim.fluid import Shared, Stream, water_fill


class Probe:
    """A job that remembers when it was served."""

    def __init__(self) -> None:
        self.at_s = math.nan

    def served(self, now_s: float) -> None:
        self.at_s = now_s


def test_jobs_below_the_capacity_run_at_their_cap() -> None:
    clock, fast, slow = Clock(), Probe(), Probe()
    shared = Shared(clock, 10.0)
    shared.join(Stream(4.0), 8.0, fast, 0.0)
    shared.join(Stream(2.0), 8.0, slow, 0.0)
    shared.settle()
    clock.run()
    assert (fast.at_s, slow.at_s) == (2.0, 4.0)


def test_a_job_that_is_content_with_less_leaves_the_rest_to_the_others() -> None:
    clock, jobs = Clock(), [Probe() for _ in range(3)]
    shared, greedy = Shared(clock, 10.0), Stream(100.0)
    shared.join(Stream(1.0), 4.0, jobs[0], 0.0)
    shared.join_all(greedy, [18.0, 36.0], jobs[1:], 0.0)
    shared.settle()
    clock.run()
    # 4.5 each until 4 s; then the capacity is that of the two: 18 is reached at 4 s, the last has 10 for itself.
    assert [job.at_s for job in jobs] == pytest.approx([4.0, 4.0, 4.0 + 18.0 / 10.0])


def test_a_job_that_nobody_hinders_ends_as_if_it_were_alone_to_the_last_digit() -> None:
    clock, long, short = Clock(), Probe(), [Probe() for _ in range(20)]
    shared, stream = Shared(clock, 10.0), Stream(3.0)
    shared.join(Stream(0.7), 2.9, long, 0.0)
    shared.settle()
    for number, job in enumerate(short):
        clock.run(until=0.1 + 0.17 * number)
        shared.join(stream, 0.11, job, clock.now)
        shared.settle()
    clock.run()
    assert long.at_s == 2.9 / 0.7
    assert [job.at_s for job in short] == pytest.approx([0.1 + 0.17 * number + 0.11 / 3.0 for number in range(20)])


def test_a_job_that_joins_slows_those_before_it() -> None:
    clock, first, second = Clock(), Probe(), Probe()
    shared, stream = Shared(clock, 10.0), Stream(math.inf)
    shared.join(stream, 20.0, first, 0.0)
    shared.settle()
    clock.run(until=1.0)
    shared.join(stream, 20.0, second, clock.now)
    shared.settle()
    clock.run()
    assert first.at_s == pytest.approx(3.0)
    assert second.at_s == pytest.approx(4.0)


def test_a_job_that_leaves_gives_its_share_back_and_is_not_served() -> None:
    clock, stays, goes = Clock(), Probe(), Probe()
    shared, stream = Shared(clock, 10.0), Stream(math.inf)
    shared.join_all(stream, [20.0, 20.0], [stays, goes], 0.0)
    shared.settle()
    clock.run(until=2.0)
    assert shared.missing(stream, goes) == pytest.approx(10.0)
    shared.leave(stream, goes)
    shared.settle()
    clock.run()
    assert stays.at_s == pytest.approx(3.0)
    assert math.isnan(goes.at_s)


def test_a_new_cap_holds_from_then_on() -> None:
    clock, job = Clock(), Probe()
    shared, stream = Shared(clock, 100.0), Stream(10.0)
    shared.join(stream, 20.0, job, 0.0)
    shared.settle()
    clock.run(until=1.0)
    shared.recap(stream, 5.0)
    shared.settle()
    clock.run()
    assert job.at_s == pytest.approx(3.0)


@given(
    capacity=st.floats(0.1, 1e3),
    demands=st.lists(
        st.tuples(st.floats(0.01, 1e3), st.integers(1, 50), st.sampled_from([0.5, 1.0, 3.0])), min_size=1, max_size=6
    ),
)
def test_water_filling_is_feasible_capped_and_wastes_nothing(
    capacity: float, demands: list[tuple[float, int, float]]
) -> None:
    rates = water_fill(capacity, demands)
    used = sum(rate * count for rate, (_, count, _) in zip(rates, demands, strict=True))
    asked = sum(cap * count for cap, count, _ in demands)
    assert all(0.0 < rate <= cap * (1 + 1e-9) for rate, (cap, _, _) in zip(rates, demands, strict=True))
    assert used == pytest.approx(min(capacity, asked), rel=1e-6)
    # Whoever gets less than its cap gets as much for its weight as anybody.
    shares = [rate / weight for rate, (_, _, weight) in zip(rates, demands, strict=True)]
    held_back = [
        share for rate, share, (cap, _, _) in zip(rates, shares, demands, strict=True) if rate < cap * (1 - 1e-9)
    ]
    assert all(share >= max(shares) * (1 - 1e-6) for share in held_back)


def test_a_heavier_job_has_the_larger_share_until_it_leaves() -> None:
    clock, light, heavy = Clock(), Probe(), Probe()
    shared = Shared(clock, 9.0)
    shared.join(Stream(100.0), 9.0, light, 0.0)
    shared.join(Stream(100.0, 2.0), 6.0, heavy, 0.0)
    shared.settle()
    clock.run()
    # 3 and 6 per second until the heavy one has its 6, then 9 for the light one's last 6.
    assert [heavy.at_s, light.at_s] == pytest.approx([1.0, 1.0 + 6.0 / 9.0])


@given(amounts=st.lists(st.integers(1, 20), min_size=1, max_size=12), cap=st.floats(0.5, 20.0))
def test_all_work_is_done_no_earlier_than_the_capacity_allows(amounts: list[int], cap: float) -> None:
    clock, jobs = Clock(), [Probe() for _ in amounts]
    shared = Shared(clock, 10.0)
    shared.join_all(Stream(cap), [float(amount) for amount in amounts], jobs, 0.0)
    shared.settle()
    clock.run()
    last_s = max(job.at_s for job in jobs)
    assert last_s >= max(sum(amounts) / 10.0, max(amounts) / cap) * (1 - 1e-9)
    assert last_s <= (sum(amounts) / 10.0 + max(amounts) / cap) * (1 + 1e-9)
    order = sorted(range(len(jobs)), key=lambda index: amounts[index])
    assert [jobs[index].at_s for index in order] == sorted(job.at_s for job in jobs)


@given(
    amounts=st.lists(st.floats(0.5, 20.0), min_size=1, max_size=5),
    starts=st.lists(st.floats(0.0, 10.0), min_size=5, max_size=5),
    capacity=st.floats(2.0, 30.0),
)
def test_a_job_that_is_carried_ends_when_one_that_joins_would(
    amounts: list[float], starts: list[float], capacity: float
) -> None:
    ends: list[list[float]] = []
    for carries in (True, False):
        clock, jobs = Clock(), [Probe() for _ in amounts]
        shared = Shared(clock, capacity)
        arrivals = sorted(zip(starts, amounts, jobs, strict=False), key=lambda arrival: arrival[0])
        for number, (start_s, amount, job) in enumerate(arrivals):
            if start_s > clock.now:
                clock.run(until=start_s)
            if carries and number % 2:
                shared.carry(Stream(3.0 + number), amount, job, clock.now)
            else:
                shared.join(Stream(3.0 + number), amount, job, clock.now)
                shared.settle()
        clock.run()
        ends.append([job.at_s for job in jobs])
    assert ends[0] == pytest.approx(ends[1], rel=1e-9)


def test_a_job_that_is_carried_can_leave_and_is_not_served() -> None:
    clock, stays, goes = Clock(), Probe(), Probe()
    shared, stream = Shared(clock, 10.0), Stream(4.0)
    shared.carry(stream, 20.0, goes, 0.0)
    shared.carry(Stream(4.0), 20.0, stays, 0.0)
    clock.run(until=2.0)
    assert shared.missing(stream, goes) == pytest.approx(12.0)
    shared.leave(stream, goes)
    shared.settle()
    clock.run()
    assert stays.at_s == 5.0
    assert math.isnan(goes.at_s)
