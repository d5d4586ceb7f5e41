"""Ratios that keep the project honest: each figure beside what bounds it, interleaved in one run. See run.py."""
