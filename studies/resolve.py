"""From names and settings, as a person gives them, to a plan that an engine can run."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hetsgd.models.edge import nearest
from hetsgd.models.machine_names import LOCAL
from hetsgd.models.run import StopRule, seed_problem
from hetsgd.studies.disturbance import disturbed_words
from hetsgd.studies.failure import BadInput, checking
from hetsgd.studies.policy_error import policy_faults
from hetsgd.studies.policy_file import load_policy
from hetsgd.studies.screen import say

if TYPE_CHECKING:
    from hetsgd.models.data.dataset import Dataset
    from hetsgd.models.machine import Accelerator, Machine
    from hetsgd.models.plan import Plan
    from hetsgd.models.workload_file import LoadedWorkload

DEFAULT_STOP: Final = StopRule(seconds=5.0)
SET: Final = "--set"
LEARNERS: Final = ("replay", "surrogate", "none")
_WITHOUT_DATA: Final = ("none", "surrogate")
_DRIVER_FILES: Final = ("/dev/nvidiactl", "/dev/kfd", "/dev/dri/renderD128")
_OWNERS: Final = ("policy", "run", "workload", "machine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One run as it is asked for. `settings` are the pairs of `--set`; values may be text or typed.

    `learner` is `replay`, `surrogate` or `none` for the simulator and `real` for training on hardware. `origin`: what
    gives the settings, for messages (a study gives the name of its file).
    """

    machine: str
    workload: str
    policy: str
    settings: tuple[tuple[str, Any], ...] = ()
    learner: str = "replay"
    stop: StopRule | None = None
    seed: int | None = None
    origin: str = SET


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A run that is fully resolved and checked; `data` loads the data set (once).

    `machine_set`: the keys of `machine.KEY` settings, whose figures were chosen and not detected. `notices`: what a
    person should know about it.
    """

    plan: Plan
    learner: str
    data: Callable[[], Dataset]
    machine_set: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


def resolve(ask: Ask, *, check: bool = True) -> Ready:
    """Resolve and check a run before anything is computed.

    Raises BadInput where a name, a setting or their combination breaks a rule.
    """
    check_learner(ask.learner)
    if ask.seed is not None and (problem := seed_problem(ask.seed)):
        raise BadInput(f"--seed: {problem}")
    with _told_of(ask.origin), checking():
        parts = split_settings(ask.settings)
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
    notices = [loaded.notice] if loaded.notice else []
    if ask.machine == LOCAL:
        from hetsgd.models.machine_file import local_words

        notices.append(local_words(parts["machine"]))
    if ask.learner != "real" and machine.calibrated is not None:
        words = disturbed_words(machine.calibrated.disturbed)
        notices += [f"the calibration of {machine.name} was disturbed: {words}; its times may be off"] if words else []
    with _told_of(ask.origin):
        notices += _check_batches(plan, parts["policy"])
    if check:
        with _told_of(ask.origin):
            check_plan(plan, ask.learner, workload=_as_typed(ask.workload, parts["workload"]))
    return Ready(
        plan=plan, learner=ask.learner, data=loaded.data, machine_set=tuple(parts["machine"]), notices=tuple(notices)
    )


def data_of(ask: Ask) -> Callable[[], Dataset]:
    """The way to the data of a run, without resolving the rest."""
    with _told_of(ask.origin), checking():
        workload = split_settings(ask.settings)["workload"]
        return _workload(ask.workload, tuple(workload.items()), ask.learner not in _WITHOUT_DATA).data


@contextmanager
def _told_of(origin: str) -> Iterator[None]:
    """Name the file of a study in what is wrong with it; readers say `--set`, where settings mostly come from."""
    try:
        yield
    except BadInput as error:
        text = str(error)
        if origin == SET or text.startswith(f"{origin}:"):
            raise
        raise BadInput(origin + text.removeprefix(SET) if text.startswith(SET) else f"{origin}: {text}") from error


def tell(ready: Ready) -> None:
    """Log what a run trains on, with the class balance, and what a person should know about it; once for all runs."""
    for notice in ready.notices:
        _tell(f"note: {notice}")
    if ready.learner in ("replay", "real"):
        with checking():
            _tell(ready.data().summary())


@lru_cache(maxsize=64)
def _tell(text: str) -> None:
    say(text)


def _check_batches(plan: Plan, given: Mapping[str, Any]) -> list[str]:
    """Raise BadInput for a batch that was asked for and is larger than the data; a default is cut, which is told."""
    recipe: Any = plan.recipe
    rows, notices = plan.workload.rows, []
    for key in [field.name for field in fields(recipe)] if is_dataclass(recipe) else []:
        value = getattr(recipe, key)
        if not key.endswith("batch") or not isinstance(value, int) or value <= rows:
            continue
        if key in given:
            raise BadInput(
                f"{SET}: policy.{key} must be at most {rows}, the training rows of workload {plan.workload.name}, "
                f"got {value}"
            )
        notices.append(f"policy.{key} is {value} and workload {plan.workload.name} has {rows} rows: one batch is all")
    return notices


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


def _as_typed(workload: str, overrides: Mapping[str, Any]) -> str:
    """The workload as a command line names it."""
    return " ".join([workload, *(f"{SET} workload.{key}={value}" for key, value in overrides.items())])


def check_plan(plan: Plan, learner: str, *, workload: str = "") -> None:
    """Raise BadInput where machine, policy and run settings do not suit each other, before anything runs.

    `workload`: how it was named, for messages.
    """
    from hetsgd.models.contract import begun, check_recipe
    from hetsgd.models.footprint import check_capacity

    with checking():
        fleet = plan.fleet()
        check_recipe(plan.recipe, fleet, plan.run)
        with policy_faults(plan, BadInput):
            begun(plan.recipe, fleet)
        check_capacity(plan)
    if learner == "real":
        check_here(plan)
    if learner == "surrogate":
        from hetsgd.models.surrogates.calibration_file import find_calibration

        with checking():
            calibration = find_calibration(plan.workload, workload)
            calibration.check(plan, calibration.preferred)
    if learner in ("replay", "real"):
        _check_memory(plan, learner)
    if learner == "none":
        if plan.run.stop.target_loss is not None:
            raise BadInput("--target-loss: learner none computes no loss, so it cannot stop the run; use replay")
        if plan.recipe.reads_losses:
            raise BadInput(f"--learner: policy {plan.policy} reads losses, which learner none does not compute")


def _check_memory(plan: Plan, learner: str) -> None:
    """Raise BadInput where this host cannot hold what computing the gradients takes, whatever the machine simulated.

    Replay holds the initial, the global and a working model; a real run the shared one and a gradient per lane.
    """
    from hetsgd.models.footprint import check_memory_here
    from hetsgd.models.machine_local import memory_bytes

    members = plan.fleet().members
    lanes = sum(member.lanes for member in members if member.kind == "cpu")
    own = 2 * sum(member.kind == "accelerator" and plan.machine.accelerator(member.name).stand_in for member in members)
    with checking():
        check_memory_here(plan, memory_bytes(), copies=3 if learner == "replay" else 2 + lanes + own)


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
            raise BadInput(f"--set: {key}: must be OWNER.KEY with OWNER one of {', '.join(_OWNERS)}{_likely(key)}")
        if owner not in parts:
            raise BadInput(f"--set: {key}: no such owner {owner!r}, {nearest(owner, _OWNERS)}{_likely(name)}")
        parts[owner][name] = value
    return parts


def _likely(name: str) -> str:
    """The key that was probably meant: the one of this name, or of the nearest, whoever owns it."""
    from hetsgd.models.policies import POLICIES
    from hetsgd.models.run_file import RUN_KEYS
    from hetsgd.models.workload_table import WORKLOAD_KEYS

    policy = [key.name for info in POLICIES.values() for key in info.parameters()]
    machine = ("cpu_lanes", "accelerators", "message_s", "decision_s", "pinned", "weights_on", "cpu_sigma")
    keys = {"policy": policy, "run": RUN_KEYS, "workload": WORKLOAD_KEYS, "machine": machine}
    owners = {key: f"{owner}.{key}" for owner, own in reversed(keys.items()) for key in own}
    close = difflib.get_close_matches(name, owners, n=1)
    return f"; did you mean {owners[close[0]]!r}?" if close else ""


def with_machine(ready: Ready, **changes: Any) -> Ready:
    """The same run on a machine with some values changed (as `train --cpu-lanes` does)."""
    with checking():
        machine = replace(ready.plan.machine, **changes)
    return replace(ready, plan=replace(ready.plan, machine=machine))


def _names_a_stop(values: Mapping[str, Any]) -> bool:
    return any(values.get(key) is not None for key in ("seconds", "epochs", "updates"))


def check_learner(learner: str, field: str = "--learner") -> None:
    """Raise BadInput for what is no learner, naming the nearest."""
    if learner not in (*LEARNERS, "real"):
        raise BadInput(f"{field}: {learner!r} is no learner, {nearest(learner, LEARNERS)}")
