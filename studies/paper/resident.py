"""The paper's TensorFlow baseline as a policy: a model that stays on the GPU, trained on one large batch after another.

The paper says no more of it than that it trains the same network on the GPU. Assumed: rows are fed from pageable
memory before each step, nothing overlaps, and the model comes back to the host only to be evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hetsgd.models.keys import check_keys, key
from hetsgd.models.policy import Fleet, Kind, LaneMode, Merge, Result, Schedule, View, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """Minibatch SGD on a replica that stays on the accelerator until the run drains."""

    kinds: ClassVar[tuple[Kind, ...]] = ("accelerator",)
    lane_modes: ClassVar[tuple[LaneMode, ...]] = ("barrier",)
    max_lookahead: ClassVar[int] = 0
    reads_losses: ClassVar[bool] = False

    accelerator_batch: int = key(8192, "rows per step", low=1)

    def __post_init__(self) -> None:
        check_keys(self)

    def begin(self, fleet: Fleet) -> Schedule:
        """A schedule that has handed nothing in."""
        return _Steps(Work(batch=self.accelerator_batch, rate=fleet.learning_rate, read="own", write="keep",
                           reason="fixed batch"))  # fmt: skip


class _Steps:
    """The replica of the last result is the model; those before it have grown into it."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._last: dict[str, int] = {}

    def next(self, view: View, worker: str) -> Work:
        """The same work, again."""
        return self._work

    def on_result(self, view: View, result: Result) -> Sequence[Merge]:
        """The replica stays where it is; what it was before is not kept."""
        before = self._last.get(result.seat.worker)
        self._last[result.seat.worker] = result.id
        if before is None or before not in view.held:
            return ()
        return (Merge(inputs=(before,), rule="discard", reason="its replica has gone on"),)

    def on_drained(self, view: View, why: str) -> Sequence[Merge]:
        """The replica becomes the model that is evaluated, and goes on from there."""
        return tuple(
            Merge(inputs=(id_,), rule="overwrite", reason=f"drain ({why})")
            for id_ in self._last.values()
            if id_ in view.held
        )
