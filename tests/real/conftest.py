"""Fixtures of real runs."""

from tests.real.small_runs import bench as bench
from tests.real.small_runs import watchdog as watchdog
