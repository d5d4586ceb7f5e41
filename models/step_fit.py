"""A fitted model of measured step times: what one step of any network costs on a device that was calibrated.

Affine in the batch, as measured steps of fully connected networks are, with the traffic of the weights at the rate of
the tiers that hold them. `step_fit_search.py` finds the coefficients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Final

from hetsgd.models.policy import Write
from hetsgd.models.workload import Precision, Workload

_BLEND: Final = 2.0
"""Between capacity / 2 and capacity x 2 the weights lie partly in a tier and partly in the next one."""
_FUSED_PASSES: Final = 4.0
_PASSES: Final = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """The coefficients of a fit; all are positive.

    `overhead_s` of a step and `layer_s` of each of its layers (calls and launches), `l2_bytes_per_s`,
    `l3_bytes_per_s` and `dram_bytes_per_s` of weight traffic by the tier that holds the weights (an accelerator has
    its memory as the last tier), `flops_per_s` and `half_batch` of arithmetic, `element_s` of each output of a layer
    and row, `row_s` of each row; `gradient_passes`: how often a step goes through the weights when it hands in a
    gradient, and `gradient_s` what such a step costs besides: it comes alone, after a wait; `forward_share`: what a
    row of a loss costs, as a share of its part of a step.
    """

    overhead_s: float
    layer_s: float
    l2_bytes_per_s: float
    l3_bytes_per_s: float
    dram_bytes_per_s: float
    flops_per_s: float
    half_batch: float
    element_s: float
    row_s: float
    gradient_passes: float = 4.0
    gradient_s: float = 2e-5
    forward_share: float = 0.4

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0.0 < value < math.inf:
                raise ValueError(f"fit: {field.name} must be > 0 and finite, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFit:
    """The fit of one device at one precision with `lanes` lanes at work.

    `fused`: an update in place is part of the product that makes the gradient (on cores). `overlaps`: calls and
    arithmetic overlap (on accelerators that are handed their work ahead of time), else they add up. `l2_bytes`,
    `l3_bytes`: capacities of the tiers (0: there is none). `batches` and `parameters`: the ranges that it was
    fitted in; `fit_error` and `held_out_error`: mean absolute relative errors at what it was fitted to, and at batch
    sizes that it was not (None: not measured); `spread`: relative spread of repeated measurements.
    """

    precision: Precision
    lanes: int
    fused: bool
    overlaps: bool
    l2_bytes: int
    l3_bytes: int
    batches: tuple[int, int]
    parameters: tuple[int, int]
    costs: StepCosts
    fit_error: float | None = None
    held_out_error: float | None = None
    spread: float | None = None

    def __post_init__(self) -> None:
        if self.lanes < 1:
            raise ValueError(f"fit: lanes must be >= 1, got {self.lanes}")
        for name in ("batches", "parameters"):
            low, high = getattr(self, name)
            if not 1 <= low <= high:
                raise ValueError(f"fit: {name} must be a range 1 <= low <= high, got {[low, high]}")

    def step_s(self, workload: Workload, batch: int, write: Write = "in_place") -> float:
        """Seconds of one step."""
        return step_seconds(self, self.costs, workload, batch, write)

    def forward_s(self, workload: Workload, rows: int) -> float:
        """Seconds of the loss over `rows` rows: the rows' part of steps in large batches, times `forward_share`."""
        return self.costs.forward_share * row_seconds(self.costs, workload, rows)


def step_seconds(fit: StepFit, costs: StepCosts, workload: Workload, batch: int, write: Write) -> float:
    """overhead + layers x layer + traffic / rates of the tiers + flops / (peak x B / (B + half)) + elements + rows.

    The weights are read twice and updated (read and written), and a gradient that is not fused into the update is
    written and read besides, as in `cost.weight_passes`; those of the first layer are read once less, since no error
    goes back to the features. Where calls and arithmetic overlap, the sum of both is
    replaced by their norm of order 4: nearly the longer of the two.
    """
    passes = costs.gradient_passes if write == "gradient" else _FUSED_PASSES if fit.fused else _PASSES
    first_bytes = workload.widths[0] * workload.widths[1] * workload.item_bytes
    traffic = passes * workload.model_bytes - first_bytes
    weights_s = traffic * tier_seconds(fit, costs, workload.model_bytes)
    idle_s = workload.step_flops(1) / costs.flops_per_s * costs.half_batch
    calls_s = costs.overhead_s + costs.layer_s * (len(workload.widths) - 1)
    calls_s += costs.gradient_s if write == "gradient" else 0.0
    busy_s = weights_s + idle_s + row_seconds(costs, workload, batch)
    if fit.overlaps:
        return float((calls_s**4 + busy_s**4) ** 0.25)
    return calls_s + busy_s


def row_seconds(costs: StepCosts, workload: Workload, batch: int) -> float:
    """The part of a step that grows with its rows: arithmetic at the peak, outputs of layers, and the rows themselves.

    >>> costs = StepCosts(overhead_s=1.0, layer_s=1.0, l2_bytes_per_s=1.0, l3_bytes_per_s=1.0, dram_bytes_per_s=1.0,
    ...     flops_per_s=64.0, half_batch=1.0, element_s=1.0, row_s=3.0)
    >>> row_seconds(costs, Workload(name="w", dataset="d", rows=1, test_rows=0, features=8, outputs=2, hidden=()), 10)
    60.0
    """
    outputs = sum(workload.widths[1:])
    return workload.step_flops(batch) / costs.flops_per_s + batch * (outputs * costs.element_s + costs.row_s)


def tier_seconds(fit: StepFit, costs: StepCosts, model_bytes: int) -> float:
    """Seconds per byte of weight traffic, from the tiers that hold the weights."""
    in_l2 = tier_share(model_bytes, fit.l2_bytes)
    in_l3 = (1.0 - in_l2) * tier_share(model_bytes, fit.l3_bytes)
    beyond = 1.0 - in_l2 - in_l3
    return in_l2 / costs.l2_bytes_per_s + in_l3 / costs.l3_bytes_per_s + beyond / costs.dram_bytes_per_s


def tier_share(size_bytes: int, capacity_bytes: int) -> float:
    """Share of the traffic that a tier serves: 1 up to half of its capacity, 0 from twice, linear in the logarithm.

    >>> tier_share(500, 1000), tier_share(1000, 1000), tier_share(4000, 1000)
    (1.0, 0.5, 0.0)
    """
    if capacity_bytes <= 0:
        return 0.0
    over = math.log2(size_bytes / capacity_bytes * _BLEND) / math.log2(_BLEND * _BLEND)
    return 1.0 - min(max(over, 0.0), 1.0)
