"""From measurements to a machine: rates, fits, step-time tables, links, messages and noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from hetsgd.models.calibration import Calibration, CalibrationRecord, RawSamples, mean_absolute_error
from hetsgd.models.calibration_scope import Cell, Scope, distinct_accelerators, make_of
from hetsgd.models.curve_smoothing import smoothed
from hetsgd.models.machine import Accelerator, Machine, Socket
from hetsgd.models.measured_links import measured_link, measured_noise
from hetsgd.models.policy import Write
from hetsgd.models.repeats import central, median_of
from hetsgd.models.sample_store import SampleStore
from hetsgd.models.step_fit import StepCosts, StepFit, row_seconds
from hetsgd.models.step_fit_search import StepSample, fit_steps
from hetsgd.models.step_table import Shape, StepCurve
from hetsgd.models.workload import Precision

MEASURED: Final = "measured by hetsgd calibrate"
_UNKNOWN_NOISE: Final = 0.1
_TYPICAL_LAYERS: Final = 4
_MEASURED: Final = frozenset(
    {
        "core_flops_float32", "core_flops_float64", "half_batch", "core_bandwidth_bytes_per_s", "kernels_per_layer",
        "core_l3_bandwidth_bytes_per_s", "dram_bandwidth_bytes_per_s", "step_overhead_s", "flops_float32",
        "flops_float64", "memory_bandwidth_bytes_per_s", "launch_s", "message_s", "decision_s",
    }
)  # fmt: skip
"""Figures of a socket, an accelerator or a machine that a calibration puts in the place of what was there."""


def calibrated_machine(scope: Scope, store: SampleStore, record: CalibrationRecord, *, name: str) -> Machine:
    """The machine of a scope with everything that the store holds put in its place.

    Raises ValueError when the store lacks steps of a device.
    """
    base = scope.machine
    socket = _socket(scope, store)
    measured: dict[Accelerator, Accelerator] = {}
    for accelerator in distinct_accelerators(base):
        measured[make_of(accelerator)] = _accelerator(scope, store, accelerator, socket)
    accelerators = tuple(
        replace(measured[make_of(acc)], name=acc.name, device=acc.device) for acc in base.accelerators
    )  # fmt: skip
    gap, decision = median_of(store, "round trip gap"), median_of(store, "round trip decision")
    return replace(
        base,
        name=name,
        description=f"calibrated: {record.host}",
        sockets=(socket,),
        accelerators=accelerators,
        links=tuple(measured_link(store, base, link) for link in base.links),
        message_s=base.message_s if gap is None else max((gap - (decision or 0.0)) / 2.0, 1e-7),
        decision_s=base.decision_s if decision is None else decision,
        noise=measured_noise(store, base),
        sources=_sources(base),
        assumed=_assumed(base, store),
        calibrated=replace(record, disturbed=disturbed_share(store)),
    )


def raw_samples(store: SampleStore) -> tuple[RawSamples, ...]:
    """All that was measured; of steps the seconds of one."""
    found = []
    for key in store.measured():
        unit = "bytes/s" if key.startswith(("bandwidth", "memory rate")) else "1" if key.startswith("noise") else "s"
        measured = store.all(key)
        found.append(
            RawSamples(
                what=key, unit=unit, values=tuple(values[0] for values in measured),
                means=tuple(values[1] for values in measured if len(values) > 1),
                disturbed=tuple(bool(values[2]) for values in measured if len(values) > 1),
            )
        )  # fmt: skip
    return tuple(found)


def disturbed_share(store: SampleStore) -> float:
    """Share of the timed steps during which something else had the core."""
    marks = [values[2] for key in store.measured() if key.startswith("step of ") for values in store.all(key)]
    return sum(marks) / len(marks) if marks else 0.0


def _sources(base: Machine) -> tuple[tuple[str, str], ...]:
    said = "said by the system"
    sizes = [f"socket.{s.name}.{key}" for s in base.sockets for key in ("cores", "dram_bytes", "l2_bytes", "l3_bytes")]
    sizes += [f"accelerator.{a.name}.{key}" for a in base.accelerators for key in ("memory_bytes", "l2_bytes")]
    # What a calibration does not measure stays what it was.
    kept = {field: text for field, text in base.sources if not _is_measured(field)}
    return tuple({**dict.fromkeys(sizes, said), **kept}.items())


def _is_measured(field: str) -> bool:
    """Whether a calibration measures a figure of a machine, by its name in a file (`socket.cpu0.cores`)."""
    owner, _, key = field.rpartition(".")
    return owner.startswith(("link", "noise")) or key in _MEASURED or not key


def _assumed(base: Machine, store: SampleStore) -> tuple[str, ...]:
    """Values that were not measured: what no copy was made for, and messages where no run was long enough."""
    found = [f"accelerator.{acc.name}.copy_engines" for acc in base.accelerators]
    found += [field for field in base.assumed if not _is_measured(field)]
    if not store.count("round trip gap"):
        found += ["machine.message_s", "machine.decision_s"]
    return tuple(dict.fromkeys(found))


# -- steps -------------------------------------------------------------------------------------------------------


def _socket(scope: Scope, store: SampleStore) -> Socket:
    base = scope.machine.sockets[0]
    rates = {tier: median_of(store, f"bandwidth {tier}, 1 lanes") for tier in ("l2", "l3", "dram")}
    together = [median_of(store, f"bandwidth dram, {lanes} lanes") for lanes in scope.lane_counts]
    calibration = _calibrate(scope, store, base.name, scope.lane_counts, core_start(base, rates))
    alone = {fit.precision: fit.costs for fit in calibration.fits if fit.lanes == 1}
    usual = alone.get("float32") or next(iter(alone.values()))
    return replace(
        base,
        core_flops_float32=usual.flops_per_s,
        core_flops_float64=_float64(alone, base.core_flops_float64 / base.core_flops_float32),
        half_batch=usual.half_batch,
        core_bandwidth_bytes_per_s=rates["dram"] or base.core_bandwidth_bytes_per_s,
        core_l3_bandwidth_bytes_per_s=usual.l3_bytes_per_s if base.l3_bytes else 0.0,
        dram_bandwidth_bytes_per_s=max([rate for rate in together if rate] or [base.dram_bandwidth_bytes_per_s]),
        step_overhead_s=usual.overhead_s + _TYPICAL_LAYERS * usual.layer_s,
        calibration=calibration,
    )


def _accelerator(scope: Scope, store: SampleStore, base: Accelerator, socket: Socket) -> Accelerator:
    memory = median_of(store, f"memory rate {base.name}") or base.memory_bandwidth_bytes_per_s
    if base.stand_in:
        tiers = {
            "l2": median_of(store, "bandwidth l2, 1 lanes"), "l3": median_of(store, "bandwidth l3, 1 lanes"),
            "dram": socket.core_bandwidth_bytes_per_s,
        }  # fmt: skip
        start = core_start(socket, tiers)
    else:
        start = accelerator_start(base, memory)
    calibration = _calibrate(scope, store, base.name, scope.beside(base), start)
    found = {fit.precision: fit.costs for fit in calibration.fits}
    usual = found.get("float32") or next(iter(found.values()))
    launch = median_of(store, f"launch {base.name}") or base.launch_s
    return replace(
        base,
        flops_float32=usual.flops_per_s,
        flops_float64=_float64(found, base.flops_float64 / base.flops_float32),
        half_batch=usual.half_batch,
        memory_bandwidth_bytes_per_s=usual.l3_bytes_per_s if base.stand_in and socket.l3_bytes else memory,
        launch_s=launch,
        kernels_per_layer=usual.layer_s / launch,
        calibration=calibration,
    )


def _float64(costs: dict[Precision, StepCosts], usual_ratio: float) -> float:
    if "float64" in costs:
        return costs["float64"].flops_per_s
    return usual_ratio * next(iter(costs.values())).flops_per_s


def core_start(socket: Socket, rates: dict[str, float | None]) -> StepFit:
    """Where the fit of a core begins: measured copies, the rate of products, and calls as torch's take on a core."""
    dram = rates["dram"] or socket.core_bandwidth_bytes_per_s
    l3 = rates["l3"] or dram
    costs = StepCosts(
        overhead_s=15e-6, layer_s=12e-6, l2_bytes_per_s=rates["l2"] or l3, l3_bytes_per_s=l3, dram_bytes_per_s=dram,
        flops_per_s=socket.core_flops_float32, half_batch=1.0, element_s=1e-9, row_s=5e-8,
    )  # fmt: skip
    return StepFit(
        precision="float32", lanes=1, fused=True, overlaps=False, l2_bytes=socket.l2_bytes, l3_bytes=socket.l3_bytes,
        batches=(1, 1), parameters=(1, 1), costs=costs,
    )  # fmt: skip


def accelerator_start(accelerator: Accelerator, memory_bytes_per_s: float) -> StepFit:
    """Where the fit of an accelerator begins: its data sheet; outputs of layers move four times through its memory."""
    costs = StepCosts(
        overhead_s=20e-6, layer_s=accelerator.kernels_per_layer * accelerator.launch_s,
        l2_bytes_per_s=3.0 * memory_bytes_per_s, l3_bytes_per_s=memory_bytes_per_s, dram_bytes_per_s=memory_bytes_per_s,
        flops_per_s=accelerator.flops_float32, half_batch=max(accelerator.half_batch, 1.0),
        element_s=16.0 / memory_bytes_per_s, row_s=1e-9,
    )  # fmt: skip
    return StepFit(
        precision="float32", lanes=1, fused=False, overlaps=True, l2_bytes=accelerator.l2_bytes, l3_bytes=0,
        batches=(1, 1), parameters=(1, 1), costs=costs,
    )  # fmt: skip


def _calibrate(
    scope: Scope, store: SampleStore, device: str, lane_counts: Sequence[int], start: StepFit
) -> Calibration:
    fits: list[StepFit] = []
    curves: list[StepCurve] = []
    for precision in dict.fromkeys(shape.precision for shape in scope.shapes):
        shapes = [shape for shape in scope.shapes if shape.precision == precision]
        for lanes in lane_counts:
            cells = [
                cell for shape in shapes for cell in scope.cells(shape)
                if (cell.device, cell.lanes) == (device, lanes) and store.count(str(cell))
            ]  # fmt: skip
            samples = {cell: _sample(store, cell) for cell in cells}
            kept = [sample for cell, sample in samples.items() if not cell.held_out]
            if not kept:
                continue
            fit = fit_steps(replace(start, precision=precision, lanes=lanes), kept)
            usual = fits[-1].costs.forward_share if fits else fit.costs.forward_share
            share = _forward_share(store, device, fit, shapes) or usual
            fits.append(replace(fit, costs=replace(fit.costs, forward_share=share)))
            curves += _curves(samples, shapes, fits[-1])
    if not fits:
        raise ValueError(f"calibration: no step of {device} was measured")
    return _with_errors(Calibration(fits=tuple(fits), curves=tuple(curves), slowdown=_slowdown(scope, store, device)))


def _slowdown(scope: Scope, store: SampleStore, device: str) -> float:
    """How many times as long steps take on average than at their best: the median over all that was timed."""
    ratios = []
    for shape in scope.shapes:
        for cell in scope.cells(shape):
            measured = store.all(str(cell)) if cell.device == device else []
            if measured:
                mean_s = float(np.mean([values[1] for values in measured]))
                ratios.append(mean_s / central([values[0] for values in measured]).value)
    return max(float(np.median(ratios)), 1.0)


def _sample(store: SampleStore, cell: Cell) -> StepSample:
    values = store.all(str(cell))
    found = central([value[0] for value in values])
    return StepSample(
        workload=cell.shape.workload(), batch=cell.batch, write=cell.write, seconds=found.value, spread=found.spread
    )


def _forward_share(store: SampleStore, device: str, fit: StepFit, shapes: Sequence[Shape]) -> float | None:
    """What a row of a loss costs as a share of its part of a step: the median over networks."""
    shares = []
    for shape in shapes:
        repeats = [values[0] for values in store.all(f"loss of {shape}, {device}, {fit.lanes} lanes")]
        if repeats:
            shares.append(central(repeats).value / row_seconds(fit.costs, shape.workload(), 1))
    return float(np.median(shares)) if shares else None


def _curves(samples: dict[Cell, StepSample], shapes: Sequence[Shape], fit: StepFit) -> list[StepCurve]:
    """The tables of the networks that were measured with so many lanes, each smoothed beside the fit."""
    curves = []
    noise = float(np.median([sample.spread for sample in samples.values()])) or _UNKNOWN_NOISE
    kinds: tuple[tuple[Write, bool], ...] = (("in_place", False), ("in_place", True), ("gradient", False))
    for shape in shapes:
        for write, held_out in kinds:
            found = sorted(
                (cell.batch, sample.seconds, sample.spread) for cell, sample in samples.items()
                if (cell.shape, cell.write, cell.held_out) == (shape, write, held_out)
            )  # fmt: skip
            if found:
                batches, seconds, spreads = zip(*found, strict=True)
                if not held_out:
                    fitted = [fit.step_s(shape.workload(), batch, write) for batch in batches]
                    ratios = [second / guess for second, guess in zip(seconds, fitted, strict=True)]
                    near = smoothed(batches, ratios, noise)
                    seconds = tuple(guess * ratio for guess, ratio in zip(fitted, near, strict=True))
                curves.append(
                    StepCurve(
                        shape=shape, lanes=fit.lanes, write=write, batches=batches, seconds=seconds, spreads=spreads,
                        held_out=held_out,
                    )
                )  # fmt: skip
    return curves


def _with_errors(calibration: Calibration) -> Calibration:
    """With the error at held-out batch sizes of what the calibration predicts, tables included."""
    fits = []
    for fit in calibration.fits:
        guesses, truths = [], []
        for curve in calibration.curves:
            if curve.held_out and (curve.shape.precision, curve.lanes) == (fit.precision, fit.lanes):
                for batch, seconds in zip(curve.batches, curve.seconds, strict=True):
                    guesses.append(calibration.best_s(curve.shape.workload(), batch, lanes=curve.lanes))
                    truths.append(seconds)
        fits.append(replace(fit, held_out_error=mean_absolute_error(guesses, truths)))
    return replace(calibration, fits=tuple(fits))
