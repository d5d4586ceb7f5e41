"""Sweep, search, validation, reproduction, reports and the command line: where the engines meet.

May import everything else in ``hetsgd``. The only folder that plots or builds data frames; heavy libraries
are imported inside functions, so that the command line starts at once.
"""
