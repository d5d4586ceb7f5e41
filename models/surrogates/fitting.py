"""Fit surrogates to pilot runs, and tell how far each is off on pilots it was not fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from scipy.optimize import least_squares, nnls

from hetsgd.models.streams import stream
from hetsgd.models.surrogates.dynamics import Vector
from hetsgd.models.surrogates.learner import SurrogateLearner
from hetsgd.models.surrogates.loss_map import KINDS, Kind, LossMap, ramps
from hetsgd.models.surrogates.one_step import GradientStatistics, OneStep, OneStepModel
from hetsgd.models.surrogates.spectrum import Observed, Spectrum
from hetsgd.models.surrogates.tape import Call, lead

_EXPONENTS: Final = (0.33, 0.4, 0.5, 0.625, 0.75, 1.0)
RELIEFS: Final = (1e9, 0.3, 0.1, 0.03, 0.01)
_KNOTS: Final = 16
_MOST: Final = 1e9
_SMOOTH: Final = 0.02
_TABLE: Final = 8
_DAMPING: Final = 0.05
_SLOPE_STEP: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotCurve:
    """One run of a pilot: the calls of its tape, and the losses (N,) of its evaluations in their order."""

    label: str
    seed: int
    calls: Sequence[Call]
    losses: tuple[float, ...]
    initial: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedMap:
    """A loss map with its residuals, log(predicted / measured), by label of the pilots left out."""

    found: LossMap
    residuals: Mapping[str, Vector]


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedOneStep:
    """As `FittedMap`, for the loss-conditioned model."""

    found: OneStepModel
    residuals: Mapping[str, Vector]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a spectrum says at the evaluations of one run: progress (N,), slow (N, K), heat (N, K), losses (N,)."""

    label: str
    progress: Vector
    slow: Vector
    heat: Vector
    losses: Vector


def rms(residuals: Mapping[str, Vector]) -> float:
    """Root mean square over all pilots, each weighing the same.

    >>> round(rms({"a": np.array([0.3, -0.3]), "b": np.array([0.1])}), 4)
    0.2236
    """
    return float(np.sqrt(np.mean([np.mean(values**2) for values in residuals.values()])))


def seed_spread(curves: Sequence[PilotCurve]) -> float:
    """Rms of log loss of one seed against the mean of the others: the floor. nan without repeated pilots."""
    found = []
    for label in {curve.label for curve in curves}:
        losses = [curve.losses for curve in curves if curve.label == label]
        count = min(map(len, losses))
        table = np.array([values[:count] for values in losses])
        for index in range(len(table)) if len(table) > 1 else ():
            rest = np.delete(table, index, axis=0).mean(axis=0)
            found.append(np.log(table[index] / rest))
    return float(np.sqrt(np.mean(np.concatenate(found) ** 2))) if found else float("nan")


# -- the spectrum's loss maps ----------------------------------------------------------------------------------------


def fit_maps(curves: Sequence[PilotCurve], curvatures: Sequence[float], samples: int) -> dict[Kind, FittedMap]:
    """Fit a loss map of each kind to pilots.

    Relief and exponent are those with the smallest residuals on pilots left out, one label after the other. Weighted
    by 1 / loss, all coefficients >= 0. Raises ValueError with fewer than two different pilots.
    """
    if len({curve.label for curve in curves}) < 2:
        raise ValueError("surrogate fit: at least two different pilots are needed")
    initial = float(np.mean([curve.initial for curve in curves]))
    tried: dict[Kind, list[FittedMap]] = {kind: [] for kind in KINDS}
    for relief in RELIEFS:
        seen = [_observe(curve, curvatures, samples, relief) for curve in curves]
        for kind in KINDS:
            fitted = _fit_kind(kind, seen, initial)
            tried[kind].append(replace(fitted, found=replace(fitted.found, relief=relief)))
    return {kind: min(found, key=lambda item: rms(item.residuals)) for kind, found in tried.items()}


def _observe(curve: PilotCurve, curvatures: Sequence[float], samples: int, relief: float) -> _Seen:
    spectrum = Spectrum(curvatures, samples, stream(curve.seed, "surrogate"), relief=relief)
    kept: list[Observed] = []

    def read(state: Vector) -> tuple[float, float, float]:
        kept.append(spectrum.observe(state))
        return 0.0, 0.0, 0.0

    lead(SurrogateLearner("fit", spectrum, read), curve.calls)
    use = [k for k, loss in enumerate(curve.losses) if np.isfinite(loss) and kept[k].progress > 0.0]
    return _Seen(
        curve.label,
        np.array([kept[k].progress for k in use]),
        np.minimum([kept[k].slow for k in use], _MOST),
        np.minimum([kept[k].heat for k in use], _MOST),
        np.array([curve.losses[k] for k in use]),
    )


def _fit_kind(kind: Kind, seen: Sequence[_Seen], initial: float) -> FittedMap:
    labels = sorted({item.label for item in seen})
    best: FittedMap | None = None
    for exponent in _EXPONENTS:
        residuals = {}
        for label in labels:
            found = _fit_once(kind, [item for item in seen if item.label != label], initial, exponent)
            residuals[label] = np.concatenate([_residuals(found, item) for item in seen if item.label == label])
        if best is None or rms(residuals) < rms(best.residuals):
            best = FittedMap(found=_fit_once(kind, seen, initial, exponent), residuals=residuals)
    if best is None:
        raise ValueError("surrogate fit: no exponent was tried")
    ordered = np.concatenate([best.residuals[label] for label in labels])
    slopes = np.concatenate([_slopes(best.found, item) for label in labels for item in seen if item.label == label])
    loss, progress = _spread(ordered, slopes)
    return replace(best, found=replace(best.found, spread_loss=loss, spread_progress=progress))


def _fit_once(kind: Kind, seen: Sequence[_Seen], initial: float, exponent: float) -> LossMap:
    """Non-negative least squares; `path` with neighbouring falls held alike, which bridges gaps between pilots."""
    losses = np.concatenate([item.losses for item in seen])
    heat = np.concatenate([item.heat for item in seen]) ** exponent
    knots: tuple[float, ...] = ()
    if kind == "path":
        progress = np.concatenate([item.progress for item in seen])
        knots = tuple(np.geomspace(progress.min(), progress.max() * 1.0001, _KNOTS).tolist())
        slow = ramps(progress, knots)
        extra = np.zeros((_KNOTS - 2, slow.shape[1] + heat.shape[1]))
        rows = np.arange(_KNOTS - 2)
        extra[rows, rows], extra[rows, rows + 1] = 1.0, -1.0
        extra *= _SMOOTH * np.sqrt(losses.size)
        wanted = np.zeros(len(extra))
    else:
        slow = np.hstack([np.concatenate([item.slow for item in seen]), np.ones((losses.size, 1))])
        # The initial loss is known, and weighs as much as a curve.
        wanted = np.array([np.sqrt(losses.size / len(seen))])
        extra = np.hstack([np.ones((1, slow.shape[1])), np.zeros((1, heat.shape[1]))]) * wanted / initial
    table = np.vstack([np.hstack([slow, heat]) / losses[:, np.newaxis], extra])
    wanted = np.concatenate([np.ones(losses.size), wanted])
    found, _ = nnls(table, wanted)
    cut = slow.shape[1]
    return LossMap(
        kind=kind, initial=initial, slow=tuple(found[:cut].tolist()), heat=tuple(found[cut:].tolist()),
        exponent=exponent, knots=knots,
    )  # fmt: skip


def _residuals(found: LossMap, item: _Seen) -> Vector:
    predicted = [found.loss(Observed(*row)) for row in zip(item.progress, item.slow, item.heat, strict=True)]
    result: Vector = np.log(np.minimum(predicted, 1e6) / item.losses)
    return result


def _slopes(found: LossMap, item: _Seen) -> Vector:
    """d log loss / d log progress along a run."""
    high, low = np.exp(_SLOPE_STEP), np.exp(-_SLOPE_STEP)
    slopes = []
    for progress, slow, heat in zip(item.progress, item.slow, item.heat, strict=True):
        ahead, behind = (
            found.loss(Observed(progress * factor, slow**factor if found.kind == "quadratic" else slow, heat))
            for factor in (high, low)
        )
        slopes.append(np.log(ahead / behind) / (2.0 * _SLOPE_STEP))
    return np.array(slopes)


def _spread(residuals: Vector, slopes: Vector) -> tuple[float, float]:
    """Standard deviations of log loss and log progress: residual^2 = loss^2 + slope^2 progress^2 in the mean."""
    use = np.isfinite(residuals) & np.isfinite(slopes)
    table = np.stack([np.ones(int(use.sum())), slopes[use] ** 2], axis=1)
    found, _ = nnls(table, residuals[use] ** 2)
    return float(np.sqrt(found[0])), float(np.sqrt(found[1]))


# -- the loss-conditioned model --------------------------------------------------------------------------------------


def fit_one_step(curves: Sequence[PilotCurve], statistics: Sequence[GradientStatistics]) -> FittedOneStep:
    """Tables of what was measured, and two factors fitted to the curves: of the pull, and of bend and heat.

    The factors mend that statistics at one loss differ with the temperature; residuals of a pilot left out follow
    from the fit by one damped Gauss-Newton step.
    """
    initial = float(np.mean([curve.initial for curve in curves]))
    table = _tables(statistics, initial)
    first = {curve.label: curve for curve in reversed(curves)}
    labels = sorted(first)

    def residuals(logs: Vector) -> Vector:
        model = _scaled(table, logs)
        parts = [_one_step_residuals(model, first[label]) / np.sqrt(len(first[label].losses)) for label in labels]
        return np.concatenate(parts)

    starts = [np.array([pull, heat]) for pull in (0.0, -1.0) for heat in (0.0, -1.0, -2.0, -3.0)]
    start = min(starts, key=lambda logs: float(np.sum(residuals(logs) ** 2)))
    fit = least_squares(residuals, start, diff_step=[0.05, 0.05], max_nfev=12, bounds=(-6.0, 3.0))
    jacobian = np.asarray(fit.jac, dtype=np.float64)
    left_out, at = {}, 0
    for label in labels:
        size = len(first[label].losses)
        here = np.zeros(fit.fun.size, dtype=bool)
        here[at : at + size] = True
        rest = jacobian[~here]
        damped = rest.T @ rest + _DAMPING * jacobian.T @ jacobian
        move = np.clip(np.linalg.solve(damped, -rest.T @ fit.fun[~here]), -0.5, 0.5)
        left_out[label] = (fit.fun[here] + jacobian[here] @ move) * np.sqrt(size)
        at += size
    model = replace(_scaled(table, fit.x), spread_loss=rms(left_out))
    return FittedOneStep(found=model, residuals=left_out)


def _tables(statistics: Sequence[GradientStatistics], initial: float) -> OneStepModel:
    """Means over groups of neighbouring losses."""
    ordered = sorted(statistics, key=lambda item: item.loss)
    groups = [group for group in np.array_split(np.arange(len(ordered)), min(_TABLE, len(ordered))) if len(group)]

    def means(name: str) -> tuple[float, ...]:
        return tuple(float(np.mean([getattr(ordered[k], name) for k in group])) for group in groups)

    losses = np.maximum.accumulate(np.array(means("loss"))) + np.arange(len(groups)) * 1e-9
    return OneStepModel(
        initial=initial, losses=tuple(losses.tolist()), pull=means("squared_norm"),
        bend=tuple(max(value, 0.0) for value in means("bend")), heat=means("noise_bend"),
    )  # fmt: skip


def _scaled(table: OneStepModel, logs: Vector) -> OneStepModel:
    pull, heat = np.exp(logs)
    return replace(
        table,
        pull=tuple(value * float(pull) for value in table.pull),
        bend=tuple(value * float(heat) for value in table.bend),
        heat=tuple(value * float(heat) for value in table.heat),
    )


def _one_step_residuals(model: OneStepModel, curve: PilotCurve) -> Vector:
    def read(state: Vector) -> tuple[float, float, float]:
        value = float(state[0])
        return value, value, value

    found: list[Any] = [loss.train for loss in lead(SurrogateLearner("fit", OneStep(model), read), curve.calls)]
    result: Vector = np.log(np.clip(found, 1e-6, 1e6) / np.asarray(curve.losses))
    return result
