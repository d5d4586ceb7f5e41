"""The settings of one run that belong neither to the machine, the workload nor the policy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Final, Literal

from hetsgd.models.edge import shown_value
from hetsgd.models.policy import LaneMode

Order = Literal["file", "shuffled"]
Evaluation = Literal["blocking", "concurrent", "deferred"]
TraceLevel = Literal["none", "summary", "full"]

_MOST_RATE: Final = 1e38
"""Beyond any use, and what single precision can hold."""

MOST_SEED: Final = 2**63 - 1
MOST_LOOKAHEAD: Final = 1000
MOST_APART: Final = 10**6
MOST_SECONDS: Final = 1e9
"""32 years."""
LEAST_SECONDS: Final = 1e-9
"""Shorter than anything that is timed."""
MOST_COUNT: Final = 10**15
"""Epochs and updates: more than any machine has done."""


def seed_problem(seed: int) -> str | None:
    """The rule that a seed breaks, with the value; None where it breaks none.

    >>> seed_problem(-1), seed_problem(3)
    ('must be in 0..9223372036854775807, got -1', None)
    """
    return None if 0 <= seed <= MOST_SEED else f"must be in 0..{MOST_SEED}, got {shown_value(seed)}"


def _check_types(
    owner: StopRule | RunSettings, prefix: str, *, numbers: tuple[str, ...], whole: tuple[str, ...]
) -> None:
    """Refuse what is no number, or no whole one; None stands where a field may be empty, and is its default."""
    defaults = {item.name: item.default for item in fields(owner)}
    for name in (*numbers, *whole):
        value = getattr(owner, name)
        empty = value is None and defaults[name] is None
        if not empty and (isinstance(value, bool) or not isinstance(value, Integral if name in whole else Real)):
            rule = "a whole number" if name in whole else "a number"
            raise ValueError(f"{prefix}{name} must be {rule}, got {shown_value(value)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """When a run ends: the first rule that is met. At least one must be given.

    `seconds` is a deadline (virtual or wall time of training); `updates` may overshoot by what is in flight;
    `target_loss` is compared with the training loss of each evaluation.
    """

    seconds: float | None = None
    epochs: int | None = None
    updates: int | None = None
    target_loss: float | None = None

    def __post_init__(self) -> None:
        _check_types(self, "stop rule: ", numbers=("seconds", "target_loss"), whole=("epochs", "updates"))
        if self.seconds is None and self.epochs is None and self.updates is None:
            fix = "a target loss alone may never be met" if self.target_loss is not None else "none is given"
            raise ValueError(f"stop rule: give seconds, epochs or updates ({fix})")
        if self.seconds is not None and not 0.0 < self.seconds <= MOST_SECONDS:
            raise ValueError(f"stop rule: seconds must be > 0 and at most {MOST_SECONDS:g}, got {self.seconds}")
        for name in ("epochs", "updates"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MOST_COUNT:
                rule = ">= 1" if value < 1 else f"at most {MOST_COUNT}"
                raise ValueError(f"stop rule: {name} must be {rule}, got {shown_value(value)}")
        if self.target_loss is not None and not math.isfinite(self.target_loss):
            raise ValueError(f"stop rule: target_loss must be finite, got {self.target_loss}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Settings of one run, the same for both engines.

    `learning_rate` is the base rate that policies start from; `momentum` is for policies that merge gradients on
    a server and refused by the others; `weight_decay` is decoupled: every update also multiplies the model by
    1 - rate x weight_decay. `order`: rows in file order or shuffled anew each epoch. `evaluate_every_s`: seconds
    between evaluations (None: at the end of each epoch). `gradient_stats`: every so many assignments measure gradient
    norms for policies that use them, see `hetsgd.models.gradient_noise` (0: none do); the time it takes counts.
    """

    stop: StopRule
    seed: int = 0
    learning_rate: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    order: Order = "shuffled"
    lanes: LaneMode = "barrier"
    lookahead: int = 0
    evaluation: Evaluation = "blocking"
    evaluate_every_s: float | None = None
    gradient_stats: int = 0
    trace: TraceLevel = "full"

    def __post_init__(self) -> None:
        if not isinstance(self.stop, StopRule):
            raise ValueError(f"run.stop must be a StopRule, such as StopRule(epochs=3), got {shown_value(self.stop)}")
        _check_types(
            self, "run.", numbers=("learning_rate", "momentum", "weight_decay", "evaluate_every_s"),
            whole=("seed", "lookahead", "gradient_stats"),
        )  # fmt: skip
        if not 0.0 < self.learning_rate <= _MOST_RATE:
            raise ValueError(f"run.learning_rate must be > 0 and at most {_MOST_RATE:g}, got {self.learning_rate}")
        if not 0.0 <= self.momentum < 1.0:
            raise ValueError(f"run.momentum must be in [0, 1), got {self.momentum}")
        if not 0.0 <= self.weight_decay <= _MOST_RATE:
            raise ValueError(f"run.weight_decay must be in [0, {_MOST_RATE:g}], got {self.weight_decay}")
        if not 0 <= self.lookahead <= MOST_LOOKAHEAD:
            raise ValueError(f"run.lookahead must be in 0..{MOST_LOOKAHEAD}, got {shown_value(self.lookahead)}")
        if not 0 <= self.gradient_stats <= MOST_APART:
            raise ValueError(f"run.gradient_stats must be in 0..{MOST_APART}, got {shown_value(self.gradient_stats)}")
        if problem := seed_problem(self.seed):
            raise ValueError(f"run.seed {problem}")
        if self.evaluate_every_s is not None and not LEAST_SECONDS <= self.evaluate_every_s <= MOST_SECONDS:
            raise ValueError(
                f"run.evaluate_every_s must be in [{LEAST_SECONDS:g}, {MOST_SECONDS:g}], got {self.evaluate_every_s}"
            )
        for name, allowed in (
            ("order", ("file", "shuffled")),
            ("lanes", ("barrier", "free")),
            ("evaluation", ("blocking", "concurrent", "deferred")),
            ("trace", ("none", "summary", "full")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"run.{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if self.evaluation == "deferred" and self.stop.target_loss is not None:
            raise ValueError(
                "run.evaluation: 'deferred' computes losses after the run, so a target loss cannot stop it; "
                "use 'blocking' or 'concurrent'"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is: what a progress bar shows. `fraction` of the stop rule that is nearest."""

    now_s: float
    epoch: int
    examples: int
    updates: int
    loss: float | None
    fraction: float = field(default=0.0)
