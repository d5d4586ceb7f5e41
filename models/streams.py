"""Random streams keyed by what they are for, and the row order of each epoch.

A stream depends on the seed and on names only, never on how many others were drawn before it: two policies under
one seed meet the same noise and the same data order (common random numbers).
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.run import Order


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The random stream of the entity called `names` under `seed` (>= 0).

    >>> stream(1, "noise", "cpu").integers(100) == stream(1, "noise", "cpu").integers(100)
    np.True_
    """
    key = [zlib.crc32(name.encode()) if isinstance(name, str) else name for name in names]
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def row_order(seed: int, epoch: int, rows: int, order: Order) -> NDArray[np.int64] | None:
    """Row indices (rows,) of one epoch, position by position; None means file order (position = row)."""
    if order == "file":
        return None
    return stream(seed, "order", epoch).permutation(rows).astype(np.int64)
