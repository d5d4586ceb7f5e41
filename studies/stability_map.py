"""Learning rate x staleness: where a workload's training diverges in replay, beside where that is predicted.

python -m hetsgd.studies.stability_map --workload quickstart --out out/stability
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from hetsgd.models.run import StopRule
from hetsgd.models.stability import StabilityLimit
from hetsgd.models.surrogates.calibration_file import find_calibration
from hetsgd.studies.figures.stability import Replayed, stability_figure
from hetsgd.studies.figures.style import picture
from hetsgd.studies.resolve import Ask, resolve

_LANES: Final = (1, 2, 5, 9, 17, 33)
_RATIOS: Final = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 8.0)
_BATCH: Final = 16
_UPDATES: Final = 1500


def main(words: Sequence[str] | None = None) -> int:
    """Replay the grid and draw it."""
    parser = argparse.ArgumentParser(prog="python -m hetsgd.studies.stability_map", description=__doc__.split("\n")[0])
    parser.add_argument("--workload", default="quickstart", help="a workload with surrogates")
    parser.add_argument("--out", type=Path, required=True, help="folder of the picture and its points")
    parser.add_argument("--updates", type=int, default=_UPDATES, help="length of a replay")
    given = parser.parse_args(words)
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    ready = resolve(Ask(machine="ucmerced-k80", workload=given.workload, policy="hogwild", learner="none"))
    limit = find_calibration(ready.plan.workload).limit
    points = [
        replayed(given.workload, limit, lanes, ratio, given.updates, seed)
        for seed, lanes in enumerate(_LANES)
        for ratio in _RATIOS
    ]
    right = sum(limit.diverges(rate=p.rate, batch=_BATCH, staleness=p.staleness) is p.diverged for p in points)
    safe = [p for p in points if limit.side(rate=p.rate, batch=_BATCH, staleness=p.staleness) == "safe"]
    figure = stability_figure(limit, _BATCH, points, f"{given.workload}, batch {_BATCH}")
    (out / "stability.png").write_bytes(picture(figure, "png"))
    (out / "stability.json").write_text(json.dumps([asdict(p) for p in points], indent=1), encoding="utf-8")
    print(f"{sum(p.diverged for p in points)} of {len(points)} replays diverged; {right} were on the predicted side; "
          f"{sum(p.diverged for p in safe)} of {len(safe)} in the safe region diverged")  # fmt: skip
    return 0


def replayed(workload: str, limit: StabilityLimit, lanes: int, ratio: float, updates: int, seed: int) -> Replayed:
    """One replay on free lanes, whose mean staleness is lanes - 1, at a multiple of the predicted limit.

    It has diverged if its last loss is not finite or above its first.
    """
    from hetsgd.real.replay import ReplayLearner
    from hetsgd.sim import simulate

    rate = ratio / limit.ratio(rate=1.0, batch=_BATCH, staleness=lanes - 1)
    settings = (("machine.cpu_lanes", lanes), ("run.lanes", "free"), ("policy.cpu_batch", _BATCH),
                ("run.learning_rate", rate), ("run.evaluation", "deferred"), ("run.trace", "summary"))  # fmt: skip
    ask = Ask(machine="ucmerced-k80", workload=workload, policy="hogwild", settings=settings, learner="replay",
              stop=StopRule(updates=updates), seed=seed)  # fmt: skip
    ready = resolve(ask)
    trace = simulate(ready.plan, ReplayLearner(ready.plan, ready.data()))
    losses = trace["evaluations"]["train"]
    counts = trace.totals.staleness["cpu"]
    staleness = sum(tau * count for tau, count in counts.items()) / sum(counts.values())
    diverged = not math.isfinite(losses[-1]) or bool(losses[-1] > losses[0])
    return Replayed(rate=rate, staleness=staleness, diverged=diverged)


if __name__ == "__main__":
    sys.exit(main())
