"""The SimPy engine: workers, memory and links of a machine as processes and resources in virtual time.

May import ``hetsgd.models``, simpy and numpy; nothing from ``hetsgd.real`` or ``hetsgd.studies``. The only
folder that imports simpy. ``simulate`` and ``Injected`` are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetsgd.sim.engine import simulate as simulate
    from hetsgd.sim.faults import Injected as Injected

_HOME = {"simulate": "hetsgd.sim.engine", "Injected": "hetsgd.sim.faults"}


def __getattr__(name: str) -> object:
    """Load a public name from its module on first use."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
