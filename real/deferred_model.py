"""One copy of the parameters in virtual time, whose reads and writes are carried out as late as possible.

Reads of the same state are computed together, and writes between two reads enter the memory together; what each
read sees and what each write does is exactly as if both had happened at once. P parameters.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from hetsgd.real.gradient_pieces import GradientPieces, Piece, Write


class DeferredModel:
    """Parameters with reads that wait (pieces of the state as it is) and writes that come before those reads.

    `users` counts who holds the copy (worker, snapshot readers); the learner recycles it at 0. `version` counts
    changes of the state.
    """

    __slots__ = ("_array", "_pieces", "_reads", "_writes", "flat_P", "users", "version")

    def __init__(self, flat_P: Tensor, pieces: GradientPieces) -> None:
        self.flat_P = flat_P
        self.users = 1
        self.version = 0
        self._pieces = pieces
        self._reads: list[Piece] = []
        self._writes: list[Write] = []
        self._array: NDArray[Any] = flat_P.numpy()

    @property
    def array(self) -> NDArray[Any]:
        """The parameters (P,) for reading, the same array until `take_over`."""
        self.land()
        return self._array

    def read(self, piece: Piece) -> None:
        """The piece's gradient is that of the state as it is now."""
        self._reads.append(piece)

    def forget(self, piece: Piece) -> None:
        """A piece that was read here is not wanted any more."""
        if piece in self._reads:
            self._reads.remove(piece)

    def step(self, piece: Piece, rate: float, decay: float) -> None:
        """A local step with a piece that was read here: w = (1 - rate decay) w - rate gradient."""
        self.version += 1
        if len(self._reads) == 1 and self._reads[0] is piece:
            self.land()
            self._reads.clear()
            self._pieces.step(self.flat_P, piece, rate, decay)
            return
        self.settle()
        self._writes.append((piece, rate, piece.rows, 1.0 - rate * decay))

    def subtract(self, piece: Piece, rate: float, mean_rows: int, beta: float) -> None:
        """w = beta w - rate (rows / mean_rows) gradient of a piece that is ready."""
        self.version += 1
        self.settle()
        self._writes.append((piece, rate, mean_rows, beta))

    def writable(self) -> NDArray[Any]:
        """The parameters (P,) for changing them in place: reads before are computed, writes before are in."""
        self.settle()
        self.version += 1
        return self.array

    def replace(self, source: DeferredModel) -> None:
        """Become what `source` is."""
        source.land()
        self.settle()
        self.abandon()
        self.version += 1
        self.flat_P.copy_(source.flat_P)

    def take_over(self, source: DeferredModel) -> None:
        """Become what `source` is, which nobody looks at any more: without a copy where nobody else does either."""
        if source.users > 1 or source._reads:
            self.replace(source)
            return
        source.land()
        self.settle()
        self.abandon()
        self.version += 1
        self.flat_P, source.flat_P = source.flat_P, self.flat_P
        self._array, source._array = source._array, self._array

    def abandon(self) -> None:
        """Let go of the writes that wait: nobody will read them."""
        for piece, *_ in self._writes:
            self._pieces.release(piece)
        self._writes.clear()

    def settle(self) -> None:
        """Compute the reads that wait."""
        if not self._reads:
            return
        reads, self._reads = self._reads, []
        if len(self._writes) == 1 and self._pieces.write_and_compute(self.flat_P, self._writes[0], reads):
            self._pieces.release(self._writes.pop()[0])
            return
        self.land()
        self._pieces.compute(self.flat_P, reads)

    def land(self) -> None:
        """Let the writes that wait enter the memory: `flat_P` is the state as it is now.

        Without decay they are sums, so those side by side in one workspace enter as one product.
        """
        if not self._writes:
            return
        writes, self._writes = self._writes, []
        if len(writes) > 1 and all(beta == 1.0 for _, _, _, beta in writes):
            self._land_together(writes)
        else:
            for piece, rate, mean_rows, beta in writes:
                self._pieces.subtract(self.flat_P, piece, rate, mean_rows, beta)
        for piece, *_ in writes:
            self._pieces.release(piece)

    def _land_together(self, writes: list[Write]) -> None:
        groups: dict[tuple[int, float, int], list[Piece]] = {}
        for piece, rate, mean_rows, beta in writes:
            if piece.factors is None:
                self._pieces.subtract(self.flat_P, piece, rate, mean_rows, beta)
            else:
                groups.setdefault((id(piece.factors), rate, mean_rows), []).append(piece)
        for (_, rate, mean_rows), pieces in groups.items():
            pieces.sort(key=_low)
            run = pieces[:1]
            for piece in pieces[1:]:
                if piece.low != run[-1].low + run[-1].rows:
                    self._pieces.subtract_run(self.flat_P, run, rate, mean_rows)
                    run = []
                run.append(piece)
            self._pieces.subtract_run(self.flat_P, run, rate, mean_rows)


def _low(piece: Piece) -> int:
    return piece.low
