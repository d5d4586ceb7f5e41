"""The merge rules of `policy.Merge` on flat parameter vectors, in place: what both engines do when a merge lands.

Vectors have P entries. Work is done in blocks that fit a core's cache, so that a rule passes over memory once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.policy import Merge

Vector = NDArray[Any]

_BLOCK: Final = 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One input of a merge; only what its rule needs has to be there.

    `gradient`: g, mean over the rows. `replica`: r; the elastic rule moves it. `start`: s, what the replica was
    when it was read. `read`: w_read, the global model when the input was read.
    """

    gradient: Vector | None = None
    replica: Vector | None = None
    start: Vector | None = None
    read: Vector | None = None


class MergeState:
    """What merges remember of one another: the velocity of gradients and the model before the last elastic merge.

    Only merges with momentum remember: one without forgets the velocity (centre), and the next with momentum
    starts from none. A gradient merge is an update of the model's own, so `weight_decay` applies to it:
    w = (1 - rate weight_decay) w - rate v. The other rules merge replicas whose local steps have decayed already.
    """

    def __init__(self, *, weight_decay: float = 0.0) -> None:
        self.weight_decay = weight_decay
        self._velocity: Vector | None = None
        self._centre: Vector | None = None
        self._scratch: tuple[Vector, ...] = ()

    @property
    def has_velocity(self) -> bool:
        """Whether the next gradient merge with momentum continues one before it."""
        return self._velocity is not None

    def forget_velocity(self) -> None:
        """A gradient merge without momentum was done elsewhere."""
        self._velocity = None

    def apply(
        self, merge: Merge, model: Vector, inputs: Sequence[Input], replicas: Mapping[str, Vector] | None = None
    ) -> None:
        """Change `model` in place by the merge; `inputs` in the merge's order.

        `replicas` are the workers' own, written back to where the merge says so; None leaves that to the caller.
        An update that overflows leaves inf or nan in the model without a warning. Raises ValueError when an input
        lacks what the rule needs, KeyError when `write_back` names a worker that `replicas` lacks.
        """
        if len(inputs) != len(merge.inputs):
            raise ValueError(f"merge {merge.id}: {len(merge.inputs)} inputs are named, got {len(inputs)}")
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            if merge.rule == "gradient":
                self._gradient(merge, model, inputs)
            elif merge.rule == "overwrite":
                np.copyto(model, _given(inputs[-1].replica, "replica", merge))
            elif merge.rule == "delta":
                self._delta(merge, model, inputs)
            elif merge.rule == "average":
                self._average(merge, model, inputs)
            elif merge.rule == "elastic":
                self._elastic(merge, model, inputs)
        if replicas is not None:
            for name in merge.write_back:
                np.copyto(replicas[name], model)

    def _blocks(self, model: Vector) -> Iterator[tuple[slice, Vector, Vector, Vector]]:
        """Slices of the vector with three scratch blocks of the same length."""
        if not self._scratch or self._scratch[0].dtype != model.dtype:
            self._scratch = tuple(np.empty(_BLOCK, model.dtype) for _ in range(3))
        one, two, three = self._scratch
        for low in range(0, model.size, _BLOCK):
            size = min(_BLOCK, model.size - low)
            yield slice(low, low + size), one[:size], two[:size], three[:size]

    def _gradient(self, merge: Merge, model: Vector, inputs: Sequence[Input]) -> None:
        """v = momentum v + sum weights_i (g_i + compensate g_i g_i (w - w_read_i)), w -= rate v.

        Delay compensation: Zheng et al. 2017, arXiv:1609.08326, the squared gradient in place of the Hessian.
        """
        gradients = [_given(item.gradient, "gradient", merge) for item in inputs]
        reads = [_given(item.read, "read", merge) for item in inputs] if merge.compensate else []
        if not merge.momentum:
            self._velocity = None
        elif self._velocity is None:
            self._velocity = np.zeros_like(model)
        keep = 1.0 - merge.rate * self.weight_decay
        for part, total, term, gap in self._blocks(model):
            w = model[part]
            if self._velocity is None:
                total.fill(0.0)
            else:
                total = self._velocity[part]  # the sum is collected where it is kept
                total *= merge.momentum
            for k, (gradient, weight) in enumerate(zip(gradients, merge.weights, strict=True)):
                if merge.compensate:
                    np.subtract(w, reads[k][part], out=gap)
                    np.multiply(gradient[part], gradient[part], out=term)
                    term *= gap
                    term *= merge.compensate
                    term += gradient[part]
                    term *= weight
                else:
                    np.multiply(gradient[part], weight, out=term)
                total += term
            if keep != 1.0:
                w *= keep
            np.multiply(total, merge.rate, out=term)
            w -= term

    def _delta(self, merge: Merge, model: Vector, inputs: Sequence[Input]) -> None:
        """w += rate sum weights_i (r_i - s_i)."""
        pairs = [(_given(item.replica, "replica", merge), _given(item.start, "start", merge)) for item in inputs]
        for part, total, term, _ in self._blocks(model):
            total.fill(0.0)
            for (replica, start), weight in zip(pairs, merge.weights, strict=True):
                np.subtract(replica[part], start[part], out=term)
                term *= weight
                total += term
            total *= merge.rate
            model[part] += total

    def _average(self, merge: Merge, model: Vector, inputs: Sequence[Input]) -> None:
        """w = (1 - sum weights_i) w + sum weights_i r_i."""
        replicas = [_given(item.replica, "replica", merge) for item in inputs]
        own = 1.0 - sum(merge.weights)
        for part, total, term, _ in self._blocks(model):
            if own:
                np.multiply(model[part], own, out=total)
            else:
                total.fill(0.0)
            for replica, weight in zip(replicas, merge.weights, strict=True):
                np.multiply(replica[part], weight, out=term)
                total += term
            model[part] = total

    def _elastic(self, merge: Merge, model: Vector, inputs: Sequence[Input]) -> None:
        """e_i = rate (r_i - w), r_i -= e_i, w += sum weights_i e_i + momentum (w - w before the last such merge).

        All differences are taken before anything moves; `at_read`: between the replica and the model as they were
        read. A replica that stands behind several inputs moves once. Elastic averaging: Zhang, Choromanska and
        LeCun 2015, arXiv:1412.6651; at_read with momentum: Koliousis et al. 2019 (Crossbow).
        """
        replicas = [_given(item.replica, "replica", merge) for item in inputs]
        if merge.at_read:
            gaps = [(_given(item.start, "start", merge), _given(item.read, "read", merge)) for item in inputs]
        else:
            gaps = [(replica, model) for replica in replicas]
        last = {id(replica): k for k, replica in enumerate(replicas)}
        centre, self._centre = self._centre, model.copy() if merge.momentum else None
        for part, total, pull, _ in self._blocks(model):
            total.fill(0.0)
            moves = []
            for k, (replica, (high, low)) in enumerate(zip(replicas, gaps, strict=True)):
                np.subtract(high[part], low[part], out=pull)
                pull *= merge.rate
                if last[id(replica)] == k:
                    moves.append((replica[part], pull.copy()))
                pull *= merge.weights[k]
                total += pull
            if centre is not None:
                np.subtract(model[part], centre[part], out=pull)
                pull *= merge.momentum
                total += pull
            for piece, move in moves:
                piece -= move  # a view: this moves the replica
            model[part] += total


def _given(vector: Vector | None, name: str, merge: Merge) -> Vector:
    if vector is None:
        raise ValueError(f"merge {merge.id}: rule {merge.rule!r} needs the {name} of every input, got one without")
    return vector
