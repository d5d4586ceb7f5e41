"""The torch engine: CPU lanes and accelerators, calibration, tracing of modules, and the replay learner.

May import ``hetsgd.models``, torch and numpy; nothing from ``hetsgd.sim`` or ``hetsgd.studies``. The only
folder that imports torch. ``train``, ``Trained`` and ``warm_start`` are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hetsgd.real.engine import Trained, train
    from hetsgd.real.launch import warm_start

__all__ = ["Trained", "train", "warm_start"]

_HOME: Final = {
    "Trained": "hetsgd.real.engine",
    "train": "hetsgd.real.engine",
    "warm_start": "hetsgd.real.launch",
}


def __getattr__(name: str) -> object:
    """Load a public name on first use and remember it."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value
