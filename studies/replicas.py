"""Several replicas of one simulated run: seeds of their own, one order of events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from hetsgd.models.policy import Loss
from hetsgd.models.run import seed_problem
from hetsgd.studies.execute import Finished, run_simulated
from hetsgd.studies.failure import BadInput, checking
from hetsgd.studies.record import strict
from hetsgd.studies.resolve import Ready

if TYPE_CHECKING:
    from hetsgd.models.loss_curve import LossReference
    from hetsgd.models.plan import ProgressSink
    from hetsgd.real.ensemble import EnsembleReplay

MOST_REPLICAS: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedEnsemble(Finished):
    """A run of several replicas: its losses are their means, `ensemble` has each."""

    ensemble: EnsembleReplay

    def record(self, reference: LossReference | None = None) -> dict[str, Any]:
        """The `hetsgd.run/1` object, with the losses of each replica in `replicas`."""
        curves = zip(self.ensemble.seeds, self.ensemble.curves, strict=True)
        replicas = [{"seed": seed, "loss": [_point(loss) for loss in curve]} for seed, curve in curves]
        return {**Finished.record(self, reference), "replicas": replicas}


def _point(loss: Loss) -> dict[str, Any]:
    train, test = (strict(value) for value in (loss.train, loss.test))
    return {"t_s": loss.at_s, "update": loss.update, "train": train, "test": test}


def run_replicas(replicas: int) -> Callable[[Ready, ProgressSink | None], Finished]:
    """What runs a plan with so many replicas, of seeds from that of the plan on; BadInput where that cannot be."""

    def run(ready: Ready, progress: ProgressSink | None = None) -> Finished:
        from hetsgd.real.ensemble import EnsembleReplay

        seed = ready.plan.run.seed
        if problem := seed_problem(seed + replicas - 1):
            raise BadInput(f"--seed: {replicas} replicas have seeds from it on, and the last {problem}")
        with checking():
            ensemble = EnsembleReplay(ready.plan, ready.data(), seeds=range(seed, seed + replicas))
        finished = run_simulated(ready, progress, learner=ensemble)
        finished.trace.notes.append(
            f"losses are means over {replicas} replicas with the row orders and initial models of seeds {seed} to "
            f"{seed + replicas - 1}, which share the order of events and the timing noise of seed {seed}; runs that "
            "differ in timing too spread more"
        )
        values = {field.name: getattr(finished, field.name) for field in fields(finished)}
        return FinishedEnsemble(**values, ensemble=ensemble)

    return run


def check_replicas(replicas: int, learner: str, *, explain: bool) -> None:
    """BadInput where the number or the learner does not suit replicas."""
    if not 1 <= replicas <= MOST_REPLICAS:
        raise BadInput(f"--replicas: must be in 1..{MOST_REPLICAS}, got {replicas}")
    if replicas > 1 and learner != "replay":
        raise BadInput(f"--replicas: only replayed gradients have replicas, got --learner {learner}; leave one out")
    if replicas > 1 and explain:
        raise BadInput("--replicas: times are those of one run, so explain them with one; leave out --explain")
