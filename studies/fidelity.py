"""How far surrogates can be trusted: predicted against replayed loss curves on configurations held out from the pilots.

    HETSGD_DATA=../shared/data python -m hetsgd.studies.fidelity --out out/fidelity --configurations 60 --seeds 8

Pilots and replays are kept in the folder and never computed twice; Ctrl-C loses the one under way. A full study takes
two hours of two cores; `--workers` runs replays side by side.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from hetsgd.models.learner import NoLearner
from hetsgd.models.plan import Plan
from hetsgd.models.run import StopRule
from hetsgd.models.surrogates.calibration import MODELS, Calibration
from hetsgd.models.surrogates.calibration_file import load_calibration, save_calibration
from hetsgd.models.surrogates.choice import surrogate
from hetsgd.studies.fidelity_configurations import SETS, Configuration, draw
from hetsgd.studies.fidelity_score import LEVELS, Score, quantile, ranking, score
from hetsgd.studies.pilots import calibrate, run_pilots
from hetsgd.studies.pool import run_all
from hetsgd.studies.resolve import Ask, Ready, resolve
from hetsgd.studies.screen import say

_POINTS: Final = 30
_PILOT_UPDATES: Final = 2000
_PILOT_SEEDS: Final = 3
_ENSEMBLE: Final = 2
"""Seeds of a surrogate whose mean is the prediction: they differ by a few parts in a thousand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One replay: a configuration and a seed."""

    configuration: Configuration
    seed: int

    @property
    def file(self) -> str:
        """The name of its result."""
        return f"replay-{self.configuration.key}-{self.seed}.json"


def main(words: Sequence[str] | None = None) -> int:
    """Run the study with the words of a command line."""
    parser = argparse.ArgumentParser(prog="python -m hetsgd.studies.fidelity", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of pilots, replays and the report")
    parser.add_argument("--configurations", type=int, default=60, help="how many to draw")
    parser.add_argument("--seeds", type=int, default=8, help="replays of each")
    parser.add_argument("--draw", type=int, default=1, help="seed of the generator of configurations")
    parser.add_argument("--data", nargs="*", default=list(SETS), choices=list(SETS), help="data sets")
    parser.add_argument("--workers", type=int, default=1, help="replays side by side")
    given = parser.parse_args(words)
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    calibrations = {name: calibration_of(name, out) for name in given.data}
    seeds = range(given.seeds)
    configurations = draw(given.configurations, given.draw, calibrations, seeds)
    replay_all([Job(configuration=item, seed=seed) for item in configurations for seed in seeds], out, given.workers)
    models = ("preferred", *MODELS)
    scores = {
        model: [predict(item, calibrations[item.workload], model, seeds, out) for item in configurations]
        for model in models
    }
    text = report(scores, calibrations)
    (out / "fidelity.txt").write_text(text, encoding="utf-8")
    print(text)
    return 0


def calibration_of(name: str, out: Path) -> Calibration:
    """The surrogates of a data set, fitted to pilots that are run once."""
    path = out / f"pilots-{name}.json"
    if not path.exists():
        runs = run_pilots(name, updates=_PILOT_UPDATES, seeds=_PILOT_SEEDS, settings=SETS[name], say=say)
        save_calibration(path, calibrate(runs))
    return load_calibration(path)


# -- truth -----------------------------------------------------------------------------------------------------------


def replay_all(jobs: Sequence[Job], out: Path, workers: int) -> None:
    """Replay what is not there yet; each result is on disk as soon as it is known."""
    todo = [job for job in jobs if not (out / job.file).exists()]
    for done, outcome in enumerate(run_all(replay, todo, workers) if todo else (), 1):
        if outcome.error:
            raise RuntimeError(f"replay of {todo[outcome.index].configuration.words()} failed: {outcome.error}")
        _write(out / todo[outcome.index].file, outcome.value)
        say(f"replay {done} of {len(todo)}: {todo[outcome.index].configuration.words()}")


def replay(job: Job) -> dict[str, Any]:
    """Times and losses (N,) of one replay."""
    from hetsgd.real.replay import ReplayLearner
    from hetsgd.sim import simulate

    ready, plan = plan_of(job.configuration, job.seed, "replay")
    table = simulate(plan, ReplayLearner(plan, ready.data()))["evaluations"]
    losses = [float(loss) for loss in np.nan_to_num(table["train"], nan=math.inf, posinf=math.inf)]
    return {"t_s": [float(at_s) for at_s in table["at_s"]], "loss": [min(loss, 1e6) for loss in losses]}


def plan_of(configuration: Configuration, seed: int, learner: str) -> tuple[Ready, Plan]:
    """The run with evaluations at equal spaces of its time."""
    from hetsgd.sim import simulate

    run = (("run.evaluation", "deferred"), ("run.trace", "summary"))
    ask = Ask(machine=configuration.machine, workload=configuration.workload, policy=configuration.policy,
              settings=(*configuration.settings, *run), learner=learner, stop=StopRule(updates=configuration.updates),
              seed=seed)  # fmt: skip
    ready = resolve(ask, check=False)
    every_s = simulate(ready.plan, NoLearner()).elapsed_s / _POINTS
    return ready, replace(ready.plan, run=replace(ready.plan.run, evaluate_every_s=every_s))


# -- prediction ------------------------------------------------------------------------------------------------------


def predict(
    configuration: Configuration, calibration: Calibration, model: str, seeds: Sequence[int], out: Path
) -> Score:
    """Predict a configuration and score it against its replays, all on the times of the first.

    `model` is one of `MODELS`, or `preferred`: the one that the pilots prefer, as in `simulate`.
    """
    from hetsgd.sim import simulate

    truth = [_read(out / Job(configuration=configuration, seed=seed).file) for seed in seeds]
    times = np.array(truth[0]["t_s"])
    curves = [np.interp(times, item["t_s"], item["loss"]) for item in truth]
    losses, lows, highs = [], [], []
    for seed in range(_ENSEMBLE):
        _, plan = plan_of(configuration, seed, "none")
        learner = surrogate(plan, calibration, None if model == "preferred" else model)
        table = simulate(plan, learner)["evaluations"]
        found = [learner.intervals[int(update)] for update in table["update"]]
        losses.append(np.interp(times, table["at_s"], np.minimum(table["train"], 1e6)))
        lows.append(np.interp(times, table["at_s"], [min(low, 1e6) for low, _ in found]))
        highs.append(np.interp(times, table["at_s"], [min(high, 1e6) for _, high in found]))
    low, predicted, high = (np.mean(part, axis=0) for part in (lows, losses, highs))
    return score(configuration, times.tolist(), curves, predicted, low, high)


# -- report ----------------------------------------------------------------------------------------------------------


def report(scores: Mapping[str, Sequence[Score]], calibrations: Mapping[str, Calibration]) -> str:
    """The table of all models, the errors by policy and data set of the first, and its worst cases."""
    lines = ["model      median  90 %   log-loss rms   90 % interval covers   ranking tau (pairs)"]
    for model, found in scores.items():
        errors = _errors(found)
        tau, pairs = ranking(found)
        covered = np.mean([item.covered for item in found])
        lines.append(
            f"{model:9s} {quantile(errors, 0.5):7.1%} {quantile(errors, 0.9):6.1%} "
            f"{np.mean([item.rms for item in found]):10.3f} {covered:18.1%} {tau:22.2f} ({pairs})"
        )
    first = next(iter(scores.values()))
    floors = [value for item in first for value in item.floors]
    floor_rms = np.mean([item.floor_rms for item in first])
    lines.append(f"floor     {quantile(floors, 0.5):7.1%} {quantile(floors, 0.9):6.1%} {floor_rms:10.3f}")
    best = next(iter(scores))
    lines += ["", f"{best}: time to each level of loss, median and 90th percentile"]
    for level in LEVELS:
        values = [item.errors[level] for item in scores[best] if level in item.errors]
        lines.append(f"  {level:<5g} {quantile(values, 0.5):7.1%} {quantile(values, 0.9):7.1%}")
    for axis in ("policy", "workload", "machine"):
        for name in sorted({getattr(item.configuration, axis) for item in first}):
            part = [item for item in scores[best] if getattr(item.configuration, axis) == name]
            floors = [value for item in part for value in item.floors]
            lines.append(f"  {name:18s} {quantile(_errors(part), 0.5):7.1%} {quantile(_errors(part), 0.9):7.1%}   "
                         f"floor {quantile(floors, 0.5):7.1%} {quantile(floors, 0.9):7.1%}  ({len(part)})")  # fmt: skip
    lines += ["", "worst cases (log-loss rms, floor)"]
    for item in sorted(scores[best], key=lambda item: -item.rms)[:5]:
        lines.append(f"  {item.rms:.3f} {item.floor_rms:.3f}  {item.configuration.words()}")
    lines += ["", *(f"{name}: pilots prefer {found.preferred}, floor of their losses {found.seed_spread:.3f}"
                    for name, found in calibrations.items())]  # fmt: skip
    return "\n".join(lines) + "\n"


def _errors(scores: Sequence[Score]) -> list[float]:
    return [error for item in scores for error in item.errors.values()]


def _write(path: Path, value: Mapping[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value), encoding="utf-8")
    part.replace(path)


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    sys.exit(main())
