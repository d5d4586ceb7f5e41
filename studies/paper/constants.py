"""The fitted constants of the two servers, what each was fitted to, and whether they carry to other data.

The values are in the machine files. To test them they are fitted anew on one data set, and predict the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from hetsgd.studies.paper.bars import Check, checks
from hetsgd.studies.paper.implementation import TENSORFLOW_EFFICIENCY, Setting, machine_of
from hetsgd.studies.paper.prediction import predict
from hetsgd.studies.paper.published import GPUS, figure

_ROUNDS: Final = 3
CARRIED: Final = ("cpu", "gpu", "cpu+gpu", "adaptive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A fitted constant: its name, where it counts, its value in words, and what it was fitted to."""

    name: str
    scope: str
    value: str
    fitted_to: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """Constants fitted on one data set only (`on`), and what they predict on it and on the others."""

    on: str
    dram_bytes_per_s: tuple[tuple[str, float], ...]
    efficiency: float
    checks: tuple[Check, ...]


def constants() -> list[Constant]:
    """At most two for each server and four that they share; the values are those of the machine files."""
    k80, v100 = machine_of("K80"), machine_of("V100")
    cores = [m.sockets[0].efficiency * m.sockets[0].core_flops_float64 for m in (k80, v100)]
    return [
        *(
            Constant(
                name="DRAM bandwidth that the model's home socket gives the lanes",
                scope=gpu,
                value=f"{machine_of(gpu).sockets[0].dram_bandwidth_bytes_per_s / 1e9:.1f} GB/s",
                fitted_to="the CPU epochs of covtype and w8a on that server",
                meaning="4 channels of DDR4-2400 have 76.8 GB/s",
            )
            for gpu in GPUS
        ),
        Constant(
            name="share of the double-precision peak that the GPU's products reach",
            scope="both",
            value=f"{k80.accelerators[0].efficiency:.2f}",
            fitted_to="the GPU epochs of covtype and w8a on both servers",
            meaning="large products reach 85 to 95 % of it",
        ),
        Constant(
            name="arithmetic of a core on the rows of its lanes' batches",
            scope="both",
            value=f"{sum(cores) / 2e9:.1f} GFLOP/s",
            fitted_to="Adaptive's epochs and shares of covtype and w8a on both servers",
            meaning="what matrix-vector products draw from L3 at 26 GB/s: 6 operations for 32 bytes",
        ),
        Constant(
            name="spread of a lane's step (sigma of its logarithm)",
            scope="both",
            value=f"{k80.noise.cpu_sigma:.2f}",
            fitted_to="the CPU utilization of Hogwild on covtype, K80 server",
            meaning="lanes wait for the slowest of their team",
        ),
        Constant(
            name="share of the double-precision peak that TensorFlow reaches",
            scope="both",
            value=f"{TENSORFLOW_EFFICIENCY:.2f}",
            fitted_to="the four TensorFlow epochs; no bar depends on it",
            meaning="not explained",
        ),
    ]


def carry(on: str, datasets: tuple[str, ...], settings: dict[str, Setting]) -> Carried:
    """Fit the DRAM bandwidth of each server and the GPUs' efficiency on data set `on`, predict all data sets.

    Epochs of the CPU are inversely proportional to the bandwidth and those of the GPU nearly so to the efficiency: a
    few rounds of correcting each by the ratio of predicted to published time find them.
    """
    rates = {gpu: machine_of(gpu).sockets[0].dram_bandwidth_bytes_per_s for gpu in GPUS}
    efficiency = machine_of("K80").accelerators[0].efficiency
    for _ in range(_ROUNDS):
        for gpu in GPUS:
            rates[gpu] *= _ratio(gpu, on, "cpu", settings[gpu], rates[gpu], efficiency)
    for _ in range(_ROUNDS):
        ratios = [_ratio(gpu, on, "gpu", settings[gpu], rates[gpu], efficiency) for gpu in GPUS]
        efficiency = min(1.0, efficiency * math.prod(ratios) ** (1.0 / len(ratios)))
    found: list[Check] = []
    for gpu in GPUS:
        machine = machine_of(gpu, _overrides(rates[gpu], efficiency))
        for dataset in datasets:
            for algorithm in CARRIED:
                predicted = predict(gpu, dataset, algorithm, settings[gpu], machine=machine)
                found += checks(gpu, dataset, algorithm, predicted)
    return Carried(on=on, dram_bytes_per_s=tuple(rates.items()), efficiency=efficiency, checks=tuple(found))


def _overrides(rate: float, efficiency: float) -> tuple[tuple[str, float], ...]:
    return (
        ("cpu0.dram_bandwidth_bytes_per_s", rate),
        ("cpu1.dram_bandwidth_bytes_per_s", rate),
        ("gpu0.efficiency", efficiency),
    )


def _ratio(gpu: str, dataset: str, algorithm: str, setting: Setting, rate: float, efficiency: float) -> float:
    """Predicted over published epoch time with these constants; 1 where nothing is published."""
    known = figure(dataset, gpu, algorithm, "epoch_s").number
    if known is None:
        return 1.0
    machine = machine_of(gpu, _overrides(rate, efficiency))
    return predict(gpu, dataset, algorithm, setting, machine=machine).epoch_s / known
