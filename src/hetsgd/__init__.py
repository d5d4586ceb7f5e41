"""A laboratory for heterogeneous CPU+GPU stochastic gradient descent.

The public names live in ``hetsgd.models``, ``hetsgd.sim``, ``hetsgd.real`` and ``hetsgd.studies``. The
names a script or notebook needs most are offered here as well and loaded on first use (PEP 562), so that
``import hetsgd`` stays instant and a timing-only simulation never loads torch or the plotting libraries.

>>> import hetsgd
>>> hetsgd.__version__
'0.1.0'
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

__version__: Final = "0.1.0"

# Public name -> module that defines it. Type checkers do not follow this table: annotate with the name
# imported from its own module.
_HOME: Final[dict[str, str]] = {}


def __getattr__(name: str) -> object:
    """Load a public name from its module on first use and remember it."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'hetsgd' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the lazy names beside those already loaded, so that completion in a notebook shows them."""
    return sorted({*globals(), *_HOME})
