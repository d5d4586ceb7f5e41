"""What a policy makes of another learning rate: whether replicas with rates of their own can share its decisions.

A policy is rehearsed on random times with the learning rate of the plan and with each of the others. It can be
shared if all decisions are the same but for rates, which follow the learning rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.plan import Plan
from hetsgd.models.policy import RULES
from hetsgd.models.rehearsal import rehearse
from hetsgd.models.run import StopRule
from hetsgd.models.trace import Trace
from hetsgd.real.ensemble_merging import RateScales

_UPDATES: Final = 300
_NEAR: Final = 1e-9
_ELASTIC: Final = RULES.index("elastic")


def check_shared(plan: Plan, *, several_rates: bool) -> None:
    """Raise ValueError where the events of a run depend on its losses: replicas could not share them."""
    why = ""
    if plan.run.gradient_stats:
        why = "run.gradient_stats lets a policy decide by the gradients of its run"
    elif plan.recipe.reads_losses:
        why = f"policy {plan.policy} decides by the losses of its run"
    elif plan.run.stop.target_loss is not None:
        why = "a target loss ends each run at a time of its own; stop after seconds, epochs or updates"
    elif several_rates and plan.run.weight_decay:
        why = "weight decay goes with the learning rate; give all replicas the same rate"
    if why:
        raise ValueError(f"replicas: they must share one order of events, but {why}")


def rate_scales(plan: Plan, rates: Sequence[float]) -> RateScales:
    """How the replicas' learning rates differ from that of the plan.

    Raises ValueError where the policy does something else at another learning rate than scale its rates.
    """
    base = plan.run.learning_rate
    others = sorted({rate for rate in rates if rate != base})
    check_shared(plan, several_rates=bool(others))
    known, follows = _rehearsed(plan, base) if others else None, set[bool]()
    for rate in others:
        if known is not None:
            follows |= _compare(known, _rehearsed(plan, rate), rate / base, plan.policy)
    if len(follows) > 1:
        raise ValueError(f"replicas: some elastic forces of policy {plan.policy} follow the learning rate, some do not")
    return RateScales(of_replica=tuple(rate / base for rate in rates), elastic_follows=True in follows)


def _rehearsed(plan: Plan, rate: float) -> Trace:
    fleet = replace(plan.fleet(), learning_rate=rate)
    run = replace(
        plan.run, stop=StopRule(updates=_UPDATES), learning_rate=rate, evaluate_every_s=None, trace="full",
        evaluation="deferred",
    )  # fmt: skip
    return rehearse(plan.recipe, fleet, run, np.random.default_rng(0))


def _compare(base: Trace, other: Trace, scale: float, policy: str) -> set[bool]:
    """Whether elastic forces follow the rate (both: some do; empty: there are none)."""
    for table, free in (("assignments", ("rate", "reason_text")), ("merges", ("rate", "reason_text"))):
        if not _same(base[table], other[table], free):
            raise ValueError(
                f"replicas: they must share one order of events, but policy {policy} decides otherwise at another "
                "learning rate; give all replicas the same rate"
            )
    if not (_same(base["merge_inputs"], other["merge_inputs"], ()) and _scaled(base, other, scale, "assignments")):
        raise ValueError(
            f"replicas: policy {policy} does not simply scale its rates with the learning rate; give all replicas "
            "the same rate"
        )
    rules, one, two = base["merges"]["rule"], base["merges"]["rate"], other["merges"]["rate"]
    follows = np.isclose(two, one * scale, rtol=_NEAR, atol=0.0)
    stays = np.isclose(two, one, rtol=_NEAR, atol=0.0)
    for code in np.unique(rules).tolist():
        here, rule = rules == code, RULES[code]
        fits = follows[here] if rule == "gradient" else stays[here]
        if rule == "elastic":
            fits = follows[here] | stays[here]
        if rule not in ("overwrite", "discard") and not fits.all():
            raise ValueError(
                f"replicas: the rates of {rule} merges of policy {policy} do not go with the learning rate as "
                f"replicas need it; give all replicas the same rate"
            )
    return set(follows[rules == _ELASTIC].tolist())


def _scaled(base: Trace, other: Trace, scale: float, table: str) -> bool:
    return bool(np.allclose(other[table]["rate"], base[table]["rate"] * scale, rtol=_NEAR, atol=0.0))


def _same(one: NDArray[Any], two: NDArray[Any], free: Sequence[str]) -> bool:
    """Whether two tables are equal but for some columns."""
    names = [name for name in one.dtype.names or () if name not in free]
    return len(one) == len(two) and all(
        np.array_equal(one[name], two[name], equal_nan=one[name].dtype.kind == "f") for name in names
    )
