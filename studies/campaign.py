"""Run a whole study: pilots, the runs that answer the question, real runs, and the folder that holds it all."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hetsgd.models.machine_names import LOCAL
from hetsgd.models.run import StopRule, TraceLevel
from hetsgd.studies.case import Case, Role
from hetsgd.studies.event_order import with_event_orders
from hetsgd.studies.record import StoredRun
from hetsgd.studies.results import Panel, panels_of
from hetsgd.studies.runner import Runner, Task
from hetsgd.studies.screen import say
from hetsgd.studies.study import Study, Validation
from hetsgd.studies.tuning import Choice, choose, pilot_cases, untuned
from hetsgd.studies.validation import Validation as Validated
from hetsgd.studies.validation import validate_panel


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResult:
    """A study with everything it found. `found` has every run, pilots included; `failures` those that broke."""

    study: Study
    found: Mapping[Case, StoredRun]
    choices: tuple[Choice, ...]
    failures: tuple[str, ...]
    wall_s: float

    @property
    def panels(self) -> tuple[Panel, ...]:
        """The results by machine and workload."""
        return panels_of(self.found, self.study.level)

    @property
    def validations(self) -> tuple[Validated, ...]:
        """Predicted against measured, where there are real runs."""
        return tuple(validate_panel(panel, self.study.level) for panel in self.panels if panel.measured)


def run_campaign(study: Study, runner: Runner) -> StudyResult:
    """Run what is not there yet, and hand back everything.

    Raises BadInput before anything runs where a policy, machine or setting is wrong.
    """
    begun_s = time.perf_counter()
    pilots = [Task(case=case, stop=study.pilot_stop_on(case.machine), trace="none") for case in pilot_cases(study)]
    runner.resolve_all([*pilots, *_runs(study, untuned(study), study.seeds[:1])])
    if study.validation is not None:
        runner.check_real(_measurements(study, study.validation, untuned(study)))
    if LOCAL in study.machines:
        runner.settle_local(study.calibrate_minutes, study.workloads)
    found: dict[Case, StoredRun] = {}
    choices = untuned(study)
    if pilots:
        say(f"pilots: {len(pilots)} short runs, {len(pilots) // len(study.variants)} for each policy")
        found |= runner.simulate("pilots", pilots)
        choices = choose(study, found)
    found |= runner.simulate("simulation", [*_runs(study, choices, study.seeds), *_predictions(study, choices)])
    if study.validation is not None:
        found |= _measured(study, study.validation, choices, runner)
    return StudyResult(
        study=study, found=found, choices=choices, failures=tuple(runner.failures),
        wall_s=time.perf_counter() - begun_s,
    )  # fmt: skip


def _measured(study: Study, validation: Validation, choices: Sequence[Choice], runner: Runner) -> dict[Case, StoredRun]:
    """The real runs, and the losses that the order of events of each implies."""
    tasks = _measurements(study, validation, choices)
    runs = runner.measure("real runs", tasks)
    plans = {task.case: ready.plan for task, ready in zip(tasks, runner.resolve_all(tasks), strict=True)}
    return with_event_orders(runs, plans, runner.workers)


def _runs(study: Study, choices: Sequence[Choice], seeds: Sequence[int]) -> list[Task]:
    """The runs that answer the question."""
    cases = [_case(choice, "run", seed) for seed in seeds for choice in choices]
    return [Task(case=case, stop=study.stop_on(case.machine), trace=_trace_of(study, case)) for case in cases]


def _predictions(study: Study, choices: Sequence[Choice]) -> list[Task]:
    """The simulated runs beside the real ones; where these stop as all runs do, they are the same runs."""
    validation = study.validation
    if validation is None:
        return []
    return [
        Task(case=_case(choice, "predicted", seed), stop=_stop(study, validation), trace=trace)
        for seed in dict.fromkeys(_seeds(study, validation))
        for choice in choices
        if choice.machine == validation.machine
        for trace in [_trace_of(study, _case(choice, "predicted", seed))]
    ]


def _measurements(study: Study, validation: Validation, choices: Sequence[Choice]) -> list[Task]:
    """The real runs, interleaved: what changes on the machine over time meets every policy."""
    return [
        Task(case=_case(choice, "measured", seed, repeat), stop=_stop(study, validation), trace="full")
        for repeat, seed in enumerate(_seeds(study, validation))
        for choice in choices
        if choice.machine == validation.machine
    ]


def _seeds(study: Study, validation: Validation) -> list[int]:
    return [study.seeds[repeat % len(study.seeds)] for repeat in range(validation.repeats)]


def _stop(study: Study, validation: Validation) -> StopRule:
    return validation.stop or study.stop_on(validation.machine)


def _trace_of(study: Study, case: Case) -> TraceLevel:
    """The first seed keeps its whole trace, for the figures over time."""
    return "full" if case.seed == study.seeds[0] else "none"


def _case(choice: Choice, role: Role, seed: int, repeat: int = 0) -> Case:
    return Case(
        role=role,
        machine=choice.machine,
        workload=choice.workload,
        label=choice.label,
        policy=choice.policy,
        seed=seed,
        settings=choice.settings,
        repeat=repeat,
    )
