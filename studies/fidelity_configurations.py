"""The held-out configurations of the fidelity study: drawn by a seeded generator, never those of the pilots."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from hetsgd.models.stability import largest_rate
from hetsgd.models.streams import stream
from hetsgd.models.surrogates.calibration import Calibration
from hetsgd.studies.pilots import PILOT_SEED

SETS: Final[dict[str, tuple[tuple[str, Any], ...]]] = {
    "quickstart": (),
    "w8a": (
        ("workload.hidden", "32x2"),
        ("workload.precision", "float32"),
        ("workload.activation", "tanh"),
        ("workload.initial", "scaled"),
        ("workload.initial_scale", 1.0),
    ),
    "letter": (("workload.hidden", "32x2"), ("workload.test_fraction", 0.0)),
    "mnist10k": (("workload.hidden", "32x2"), ("workload.test_fraction", 0.0)),
}
"""Data sets with nets that are small enough for a replay of seconds."""

MACHINES: Final = ("ucmerced-k80", "aws-p3.16xlarge")
POLICIES: Final = ("hogwild", "hogbatch", "adaptive-hogbatch", "synchronous", "backup-workers", "ringmaster", "easgd")
_LANES: Final = (2, 4, 8)
_CPU_BATCHES: Final = (1, 4, 16)
_ACCELERATOR_BATCHES: Final = (64, 256)
_COOLEST, _HOTTEST = 0.05, 0.3
_ROWS: Final = 60_000
"""Rows that a replay works through: seconds on one core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One run of the study without its seed. `settings` are those of `--set`."""

    workload: str
    machine: str
    policy: str
    settings: tuple[tuple[str, Any], ...]
    updates: int

    @property
    def key(self) -> str:
        """Who it is (hex): the same for the same run under any seed."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def words(self) -> str:
        """In a few words."""
        given = dict(self.settings)
        sizes = "/".join(str(value) for name, value in given.items() if name.endswith("batch"))
        lanes, rate = given["machine.cpu_lanes"], given["run.learning_rate"]
        return f"{self.workload} {self.machine.split('-')[0]} {self.policy} x{lanes} b{sizes} {rate:.2g}"


def draw(
    count: int, seed: int, calibrations: Mapping[str, Calibration], used: Sequence[int] = ()
) -> tuple[Configuration, ...]:
    """`count` configurations of the data sets in `calibrations`, each set as often as the others.

    Learning rates are drawn between 0.05 and 0.3 of the largest stable one of the smallest batch that steps on its
    own, in the logarithm. `used` are seeds of replays: ValueError when one of them is the pilots'.
    """
    if PILOT_SEED in used:
        raise ValueError(f"fidelity: seed {PILOT_SEED} belongs to the pilots, choose others than it and those after it")
    generator = stream(seed, "fidelity")
    names = list(calibrations)
    found = []
    for index in range(count):
        name = names[index % len(names)]
        found.append(_draw_one(name, calibrations[name], generator))
    return tuple(found)


def _draw_one(name: str, calibration: Calibration, generator: np.random.Generator) -> Configuration:
    machine = MACHINES[int(generator.integers(len(MACHINES)))]
    policy = POLICIES[int(generator.integers(len(POLICIES)))]
    lanes = int(generator.choice(_LANES))
    cpu, accelerator = int(generator.choice(_CPU_BATCHES)), int(generator.choice(_ACCELERATOR_BATCHES))
    first = calibration.statistics[0]
    share = float(np.exp(generator.uniform(np.log(_COOLEST), np.log(_HOTTEST))))
    rate = float(f"{share * largest_rate(first.curvature, first.row_curvature, cpu):.3g}")
    settings: dict[str, Any] = {"machine.cpu_lanes": lanes, "policy.cpu_batch": cpu, "run.learning_rate": rate}
    rows = cpu
    if policy != "hogwild":
        settings["policy.accelerator_batch"] = accelerator
    if policy == "adaptive-hogbatch":
        settings["policy.accelerator_lower"], settings["policy.accelerator_upper"] = 32, 512
    if policy in ("synchronous", "backup-workers"):
        rows = lanes * cpu + accelerator
    if policy == "easgd":
        settings["policy.steps"] = 5
        rows = 5 * (lanes * cpu + accelerator) // 2
    updates = int(np.clip(_ROWS // rows, 150, 6000))
    return Configuration(
        workload=name, machine=machine, policy=policy, settings=(*SETS[name], *settings.items()), updates=updates
    )
