"""The paper's implementation as plans of the simulator: what its authors' code does, as options that exist anyway.

Read in the authors' code: float64, no bias, rows in file order, copies that are pageable and overlap with nothing, a
replica copied back over the model, the loss on the GPU at the end of each epoch in chunks of 4096 rows while the CPU
waits, a team of 48 CPU threads that ends an assignment together. Recalled: 6, 8, 8 and 4 hidden layers. Assumed: what
TensorFlow does (`resident.py`), one die of the K80, one thread for each of the 64 logical CPUs of the V100 server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

from hetsgd.models.machine_file import load_machine
from hetsgd.models.plan import Plan
from hetsgd.models.policies import recipe
from hetsgd.models.run import RunSettings, StopRule
from hetsgd.models.workload_file import load_workload
from hetsgd.studies.paper.resident import Resident

if TYPE_CHECKING:
    from hetsgd.models.machine import Machine
    from hetsgd.models.policy import Recipe
    from hetsgd.models.workload import Workload

MACHINES: Final[Mapping[str, str]] = {"K80": "ucmerced-k80", "V100": "aws-p3.16xlarge"}
EPOCHS: Final = 3
TENSORFLOW_EFFICIENCY: Final = 0.45
"""Share of the double-precision peak that TensorFlow 1.13 reaches here, fitted to its four published epochs."""

# Epochs of the CPU alone take minutes of virtual time in which every assignment is like the others.
_CPU_ASSIGNMENTS: Final = 200
_RATE: Final = 0.01

Start = Literal["hogbatch", "balanced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the paper does not publish of a server: one setting for all data sets.

    `batch`: rows of a GPU batch of all algorithms but Adaptive. Of Adaptive: `lower` and `upper` threshold of the GPU
    batch, `cpu_upper` of the rows per thread (the lower one is 1), `beta`, what its counts are of, and where it
    starts: from the batches of CPU+GPU Hogbatch (1 row per thread, the upper threshold) or from those that balance
    soonest (`cpu_upper` rows per thread, the lower threshold).
    """

    batch: int
    lower: int
    upper: int
    cpu_upper: int
    beta: float = 1.0
    counts: Literal["epoch", "run"] = "epoch"
    start: Start = "hogbatch"

    def adaptive(self) -> dict[str, Any]:
        """The keys of the policy `adaptive-hogbatch`."""
        as_hogbatch = self.start == "hogbatch"
        return {
            "accelerator_lower": self.lower,
            "accelerator_upper": self.upper,
            "accelerator_batch": self.upper if as_hogbatch else self.lower,
            "cpu_upper": self.cpu_upper,
            "cpu_batch": 1 if as_hogbatch else self.cpu_upper,
            "beta": self.beta,
            "counts": self.counts,
        }


SETTINGS: Final[Mapping[str, Setting]] = {
    "K80": Setting(batch=8192, lower=384, upper=512, cpu_upper=32, start="balanced"),
    "V100": Setting(batch=4096, lower=256, upper=384, cpu_upper=192, counts="run"),
}
"""What stands for each server after the whole search."""


@lru_cache(maxsize=8)
def workload_of(dataset: str) -> Workload:
    """The paper's network on a data set as the authors' code keeps it: dense, all rows for training."""
    return replace(load_workload(dataset, data=False).workload, sparse=False, density=1.0, test_rows=0)


@lru_cache(maxsize=64)
def machine_of(gpu: str, overrides: tuple[tuple[str, float], ...] = ()) -> Machine:
    """The server with this GPU, with overrides as `machine.KEY=V` has them."""
    return load_machine(MACHINES[gpu], dict(overrides))


def plan_of(gpu: str, dataset: str, algorithm: str, setting: Setting, *, machine: Machine | None = None) -> Plan:
    """One cell of the paper's evaluation: three epochs, or (CPU alone) enough assignments for their rate."""
    on = machine_of(gpu) if machine is None else machine
    policy, made = _policy(algorithm, setting)
    run = RunSettings(
        stop=StopRule(epochs=EPOCHS), learning_rate=_RATE, order="file", lanes="barrier", lookahead=0,
        evaluation="blocking", trace="summary",
    )  # fmt: skip
    if algorithm == "cpu":
        run = replace(run, stop=StopRule(updates=_CPU_ASSIGNMENTS * on.cpu_lanes), evaluation="deferred")
    if algorithm == "tensorflow":
        on = _for_tensorflow(on)
    return Plan(machine=on, workload=workload_of(dataset), policy=policy, recipe=made, run=run)


def _policy(algorithm: str, setting: Setting) -> tuple[str, Recipe]:
    if algorithm == "cpu":
        return "hogwild", recipe("hogwild", cpu_batch=1)
    if algorithm == "gpu":
        return "minibatch", recipe("minibatch", accelerator_batch=setting.batch)
    if algorithm == "tensorflow":
        return "resident", Resident(accelerator_batch=setting.batch)
    if algorithm == "cpu+gpu":
        return "hogbatch", recipe("hogbatch", cpu_batch=1, accelerator_batch=setting.batch)
    return "adaptive-hogbatch", recipe("adaptive-hogbatch", **setting.adaptive())


def _for_tensorflow(machine: Machine) -> Machine:
    """Kernels are launched ahead, so that launches cost nothing; products reach a smaller share of the peak."""
    cards = tuple(replace(card, launch_s=0.0, efficiency=TENSORFLOW_EFFICIENCY) for card in machine.accelerators)
    return replace(machine, accelerators=cards)
