"""Pilot runs of a workload: short replays from which its surrogates are fitted.

Serial runs at three batch sizes and two learning rates each, chosen by the curvature of the initial model, and three
asynchronous ones: lanes alone, lanes with a slow accelerator, and replicas.
"""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, Final

import numpy as np

from hetsgd.models.learner import NoLearner
from hetsgd.models.policy import Assign, Loss, Merge
from hetsgd.models.run import StopRule
from hetsgd.models.stability import largest_rate
from hetsgd.models.streams import stream
from hetsgd.models.surrogates.calibration import Calibration, PilotRun, fingerprint
from hetsgd.models.surrogates.fitting import (
    FittedMap,
    FittedOneStep,
    PilotCurve,
    fit_maps,
    fit_one_step,
    rms,
    seed_spread,
)
from hetsgd.models.surrogates.one_step import GradientStatistics
from hetsgd.models.surrogates.tape import Tape
from hetsgd.models.trace import Trace
from hetsgd.studies.failure import BadInput
from hetsgd.studies.resolve import Ask, Ready, resolve

_MACHINE: Final = "ucmerced-k80"
PILOT_SEED: Final = 100_000
"""Pilots run under this seed and those after it, far from what a person or a study chooses."""

_BATCHES: Final = (1, 16, 256)
_SHARES: Final = (0.25, 0.06)
"""Of the largest stable learning rate: as hot as a pilot may be without spoiling the fit, and cool."""
_ASYNCHRONOUS: Final = 0.25
_EVALUATIONS: Final = 30
_EARLY: Final = 512
_DOUBT: Final = 1.15
"""How much better than the quadratic model another must be on pilots left out: averages of copies that are far apart
are averages of its modes, not of their progress."""
_PROBES: Final = (1, 8, 29)
_LARGE: Final = 100_000
_LARGE_ROWS: Final = 4096
MODES: Final = 6
_RATIO: Final = 4.0
SAMPLES: Final = 32

Say = Callable[[str], None]
Settings = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """One pilot: what to run, and its batch and learning rate for the record."""

    label: str
    policy: str
    settings: tuple[tuple[str, Any], ...]
    updates: int
    batch: int
    rate: float


def plan_pilots(first: GradientStatistics, updates: int) -> tuple[Pilot, ...]:
    """The pilots of a workload whose initial model has these statistics; `updates` scales their length."""

    def largest(batch: int) -> float:
        return largest_rate(first.curvature, first.row_curvature, batch)

    pilots = []
    for batch in _BATCHES:
        count = max(50, round(updates * {1: 2.0, 16: 1.0, 256: 0.25}[batch]))
        for share in _SHARES:
            rate = share * largest(batch)
            settings = (("policy.cpu_batch", batch), ("machine.cpu_lanes", 1))
            pilots.append(Pilot(label=f"serial batch {batch} rate {rate:.2g}", policy="hogwild", settings=settings,
                                updates=count, batch=batch, rate=rate))  # fmt: skip
    lanes = (("policy.cpu_batch", 1), ("machine.cpu_lanes", 16))
    pilots.append(Pilot(label="hogwild 16 lanes", policy="hogwild", settings=lanes, updates=2 * updates, batch=1,
                        rate=_ASYNCHRONOUS * largest(1)))  # fmt: skip
    mixed = (("machine.cpu_lanes", 8), ("run.lanes", "free"), ("policy.threshold", 64), ("policy.cpu_batch", 16),
             ("policy.accelerator_batch", 256))  # fmt: skip
    pilots.append(Pilot(label="ringmaster 8 lanes and accelerator", policy="ringmaster", settings=mixed,
                        updates=updates, batch=16, rate=_ASYNCHRONOUS * largest(16)))  # fmt: skip
    replicas = (("machine.cpu_lanes", 4), ("policy.steps", 5), ("policy.cpu_batch", 16),
                ("policy.accelerator_batch", 64))  # fmt: skip
    pilots.append(Pilot(label="easgd 4 lanes and accelerator", policy="easgd", settings=replicas,
                        updates=max(50, updates // 5), batch=16, rate=_ASYNCHRONOUS * largest(16)))  # fmt: skip
    return tuple(pilots)


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotRuns:
    """Pilots that have run: their curves, the mean staleness of each by label, and what was measured on the way."""

    ready: Ready
    pilots: tuple[Pilot, ...]
    seeds: tuple[int, ...]
    curves: tuple[PilotCurve, ...]
    staleness: dict[str, float]
    statistics: tuple[GradientStatistics, ...]


def run_pilots(workload: str, *, updates: int, seeds: int, say: Say, settings: Settings = ()) -> PilotRuns:
    """Run the pilots of a workload under so many seeds each; minutes of one core.

    `settings`: pairs of `workload.KEY` and value. Raises BadInput for a workload that does not resolve.
    """
    known = tuple(range(PILOT_SEED, PILOT_SEED + seeds))
    ready = resolve(_ask(workload, "hogwild", (("machine.cpu_lanes", 1), *settings), 1, 0.01, known[0]))
    if not ready.plan.workload.fully_connected:
        raise BadInput(
            f"--workload: {workload} is a traced module, which surrogates do not model; use --learner replay"
        )
    probe = _Probe(ready)
    pilots = plan_pilots(probe.initial(), updates)
    curves: list[PilotCurve] = []
    staleness: dict[str, float] = {}
    for pilot in pilots:
        for seed in known:
            say(f"pilot: {pilot.label}, seed {seed}")
            curve, trace = _run(workload, pilot, settings, seed, probe)
            curves.append(curve)
            staleness[pilot.label] = _mean_staleness(trace)
    return PilotRuns(ready=ready, pilots=pilots, seeds=known, curves=tuple(curves), staleness=staleness,
                     statistics=tuple(probe.found))  # fmt: skip


def calibrate(runs: PilotRuns) -> Calibration:
    """Fit all surrogates to pilots, and prefer the one that predicts best the pilots it was not fitted to."""
    # Networks sharpen along cold runs and flatten along hot ones: the middle of what was measured.
    curvature = float(np.median([item.curvature for item in runs.statistics]))
    curvatures = tuple(curvature * _RATIO**-k for k in range(MODES))
    spectrum, one_step = fit_maps(runs.curves, curvatures, SAMPLES), fit_one_step(runs.curves, runs.statistics)
    fitted: dict[str, FittedMap | FittedOneStep] = {str(kind): found for kind, found in spectrum.items()}
    fitted["one-step"] = one_step
    found = tuple(
        PilotRun(
            label=pilot.label, policy=pilot.policy, seeds=runs.seeds, updates=pilot.updates, batches=(pilot.batch,),
            rates=(pilot.rate,), staleness=runs.staleness[pilot.label],
            residuals={
                name: float(np.sqrt(np.mean(item.residuals[pilot.label] ** 2))) for name, item in fitted.items()
            },
        )
        for pilot in runs.pilots
    )  # fmt: skip
    names = ("hetsgd", "numpy", "scipy", "torch")
    return Calibration(
        workload=runs.ready.plan.workload.name,
        fingerprint=fingerprint(runs.ready.plan.workload),
        versions={"python": platform.python_version(), **{name: version(name) for name in names}},
        pilots=found,
        curvatures=curvatures,
        samples=SAMPLES,
        maps={name: item.found for name, item in spectrum.items()},
        one_step=one_step.found,
        statistics=runs.statistics,
        preferred=min(fitted, key=lambda name: rms(fitted[name].residuals) * (1.0 if name == "quadratic" else _DOUBT)),
        seed_spread=seed_spread(runs.curves),
    )


def print_calibration(found: Calibration) -> None:
    """Print how far each surrogate is off on each pilot."""
    print(f"surrogates of {found.workload}: rms of log loss on pilots that were left out of the fit")
    print(f"  {'':34s} {'staleness':>9s}" + "".join(f" {name:>10s}" for name in found.models))
    for pilot in found.pilots:
        errors = "".join(f" {pilot.residuals[name]:10.3f}" for name in found.models)
        print(f"  {pilot.label:34s} {pilot.staleness:9.1f}{errors}")
    print(f"  one seed against the mean of the others: {found.seed_spread:.3f}; used: {found.preferred}")


def _ask(
    workload: str, policy: str, settings: tuple[tuple[str, Any], ...], updates: int, rate: float, seed: int
) -> Ask:
    run = (("run.learning_rate", rate), ("run.evaluation", "deferred"), ("run.trace", "summary"))
    return Ask(machine=_MACHINE, workload=workload, policy=policy, settings=(*settings, *run), learner="replay",
               stop=StopRule(updates=updates), seed=seed)  # fmt: skip


def _run(workload: str, pilot: Pilot, settings: Settings, seed: int, probe: _Probe) -> tuple[PilotCurve, Trace]:
    """One pilot under one seed, evaluated at equal spaces of its time, which a timing run tells.

    The first seed's models are measured as well.
    """
    from hetsgd.real.replay import ReplayLearner
    from hetsgd.sim import simulate

    ready = resolve(_ask(workload, pilot.policy, (*settings, *pilot.settings), pilot.updates, pilot.rate, seed))
    every_s = simulate(ready.plan, NoLearner()).elapsed_s / _EVALUATIONS
    plan = replace(ready.plan, run=replace(ready.plan.run, evaluate_every_s=every_s))
    replay = ReplayLearner(plan, ready.data())
    tape = _ProbedTape(replay, probe, measure=seed == PILOT_SEED)
    initial = probe.loss(replay)
    trace = simulate(plan, tape)
    losses = tuple(loss.train for loss in tape.losses)
    return PilotCurve(label=pilot.label, seed=seed, calls=tape.calls, losses=losses, initial=initial), trace


def _mean_staleness(trace: Trace) -> float:
    counts: dict[int, float] = defaultdict(float)
    for found in trace.totals.staleness.values():
        for staleness, count in found.items():
            counts[staleness] += count
    total = sum(counts.values())
    return sum(staleness * count for staleness, count in counts.items()) / total if total else 0.0


class _Probe:
    """Measures gradient statistics at models of the pilots; `found` collects them."""

    def __init__(self, ready: Ready) -> None:
        from hetsgd.real.curvature import CurvatureProbe

        workload = ready.plan.workload
        large = workload.parameters >= _LARGE
        rows, single = (512, 6) if large else (2048, 16)
        self._probe = CurvatureProbe(workload, ready.data(), stream(0, "curvature"), rows=rows, single=single)
        # A pass of a large network over all rows takes longer than what lies between two evaluations.
        self.evaluates = (
            CurvatureProbe(workload, ready.data(), stream(0, "loss"), rows=_LARGE_ROWS, single=1) if large else None
        )
        self.found: list[GradientStatistics] = []
        self._ready = ready

    def initial(self) -> GradientStatistics:
        """Those of the initial model."""
        from hetsgd.real.replay import ReplayLearner

        replay = ReplayLearner(self._ready.plan, self._ready.data())
        self.add(replay.parameters, self.loss(replay))
        return self.found[0]

    def loss(self, replay: Any) -> float:
        """The training loss of a replay's model as it is now."""
        if self.evaluates is not None:
            return self.evaluates.loss(replay.parameters)
        return float(replay.evaluate(at_s=0.0, epoch=0, update=0).train)

    def add(self, parameters: Any, loss: float) -> None:
        """Measure at one more model, unless it has diverged."""
        if np.isfinite(loss):
            self.found.append(self._probe.measure(parameters, loss))


class _ProbedTape(Tape):
    """A tape whose losses are the probe's, and that has the model measured at some of the evaluations.

    It evaluates after the first, second, fourth and so on assignment or merge too: losses fall fastest at first, where
    equal spaces of time have few points.
    """

    def __init__(self, replay: Any, probe: _Probe, *, measure: bool) -> None:
        super().__init__(replay)
        self._replay = replay
        self._probe = probe
        self._measure = measure
        self._ended = 0
        self._timed = 0

    def begin(self) -> Loss:
        """The loss of the initial model."""
        return Loss(at_s=0.0, epoch=0, update=0, end_s=0.0, train=self._probe.loss(self._replay))

    def result(self, assign: Assign) -> Mapping[str, float]:
        found = super().result(assign)
        self._early()
        return found

    def merge(self, merge: Merge) -> None:
        super().merge(merge)
        self._early()

    def evaluate(self, *, at_s: float, epoch: int, update: int) -> Loss:
        """Evaluate, and measure if it is time to."""
        loss = self._look(at_s, epoch, update)
        self._timed += 1
        if self._measure and self._timed in _PROBES:
            self._probe.add(self._replay.parameters, loss.train)
        return loss

    def _early(self) -> None:
        self._ended += 1
        if self._ended <= _EARLY and not self._ended & (self._ended - 1):
            self._look(0.0, 0, 0)

    def _look(self, at_s: float, epoch: int, update: int) -> Loss:
        loss = Loss(at_s=at_s, epoch=epoch, update=update, end_s=at_s, train=self._probe.loss(self._replay))
        self.calls.append(("evaluate", (at_s, epoch, update)))
        self.losses.append(loss)
        return loss
