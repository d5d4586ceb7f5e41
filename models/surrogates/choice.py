"""From a plan and a calibration to a learner."""

from __future__ import annotations

from hetsgd.models.plan import Plan
from hetsgd.models.streams import stream
from hetsgd.models.surrogates.calibration import Calibration
from hetsgd.models.surrogates.learner import SurrogateLearner
from hetsgd.models.surrogates.one_step import OneStep
from hetsgd.models.surrogates.reading import OneStepReader, SpectrumReader
from hetsgd.models.surrogates.spectrum import Spectrum


def surrogate(plan: Plan, calibration: Calibration, model: str | None = None) -> SurrogateLearner:
    """The learner of a run; `model` is `path`, `quadratic` or `one-step` (None: the calibration's preferred).

    The same plan and calibration give the same losses. Raises AxisError for what the model was not made for: here
    for the run, during the run for a step far outside the pilots.
    """
    name = model or calibration.preferred
    calibration.check(plan, name)
    if name == "one-step" and calibration.one_step is not None:
        return SurrogateLearner(name, OneStep(calibration.one_step), OneStepReader(calibration.one_step),
                                calibration.guard)  # fmt: skip
    spectrum = Spectrum(calibration.curvatures, calibration.samples, stream(plan.run.seed, "surrogate"),
                        relief=calibration.maps[name].relief)  # fmt: skip
    return SurrogateLearner(name, spectrum, SpectrumReader(spectrum, calibration.maps[name]), calibration.guard)
