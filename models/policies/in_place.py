"""A schedule without state: every worker always gets its class's work, which it writes in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hetsgd.models.policies.shared_keys import kind_of
from hetsgd.models.policy import Fleet, Kind, Merge, Result, View, Work


class FixedWork:
    """Gives each worker the work of its class, whenever it asks."""

    def __init__(self, fleet: Fleet, works: Mapping[Kind, Work]) -> None:
        self._works = {name: works[kind] for name, kind in kind_of(fleet).items()}

    def next(self, view: View, worker: str) -> Work:
        """The work of the worker's class."""
        return self._works[worker]

    def on_result(self, view: View, result: Result) -> Sequence[Merge]:
        """In-place work is in the model when it comes in: nothing is left to do."""
        return ()
