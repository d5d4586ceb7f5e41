"""From names and settings, as a person gives them, to a plan that an engine can run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hetsgd.models.edge import nearest
from hetsgd.models.machine_names import LOCAL
from hetsgd.models.run import StopRule
from hetsgd.studies.failure import BadInput, checking
from hetsgd.studies.policy_error import policy_faults
from hetsgd.studies.policy_file import load_policy

if TYPE_CHECKING:
    from hetsgd.models.data.dataset import Dataset
    from hetsgd.models.machine import Accelerator, Machine
    from hetsgd.models.plan import Plan
    from hetsgd.models.workload_file import LoadedWorkload

DEFAULT_STOP: Final = StopRule(seconds=5.0)
LEARNERS: Final = ("replay", "surrogate", "none")
_WITHOUT_DATA: Final = ("none", "surrogate")
_DRIVER_FILES: Final = ("/dev/nvidiactl", "/dev/kfd", "/dev/dri/renderD128")
_OWNERS: Final = ("policy", "run", "workload", "machine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One run as it is asked for. `settings` are the pairs of `--set`; values may be text or typed.

    `learner` is `replay`, `surrogate` or `none` for the simulator and `real` for training on hardware.
    """

    machine: str
    workload: str
    policy: str
    settings: tuple[tuple[str, Any], ...] = ()
    learner: str = "replay"
    stop: StopRule | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A run that is fully resolved and checked; `data` loads the data set (once).

    `machine_set`: the keys of `machine.KEY` settings, whose figures were chosen and not detected.
    """

    plan: Plan
    learner: str
    data: Callable[[], Dataset]
    machine_set: tuple[str, ...] = ()


def resolve(ask: Ask, *, check: bool = True) -> Ready:
    """Resolve and check a run before anything is computed.

    Raises BadInput where a name, a setting or their combination breaks a rule.
    """
    _check_learner(ask.learner)
    parts = split_settings(ask.settings)
    with checking():
        from hetsgd.models.plan import Plan
        from hetsgd.models.run_file import run_settings

        machine = _machine(ask.machine, tuple(parts["machine"].items()))
        loaded = _workload(ask.workload, tuple(parts["workload"].items()), ask.learner not in _WITHOUT_DATA)
        run_values = dict(parts["run"]) if ask.seed is None else {**parts["run"], "seed": ask.seed}
        defaults = dict(loaded.run)
        stop = ask.stop
        if stop is None and not _names_a_stop(defaults) and not _names_a_stop(run_values):
            stop = DEFAULT_STOP
        settings = run_settings(run_values, defaults=defaults, stop=stop)
        plan = Plan(
            machine=machine,
            workload=loaded.workload,
            policy=ask.policy,
            recipe=load_policy(ask.policy, parts["policy"]),
            run=settings,
        )
    if check:
        check_plan(plan, ask.learner)
    return Ready(plan=plan, learner=ask.learner, data=loaded.data, machine_set=tuple(parts["machine"]))


def data_of(ask: Ask) -> Callable[[], Dataset]:
    """The way to the data of a run, without resolving the rest."""
    workload = split_settings(ask.settings)["workload"]
    with checking():
        return _workload(ask.workload, tuple(workload.items()), ask.learner not in _WITHOUT_DATA).data


def machine_here() -> Machine:
    """The machine at hand with the accelerators that torch finds."""
    with checking():
        return _machine(LOCAL, ())


@lru_cache(maxsize=8)
def _machine(name: str, overrides: tuple[tuple[str, Any], ...]) -> Machine:
    from hetsgd.models.machine_file import load_machine

    if name == LOCAL and may_have_accelerators():
        from hetsgd.real.devices import find_accelerators

        return load_machine(name, dict(overrides), accelerators=find_accelerators())
    return load_machine(name, dict(overrides))


def may_have_accelerators() -> bool:
    """Whether it is worth loading torch to look for accelerators: a driver's files are there, or this is a Mac."""
    return sys.platform == "darwin" or any(Path(name).exists() for name in _DRIVER_FILES)


@lru_cache(maxsize=4)
def _workload(name: str, overrides: tuple[tuple[str, Any], ...], data: bool) -> LoadedWorkload:
    """Kept, since a study resolves many runs of one workload, whose data take a while to load."""
    from hetsgd.models.workload_file import load_workload

    return load_workload(name, dict(overrides), data=data)


def check_plan(plan: Plan, learner: str) -> None:
    """Raise BadInput where machine, policy and run settings do not suit each other, before anything runs."""
    from hetsgd.models.coordinator import check_recipe
    from hetsgd.models.footprint import check_capacity

    with checking():
        fleet = plan.fleet()
        check_recipe(plan.recipe, fleet, plan.run)
        with policy_faults(plan):
            plan.recipe.begin(fleet)
        check_capacity(plan)
    if learner == "real":
        check_here(plan)
    if learner == "surrogate":
        from hetsgd.models.surrogates.calibration_file import find_calibration

        with checking():
            calibration = find_calibration(plan.workload)
            calibration.check(plan, calibration.preferred)
    if learner == "none":
        if plan.run.stop.target_loss is not None:
            raise BadInput("--target-loss: learner none computes no loss, so it cannot stop the run; use replay")
        if plan.recipe.reads_losses:
            raise BadInput(f"--learner: policy {plan.policy} reads losses, which learner none does not compute")


def check_here(plan: Plan) -> None:
    """Raise BadInput where the machine at hand lacks a device or the cores that the plan's workers stand for."""
    from hetsgd.models.machine_local import available_cores

    fleet, machine = plan.fleet(), plan.machine
    lanes, cores = sum(member.lanes for member in fleet.members if member.kind == "cpu"), available_cores()
    if lanes > cores:
        raise BadInput(
            f"machine {machine.name}: a real run needs a core for each CPU lane, got {lanes} lanes on {cores} usable "
            f"cores; give --cpu-lanes {cores} or machine.cpu_lanes, or simulate it"
        )
    used = [machine.accelerator(member.name) for member in fleet.members if member.kind == "accelerator"]
    if all(accelerator.stand_in for accelerator in used):
        return
    here: tuple[Accelerator, ...] = ()
    if may_have_accelerators():
        from hetsgd.real.devices import find_accelerators

        here = find_accelerators()
    names = {found.device for found in here}
    for accelerator in used:
        if not accelerator.stand_in and accelerator.device not in names:
            raise BadInput(
                f"machine {machine.name}: accelerator {accelerator.name} is device {accelerator.device!r}, which this "
                f"machine does not have (found: {', '.join(sorted(names)) or 'none'}); give --accelerators cpu for a "
                "stand-in, or simulate it"
            )


def split_settings(settings: Sequence[tuple[str, Any]]) -> dict[str, dict[str, Any]]:
    """The settings by what they belong to: policy, run, workload, machine; later ones win.

    >>> split_settings([("run.lookahead", 1), ("policy.alpha", 2)])["policy"]
    {'alpha': 2}
    """
    parts: dict[str, dict[str, Any]] = {owner: {} for owner in _OWNERS}
    for key, value in settings:
        owner, dot, name = key.partition(".")
        if not dot or not name:
            raise BadInput(f"--set: {key}: must be OWNER.KEY with OWNER one of {', '.join(_OWNERS)}")
        if owner not in parts:
            raise BadInput(f"--set: {key}: no such owner {owner!r}, {nearest(owner, _OWNERS)}")
        parts[owner][name] = value
    return parts


def with_machine(ready: Ready, **changes: Any) -> Ready:
    """The same run on a machine with some values changed (as `train --cpu-lanes` does)."""
    with checking():
        machine = replace(ready.plan.machine, **changes)
    return replace(ready, plan=replace(ready.plan, machine=machine))


def _names_a_stop(values: Mapping[str, Any]) -> bool:
    return any(values.get(key) is not None for key in ("seconds", "epochs", "updates"))


def _check_learner(learner: str) -> None:
    if learner not in (*LEARNERS, "real"):
        raise BadInput(f"--learner: {learner!r} is no learner, {nearest(learner, LEARNERS)}")
