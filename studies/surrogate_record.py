"""What the record of a run with a surrogate says beside the rest: which model, fitted to what, how sure it is."""

from __future__ import annotations

from typing import Any

from hetsgd.models.plan import Plan
from hetsgd.models.surrogates.axes import axes
from hetsgd.models.surrogates.calibration import beyond
from hetsgd.models.surrogates.calibration_file import find_calibration
from hetsgd.models.surrogates.learner import SurrogateLearner
from hetsgd.studies.record import described, strict


def add_surrogate(record: dict[str, Any], learner: SurrogateLearner, plan: Plan) -> None:
    """Add `surrogate` to a record, `train_low` and `train_high` (90 %) to its losses, and a note beyond the pilots."""
    calibration = find_calibration(plan.workload)
    for point in record["loss"]:
        low, high = learner.intervals.get(point["update"], (None, None))
        point["train_low"], point["train_high"] = strict(low), strict(high)
    note = beyond(calibration, learner.name, float(learner.state[0]))
    if note:
        record["notes"].append(note)
    record["surrogate"] = {
        "model": learner.name,
        "calibrated_for": calibration.workload,
        "pilots": [described(pilot) for pilot in calibration.pilots],
        "seed_spread": strict(calibration.seed_spread),
        "axes": axes(),
        "versions": dict(calibration.versions),
    }
