"""Gradients of lane steps: computed together where they are of the same model, kept as factors where that is small.

P parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from hetsgd.models.footprint import CapacityError
from hetsgd.real.gradient_norms import squared_norms
from hetsgd.real.network import Network, subtract
from hetsgd.real.parts import Part
from hetsgd.real.rows import EpochRows, Span
from hetsgd.real.sparse_batch import SparseBatch
from hetsgd.real.workspace import Workspace


class Piece:
    """One lane step: its rows, and, once computed, its gradient (`ready`)."""

    __slots__ = ("factors", "gradient_P", "low", "rows", "span")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.rows = span[2] - span[1]
        self.factors: Factors | None = None
        self.low = 0
        self.gradient_P: Tensor | None = None

    @property
    def ready(self) -> bool:
        """Whether the gradient has been computed and not been released."""
        return self.factors is not None or self.gradient_P is not None


Write = tuple[Piece, float, int, float]
"""A piece, its rate, the rows its mean is over, and the factor of the model before it."""


class Factors:
    """A filled workspace that several pieces share: piece by piece rows [low, low + rows)."""

    __slots__ = ("users", "workspace")

    def __init__(self, workspace: Workspace, users: int) -> None:
        self.workspace = workspace
        self.users = users


class GradientPieces:
    """Computes pieces and adds them to vectors; owns the memory of both. `vector` and `give` recycle vectors.

    All of it together keeps to `most_bytes`: CapacityError where a run needs more at once.
    """

    def __init__(self, network: Network, part: Part, rows: EpochRows, *, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.held_bytes = 0
        """Bytes of all vectors and workspaces, those that wait to be used again included."""
        self._network = network
        self._part = part
        self._rows = rows
        self._vectors: list[Tensor] = []
        self._workspaces: dict[int, list[Workspace]] = {}

    def vector(self) -> Tensor:
        """A vector (P,) with anything in it."""
        if self._vectors:
            return self._vectors.pop()
        self._hold(self._network.parameters * self._network.dtype.itemsize)
        return self._network.vector()

    def _hold(self, size_bytes: int) -> None:
        """Count what is about to be allocated."""
        if self.held_bytes + size_bytes > self._most_bytes:
            raise CapacityError(
                f"replay: copies of the model and gradients under way may take {self._most_bytes} bytes at once, and "
                f"the run needs more; use fewer lanes, a policy that holds fewer results, or replay with a larger "
                f"most_bytes"
            )
        self.held_bytes += size_bytes

    def _workspace(self, rows: int) -> Workspace:
        """A spare workspace for up to so many rows, or a new one."""
        capacity = 1 << (rows - 1).bit_length()
        spare = self._workspaces.setdefault(capacity, [])
        if spare:
            return spare.pop()
        network = self._network
        widths, replicas = network.workload.widths, network.parameters // network.workload.parameters
        self._hold(replicas * capacity * (widths[0] + 2 * sum(widths[1:])) * network.dtype.itemsize)
        return network.workspace(capacity)

    def give(self, vector_P: Tensor) -> None:
        """Take back a vector that nobody uses any more."""
        self._vectors.append(vector_P)

    def step(self, model_P: Tensor, piece: Piece, rate: float, decay: float) -> None:
        """The piece's gradient at the model as it is, applied to it at once: the same bits as computed and added."""
        x_BF, y = self._part.take(self._rows.at(piece.span))
        self._network.step(model_P, x_BF, y, rate, decay)

    def squared_norms(self, model_P: Tensor, piece: Piece, small: int) -> tuple[float, float]:
        """Squared norms of the gradients of a piece and of its first `small` rows at the model as it is."""
        x_BF, y = self._part.take(self._rows.at(piece.span))
        out_P = self.vector()
        big_sq, small_sq = squared_norms(self._network, model_P, x_BF, y, small, out_P).tolist()
        self.give(out_P)
        return big_sq, small_sq

    def compute(self, model_P: Tensor, pieces: Sequence[Piece]) -> None:
        """Gradients of all pieces at the model as it is.

        Small ones go through the network together and stay factored; one whose factors would be larger than
        the gradient is computed alone.
        """
        limit = self._network.factor_rows
        together: list[Piece] = []
        rows = 0
        for piece in pieces:
            if piece.rows > limit:
                x_BF, y = self._part.take(self._rows.at(piece.span))
                piece.gradient_P = self.vector()
                self._network.gradient(model_P, x_BF, y, piece.gradient_P)
                continue
            if rows + piece.rows > limit:
                self._factor(model_P, together, rows)
                together, rows = [], 0
            together.append(piece)
            rows += piece.rows
        if together:
            self._factor(model_P, together, rows)

    def write_and_compute(self, model_P: Tensor, write: Write, pieces: Sequence[Piece]) -> bool:
        """`subtract` of a factored piece from the model, then `compute`, in one pass; False where that cannot be."""
        written, rate, mean_rows, beta = write
        rows = sum(piece.rows for piece in pieces)
        if written.factors is None or rows > self._network.factor_rows or not self._network.fuses:
            return False
        low = written.low
        before = (written.factors.workspace, low, low + written.rows, -rate / mean_rows, beta)
        self._fill(model_P, pieces, rows, before)
        return True

    def _factor(self, model_P: Tensor, pieces: list[Piece], rows: int) -> None:
        self._fill(model_P, pieces, rows, None)

    def _fill(
        self, model_P: Tensor, pieces: Sequence[Piece], rows: int,
        before: tuple[Workspace, int, int, float, float] | None,
    ) -> None:  # fmt: skip
        """Factors of the pieces, after the write `before` where there is one."""
        workspace = self._workspace(rows)
        where = self._rows.at_all([piece.span for piece in pieces])
        x = self._part.features.put(where, workspace.views(0, rows).x_BF)
        workspace.sparse = x if isinstance(x, SparseBatch) else None
        y = self._part.targets(where)
        if before is None:
            self._network.factors(model_P, y, workspace, rows)
        else:
            self._network.accumulate_and_factors(model_P, *before, y, workspace, rows)
        factors, low = Factors(workspace, len(pieces)), 0
        for piece in pieces:
            piece.factors, piece.low = factors, low
            low += piece.rows

    def subtract(self, target_P: Tensor, piece: Piece, rate: float, mean_rows: int, beta: float) -> None:
        """target = beta target - rate (rows / mean_rows) gradient, for a piece that is part of a mean."""
        if piece.factors is not None:
            low, high = piece.low, piece.low + piece.rows
            workspace = piece.factors.workspace
            self._network.accumulate(target_P, workspace, low, high, -rate / mean_rows, beta)
        elif piece.gradient_P is not None:
            subtract(target_P, piece.gradient_P, rate * (piece.rows / mean_rows), beta)

    def subtract_run(self, target_P: Tensor, pieces: Sequence[Piece], rate: float, mean_rows: int) -> None:
        """`subtract` of factored pieces that lie side by side in one workspace, in one go."""
        factors, low, last = pieces[0].factors, pieces[0].low, pieces[-1]
        if factors is not None:
            high = last.low + last.rows
            self._network.accumulate(target_P, factors.workspace, low, high, -rate / mean_rows, 1.0)

    def mean(self, pieces: Sequence[Piece], out_P: Tensor) -> None:
        """Write the mean gradient over the rows of all pieces."""
        rows, beta = sum(piece.rows for piece in pieces), 0.0
        for piece in pieces:
            if beta == 0.0 and piece.gradient_P is not None:
                out_P.zero_()
                beta = 1.0
            self.subtract(out_P, piece, -1.0, rows, beta)
            beta = 1.0

    def release(self, piece: Piece) -> None:
        """The piece's gradient is not needed any more."""
        if piece.factors is not None:
            factors, piece.factors = piece.factors, None
            factors.users -= 1
            if not factors.users:
                self._workspaces[factors.workspace.rows].append(factors.workspace)
        elif piece.gradient_P is not None:
            self.give(piece.gradient_P)
            piece.gradient_P = None
