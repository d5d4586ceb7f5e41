"""Fixtures of runs on both engines."""

from tests.real.small_runs import bench as bench
from tests.real.small_runs import watchdog as watchdog
