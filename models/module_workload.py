"""A workload whose network is any module, described by the operators that tracing it has found.

What computes it is packed: only the engine that trains or replays it opens that. The simulator needs the operators.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from hetsgd.models.workload import Layer, Operator, Workload


class Packed:
    """Bytes that travel with a value; as text, and where values are compared, they are their SHA-256.

    >>> print(Packed(b"anything"))
    sha256:ee0874170b7f6f32b8c2ac9573c428d35b575270a66b757c2c0185d2bd09718d
    """

    __slots__ = ("_text", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._text = f"sha256:{hashlib.sha256(data).hexdigest()}"

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Packed({len(self.data)} bytes, {self._text})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packed) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleWorkload(Workload):
    """A module on a data set. `traced`: its operators; `module` and `start`: the packed module and first parameters.

    `hidden`, `activation`, `bias` and `initial` do not describe it. Every seed begins with the same parameters: those
    that the module had. `loss` says what the labels are (`softmax`: one class, `sigmoid`: 0 and 1 for each label).
    """

    hidden: tuple[int, ...] = ()
    traced: tuple[Operator, ...]
    module: Packed = field(repr=False)
    start: Packed = field(repr=False)

    def __post_init__(self) -> None:
        Workload.__post_init__(self)
        if not self.traced:
            raise ValueError(f"workload {self.name}: the module must have operators, traced none")
        if self.sparse:
            raise ValueError(f"workload {self.name}: a module takes dense features, the data set keeps them sparse")
        if len(self.start.data) != self.parameters * self.item_bytes:
            raise ValueError(
                f"workload {self.name}: start must hold {self.parameters} numbers of {self.item_bytes} bytes, "
                f"got {len(self.start.data)} bytes"
            )

    @property
    def fully_connected(self) -> bool:
        """See Workload."""
        return False

    @property
    def operators(self) -> tuple[Operator, ...]:
        """See Workload."""
        return self.traced

    @property
    def widths(self) -> tuple[int, ...]:
        """Features of a row, then what each operator puts out for it."""
        return (self.features, *(operator.outputs for operator in self.traced))

    @property
    def layers(self) -> tuple[Layer, ...]:
        """None: where its parameters lie, only the module knows."""
        return ()

    @property
    def parameters(self) -> int:
        """Number of parameters P."""
        return sum(operator.parameters for operator in self.traced)

    def step_flops(self, batch: int) -> float:
        """Floating-point operations of one gradient step: forward and backward of all operators."""
        return batch * sum(operator.flops + operator.backward_flops for operator in self.traced)

    def forward_flops(self, batch: int) -> float:
        """Floating-point operations of one forward pass."""
        return batch * sum(operator.flops for operator in self.traced)
