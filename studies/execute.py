"""Run one resolved plan on one of the two engines, and turn what comes back into a record and files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hetsgd.models.footprint import CapacityError
from hetsgd.models.learner import Learner, NoLearner
from hetsgd.models.policy import PolicyError
from hetsgd.models.surrogates.axes import AxisError
from hetsgd.models.trace import Trace
from hetsgd.studies.failure import BadInput, NotSaved, RunFailed, checking
from hetsgd.studies.interrupts import QuietInterrupts
from hetsgd.studies.policy_error import policy_faults
from hetsgd.studies.record import MODEL, EngineName, OutputError, resolved_inputs, run_record, write_run
from hetsgd.studies.resolve import Ready

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hetsgd.models.loss_curve import LossReference
    from hetsgd.models.plan import Plan, ProgressSink
    from hetsgd.models.surrogates.learner import SurrogateLearner


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A run that ended, in whatever way (`trace.status`). `parameters` (P,): the final model of a real run.

    `surrogate`: the learner of a run with `--learner surrogate`, which has the intervals of its losses.
    """

    engine: EngineName
    ready: Ready
    trace: Trace
    wall_s: float
    device: str = ""
    parameters: NDArray[np.floating] | None = None
    surrogate: SurrogateLearner | None = None

    def record(self, reference: LossReference | None = None) -> dict[str, Any]:
        """The `hetsgd.run/1` object."""
        from hetsgd.models.metrics import metrics

        found = metrics(self.trace, plan=self.ready.plan, loss_reference=reference)
        record = run_record(
            self.ready.plan, found, engine=self.engine, learner=self.ready.learner, wall_s=self.wall_s,
            device=self.device,
        )  # fmt: skip
        if self.surrogate is not None:
            from hetsgd.studies.surrogate_record import add_surrogate

            add_surrogate(record, self.surrogate, self.ready.plan)
        return record

    def resolved(self) -> dict[str, Any]:
        """All that went into the run: the object of `resolved.json`."""
        ready = self.ready
        return resolved_inputs(ready.plan, engine=self.engine, learner=ready.learner, machine_set=ready.machine_set)

    def save(self, folder: Path, record: Mapping[str, Any]) -> None:
        """Write record, resolved inputs, trace and (real runs) the model into a folder; NotSaved where that fails."""
        resolved = self.resolved()
        extra: Callable[[Path], None] | None = None if self.parameters is None else self._save_model
        try:
            write_run(folder, record=record, resolved=resolved, trace=self.trace, extra=extra)
        except OutputError as error:
            raise NotSaved(str(error)) from error

    def _save_model(self, folder: Path) -> None:
        from hetsgd.real.state_dict import save_state_dict

        if self.parameters is not None:
            save_state_dict(folder / MODEL, self.ready.plan.workload, self.parameters)


def run_simulated(ready: Ready, progress: ProgressSink | None = None, *, learner: Learner | None = None) -> Finished:
    """Run the plan in the simulator; an interrupted run comes back with what it has. `learner`: instead of the usual.

    Raises BadInput where the learner refuses the plan, RunFailed where the run breaks the contract.
    """
    from hetsgd.sim import simulate

    begun_s = time.perf_counter()
    learner = _learner(ready) if learner is None else learner
    with _running(ready.plan), QuietInterrupts(progress) as sink:
        trace = simulate(ready.plan, learner, progress=sink)
    wall_s = time.perf_counter() - begun_s
    surrogate = cast("SurrogateLearner", learner) if ready.learner == "surrogate" else None
    return Finished(engine="sim", ready=ready, trace=trace, wall_s=wall_s, surrogate=surrogate)


def run_real(ready: Ready, progress: ProgressSink | None = None) -> Finished:
    """Run the plan on this machine's hardware; an interrupted run comes back with what it has."""
    from hetsgd.real import train

    with checking():
        data = ready.data()
    begun_s = time.perf_counter()
    with _running(ready.plan):
        trained = train(ready.plan, data, progress=progress)
    return Finished(
        engine="real",
        ready=ready,
        trace=trained.trace,
        wall_s=time.perf_counter() - begun_s,
        device=trained.device,
        parameters=trained.parameters,
    )


def _learner(ready: Ready) -> Learner:
    if ready.learner == "none":
        return NoLearner()
    if ready.learner == "surrogate":
        from hetsgd.models.surrogates.calibration_file import find_calibration
        from hetsgd.models.surrogates.choice import surrogate

        with checking():
            return surrogate(ready.plan, find_calibration(ready.plan.workload))
    from hetsgd.real.replay import ReplayLearner

    with checking():
        return ReplayLearner(ready.plan, ready.data())


@contextmanager
def _running(plan: Plan) -> Iterator[None]:
    """A policy that breaks (the contract) in the middle of a run is a failed run, what does not fit is bad input."""
    try:
        with policy_faults(plan):
            yield
    except (CapacityError, AxisError) as error:
        raise BadInput(str(error)) from error
    except PolicyError as error:
        raise RunFailed(str(error)) from error
