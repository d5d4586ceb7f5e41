"""What a surrogate's state is, and how one local step changes it.

A copy of the model (global, replica, snapshot) is a small vector (D,). States are never changed in place, so a
snapshot is a reference, and every merge rule of `hetsgd.models.merging` acts on states as it does on parameters.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class Dynamics(Protocol):
    """How the state moves. `read`: the state that the gradient belongs to; `rows`: of its batch."""

    @property
    def initial(self) -> Vector:
        """The state of the initial model (D,)."""
        ...

    def step(self, state: Vector, read: Vector, rate: float, rows: int) -> Vector:
        """A new vector: `state` after a step of learning rate `rate` with a gradient that was computed at `read`."""
        ...

    def gradient(self, read: Vector, rows: int) -> Vector:
        """The gradient itself (D,), for merges that remember it; ValueError where the model has none."""
        ...
