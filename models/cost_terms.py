"""The cost of one step, term by term: calls or launches, each layer's passes, and lines that others have written.

The terms of a step add up to what `cost.lane_step` and `cost.accelerator_step` say. Arithmetic and memory traffic of a
step overlap as a whole (one roofline for the step), so that all its passes are bound by the same one of the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hetsgd.models.calibration import Calibration
from hetsgd.models.cost import (
    LINE_BYTES,
    Tier,
    accelerator_flops,
    accelerator_rate,
    accelerator_step,
    accelerator_tier,
    batch_efficiency,
    coherence_s,
    core_flops,
    core_share,
    lane_step,
    launch_s,
    untouched_weights,
)
from hetsgd.models.machine import Accelerator, Socket
from hetsgd.models.policy import Write
from hetsgd.models.step_fit import StepFit, tier_share
from hetsgd.models.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One part of a step: `seconds` of it, what it is `bound` by, and which memory or link serves it (`served`).

    `flops` and `bytes`: the operations of it and what it moves; where the other of the two bounds the step, they are
    hidden behind it.
    """

    name: str
    seconds: float
    bound: str
    served: str = ""
    flops: float = 0.0
    bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """One pass of a step through one layer: its operations and the bytes that it moves."""

    name: str
    flops: float
    bytes: float


def lane_terms(
    workload: Workload, socket: Socket, *, batch: int, write: Write = "in_place", tier: Tier = "dram", lanes: int = 1,
    line_s: float = 0.0, beside: int = 0,
) -> tuple[Term, ...]:  # fmt: skip
    """The terms of one step of a lane; the arguments are those of `cost.lane_step`, to which they add up."""
    if socket.calibration is not None and socket.calibration.covers(workload):
        load = lane_step(
            workload, socket, batch=batch, write=write, tier=tier, lanes=lanes, line_s=line_s, beside=beside
        )
        return _measured(socket.calibration, workload, batch, lanes + beside, write, load.alone_s)
    share = core_share(socket, lanes)
    peak = core_flops(socket, workload.precision) * share * batch_efficiency(batch, socket.half_batch)
    from_l3 = tier == "l3" and socket.core_l3_bandwidth_bytes_per_s > 0.0
    rate = socket.core_l3_bandwidth_bytes_per_s if from_l3 else socket.core_bandwidth_bytes_per_s
    served = "L2" if tier == "l2" else "L3" if from_l3 else "DRAM"
    passes = tuple(_passes(workload, batch, write, fused=True, on_core=True))
    terms = [Term(name="calls", seconds=socket.step_overhead_s, bound="calls")]
    terms += _bounded(passes, peak, None if tier == "l2" else rate * share, served)
    if write == "in_place" and line_s:
        written = workload.model_bytes - untouched_weights(workload, batch) * workload.item_bytes
        lines = written / LINE_BYTES
        terms.append(
            Term(
                name=f"{lines:,.0f} lines that others wrote", seconds=coherence_s(written, line_s),
                bound="written lines", served="other cores", bytes=written,
            )
        )  # fmt: skip
    return tuple(terms)


def accelerator_terms(
    workload: Workload, accelerator: Accelerator, *, batch: int, write: Write = "in_place", beside: int = 0
) -> tuple[Term, ...]:
    """The terms of one step of an accelerator; they add up to `cost.accelerator_step`."""
    if accelerator.calibration is not None and accelerator.calibration.covers(workload):
        load = accelerator_step(workload, accelerator, batch=batch, write=write, beside=beside)
        return _measured(accelerator.calibration, workload, batch, 1 + beside, write, load.alone_s)
    kind: Write = "gradient" if write == "gradient" else "in_place"
    peak = accelerator_flops(accelerator, workload.precision) * batch_efficiency(batch, accelerator.half_batch)
    stand_in, tier = accelerator.stand_in, accelerator_tier(workload, accelerator, batch)
    rate = accelerator_rate(workload, accelerator, batch)
    served = "L2" if tier == "l2" else "DRAM" if stand_in else "device memory"
    passes = tuple(_passes(workload, batch, kind, fused=stand_in, on_core=False, activations=not stand_in))
    kernels = accelerator.kernels_per_layer * (len(workload.widths) - 1)
    launches = Term(name=f"{kernels:g} kernels", seconds=launch_s(workload, accelerator), bound="launches")
    return (launches, *_bounded(passes, peak, None if stand_in and tier == "l2" else rate, served))


def _passes(
    workload: Workload, batch: int, write: Write, *, fused: bool, on_core: bool, activations: bool = False
) -> Iterator[_Pass]:
    """Forward, backward and update of each layer, as `cost.weight_passes` counts them.

    Forward reads the weights; backward reads them again and, unless it is fused with the update, writes the gradient;
    an update reads and writes the weights, and reads a gradient that was written.
    """
    sparse = on_core and workload.multiplies_sparse
    writes_gradient = write == "gradient" or not fused
    item = workload.item_bytes
    for number, operator in enumerate(workload.operators):
        name, first = operator.name, number == 0
        size = operator.parameters * item
        spared = untouched_weights(workload, batch) * item if sparse and first else 0.0
        filling = workload.density if sparse and first else 1.0
        moved = 2.0 * batch * operator.outputs * item if activations else 0.0
        rows = batch * workload.row_bytes if activations and first else 0.0
        yield _Pass(name=f"{name} forward", flops=batch * operator.flops * filling, bytes=size - spared + moved + rows)
        yield _Pass(
            name=f"{name} backward",
            flops=batch * operator.backward_flops * filling,
            bytes=size - spared + moved + (size if writes_gradient else 0.0),
        )
        if write != "gradient":
            update = 3 * size if writes_gradient else 2 * (size - spared)
            yield _Pass(name=f"{name} update", flops=0.0, bytes=update)


def _bounded(passes: Sequence[_Pass], peak: float, rate: float | None, served: str) -> list[Term]:
    """The passes with their times: all of arithmetic or all of traffic, whichever takes the step longer.

    `rate` None: what the tier serves costs its arithmetic only.
    """
    arithmetic_s = sum(item.flops for item in passes) / peak
    memory_s = 0.0 if rate is None else sum(item.bytes for item in passes) / rate
    by_flops = rate is None or arithmetic_s >= memory_s
    return [
        Term(
            name=item.name,
            seconds=item.flops / peak if rate is None or by_flops else item.bytes / rate,
            bound="FLOPs" if by_flops else f"{served} bandwidth",
            served=served,
            flops=item.flops,
            bytes=item.bytes,
        )
        for item in passes
    ]


def _measured(
    calibration: Calibration, workload: Workload, batch: int, lanes: int, write: Write, total_s: float
) -> tuple[Term, ...]:
    """A measured step split as the fit of its device splits it, stretched to what was measured."""
    fits = [fit for fit in calibration.fits if fit.precision == workload.precision]
    parts = _parts_of(min(fits, key=lambda fit: abs(fit.lanes - lanes)), workload, batch, write)
    stretch = total_s / sum(part.seconds for part in parts)
    return tuple(replace(part, seconds=part.seconds * stretch) for part in parts if part.seconds > 0.0)


def _parts_of(fit: StepFit, workload: Workload, batch: int, write: Write) -> list[Term]:
    """The parts of `step_fit.step_seconds`, one by one."""
    costs, layers = fit.costs, len(workload.widths) - 1
    passes = costs.gradient_passes if write == "gradient" else 4.0 if fit.fused else 6.0
    traffic = passes * workload.model_bytes - workload.widths[0] * workload.widths[1] * workload.item_bytes
    in_l2 = tier_share(workload.model_bytes, fit.l2_bytes)
    in_l3 = (1.0 - in_l2) * tier_share(workload.model_bytes, fit.l3_bytes)
    flops, outputs = workload.step_flops(batch), batch * sum(workload.widths[1:])
    calls = [Term(name="calls of a step (measured)", seconds=costs.overhead_s, bound="calls")]
    calls.append(Term(name=f"calls of {layers} layers (measured)", seconds=layers * costs.layer_s, bound="calls"))
    if write == "gradient":
        calls.append(Term(name="handing in a gradient (measured)", seconds=costs.gradient_s, bound="calls"))
    weights = [
        Term(
            name="weights (measured)", seconds=share * traffic / rate, bound=f"{tier} bandwidth", served=tier,
            bytes=share * traffic,
        )
        for tier, share, rate in (
            ("L2", in_l2, costs.l2_bytes_per_s), ("L3", in_l3, costs.l3_bytes_per_s),
            ("DRAM" if fit.fused else "device memory", 1.0 - in_l2 - in_l3, costs.dram_bytes_per_s),
        )
    ]  # fmt: skip
    at_peak = flops / costs.flops_per_s
    filling = workload.step_flops(1) / costs.flops_per_s * costs.half_batch
    rows = [
        Term(name="arithmetic at the peak (measured)", seconds=at_peak, bound="FLOPs", flops=flops),
        Term(name="small batch (measured)", seconds=filling, bound="FLOPs"),
        Term(name="outputs of layers (measured)", seconds=outputs * costs.element_s, bound="elements"),
        Term(name="rows (measured)", seconds=batch * costs.row_s, bound="rows"),
    ]
    return [*calls, *weights, *rows]
