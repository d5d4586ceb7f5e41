"""The torch engine: CPU lanes and accelerators, calibration, tracing of modules, and the replay learner.

May import ``hetsgd.models``, torch and numpy; nothing from ``hetsgd.sim`` or ``hetsgd.studies``. The only
folder that imports torch. ``train`` and ``Trained`` are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetsgd.real.engine import Trained, train

__all__ = ["Trained", "train"]


def __getattr__(name: str) -> object:
    """Load a public name on first use and remember it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module("hetsgd.real.engine"), name)
    globals()[name] = value
    return value
