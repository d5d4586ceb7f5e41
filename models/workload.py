"""A workload: a network, its loss and the shape of its data. What a step costs follows from it.

Parameters live in one flat vector: for each layer its weights (inputs x outputs, row-major), then its bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from hetsgd.models.edge import shown_value

Activation = Literal["sigmoid", "relu", "tanh"]
LossName = Literal["softmax", "sigmoid"]
Precision = Literal["float32", "float64"]
Initial = Literal["normal", "scaled", "centred"]

MOST_LAYERS: Final = 1000
MOST_WIDTH: Final = 10**8
MOST_ROWS: Final = 10**12
MOST_SCALE: Final = 1e6
ITEM_BYTES: dict[Precision, int] = {"float32": 4, "float64": 8}
COLUMN_BYTES = 4
START_BYTES = 8
SPARSE_DENSITY = 0.03
"""Up to here a first layer without its zeros is faster at every batch: measured for 20,958 x 512, batches 1 to 256."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One fully connected layer; offsets are positions in the flat parameter vector (bias_offset -1: none)."""

    inputs: int
    outputs: int
    weight_offset: int
    bias_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator of a network with what follows it element by element; figures of one row.

    `flops` of the forward pass and `backward_flops` of the backward pass, the number of `parameters` that it reads
    (those that an operator before it has read are not counted again), and of numbers that it puts out.
    """

    name: str
    flops: float
    backward_flops: float
    parameters: int
    outputs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A fully connected network on a data set.

    `features` -> `hidden` layers with `activation` -> `outputs`. `loss`: `softmax` cross-entropy over classes, or
    `sigmoid` cross-entropy summed over labels (multi-label); both are means over rows. `rows` are training rows,
    `test_rows` those held out. `initial`: `normal` draws every weight from N(0, initial_scale^2), `scaled` from
    N(0, (initial_scale^2) 2 / (inputs + outputs)), `centred` does the same and then lets the weights into each unit
    of a layer after the first sum to 0, so that the positive mean of sigmoid units does not shift the next layer;
    biases start at 0. `density`: share of non-zero features. `sparse`: the features are kept as CSR.
    """

    name: str
    dataset: str
    rows: int
    test_rows: int
    features: int
    outputs: int
    hidden: tuple[int, ...]
    activation: Activation = "sigmoid"
    bias: bool = True
    loss: LossName = "softmax"
    precision: Precision = "float32"
    initial: Initial = "scaled"
    initial_scale: float = 1.0
    density: float = 1.0
    sparse: bool = False
    description: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        for name, least, most in (
            ("rows", 1, MOST_ROWS), ("test_rows", 0, MOST_ROWS), ("features", 1, MOST_WIDTH), ("outputs", 1, MOST_WIDTH)
        ):  # fmt: skip
            if not least <= (value := getattr(self, name)) <= most:
                raise ValueError(f"workload.{name} must be in {least}..{most}, got {shown_value(value)}")
        if len(self.hidden) > MOST_LAYERS or max(self.hidden, default=0) > MOST_WIDTH:
            raise ValueError(
                f"workload.hidden: at most {MOST_LAYERS} layers of at most {MOST_WIDTH} units, got "
                f"{len(self.hidden)} layers, the widest of {shown_value(max(self.hidden, default=0))}"
            )
        if any(width < 1 for width in self.hidden):
            raise ValueError(f"workload.hidden: every width must be >= 1, got {self.hidden}")
        if self.loss == "softmax" and self.outputs < 2:
            raise ValueError(f"workload.outputs must be >= 2 for a softmax loss, got {self.outputs}")
        if not 0.0 < self.density <= 1.0:
            raise ValueError(f"workload.density must be in (0, 1], got {self.density}")
        if not 0.0 < self.initial_scale <= MOST_SCALE:
            raise ValueError(f"workload.initial_scale must be > 0 and at most {MOST_SCALE:g}, got {self.initial_scale}")
        for name, allowed in (
            ("activation", ("sigmoid", "relu", "tanh")),
            ("loss", ("softmax", "sigmoid")),
            ("precision", ("float32", "float64")),
            ("initial", ("normal", "scaled", "centred")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"workload.{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths from the features to the outputs."""
        return (self.features, *self.hidden, self.outputs)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers with their places in the flat parameter vector."""
        layers, offset = [], 0
        for inputs, outputs in pairwise(self.widths):
            weights = offset
            offset += inputs * outputs
            bias = offset if self.bias else -1
            offset += outputs if self.bias else 0
            layers.append(Layer(inputs, outputs, weights, bias))
        return tuple(layers)

    @property
    def fully_connected(self) -> bool:
        """Whether this is a network of fully connected layers, which has measured step times and fused steps."""
        return True

    @property
    def operators(self) -> tuple[Operator, ...]:
        """What a step consists of: one operator for each layer. No error goes back to the features.

        >>> w = Workload(name="w", dataset="d", rows=1, test_rows=0, features=3, outputs=2, hidden=(4,))
        >>> sum(item.flops + item.backward_flops for item in w.operators) == w.step_flops(1)
        True
        """
        return tuple(
            Operator(
                name=f"layer {number} ({inputs}x{outputs})", flops=2.0 * inputs * outputs,
                backward_flops=(2.0 if number == 1 else 4.0) * inputs * outputs,
                parameters=inputs * outputs + (outputs if self.bias else 0), outputs=outputs,
            )
            for number, (inputs, outputs) in enumerate(pairwise(self.widths), 1)
        )  # fmt: skip

    @property
    def parameters(self) -> int:
        """Number of parameters P.

        >>> Workload(name="w", dataset="d", rows=1, test_rows=0, features=3, outputs=2, hidden=(4,)).parameters
        26
        """
        return sum(a * b + (b if self.bias else 0) for a, b in pairwise(self.widths))

    @property
    def item_bytes(self) -> int:
        """Bytes of one number at this precision."""
        return ITEM_BYTES[self.precision]

    @property
    def model_bytes(self) -> int:
        """Bytes of the parameter vector."""
        return self.parameters * self.item_bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of one row as it is moved: features and label."""
        return self.features * self.item_bytes + (8 if self.loss == "softmax" else self.outputs * self.item_bytes)

    @property
    def stored_row_bytes(self) -> int:
        """Bytes of one row as host memory keeps it: as CSR, value and column of each feature that is not zero.

        >>> shape = {"rows": 1, "test_rows": 0, "features": 1000, "outputs": 2, "hidden": (), "density": 0.01}
        >>> Workload(name="w", dataset="d", **shape).stored_row_bytes
        4008
        >>> Workload(name="w", dataset="d", sparse=True, **shape).stored_row_bytes  # ten values, start, label
        96
        """
        if not self.sparse:
            return self.row_bytes
        values = round(self.density * self.features * (self.item_bytes + COLUMN_BYTES)) + START_BYTES
        return values + self.row_bytes - self.features * self.item_bytes

    @property
    def multiplies_sparse(self) -> bool:
        """Whether a core leaves the zeros out of the first layer: of CSR features of which few are not zero."""
        return self.sparse and self.density <= SPARSE_DENSITY

    def step_flops(self, batch: int) -> float:
        """Floating-point operations of one gradient step: forward 2 B P, backward 4 B P (first layer: 2 B P less).

        The gradient with respect to the features is not computed.
        """
        weights = sum(a * b for a, b in pairwise(self.widths))
        return batch * (6.0 * weights - 2.0 * self.widths[0] * self.widths[1])

    def forward_flops(self, batch: int) -> float:
        """Floating-point operations of one forward pass."""
        return 2.0 * batch * sum(a * b for a, b in pairwise(self.widths))
