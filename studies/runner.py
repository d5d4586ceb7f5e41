"""Run the cases of a study, in parallel where they are simulated, and keep each result under the key of its inputs.

A folder `runs/<key>` with a `run.json` is a whole result: a second start, or one after a kill, takes it from there.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsgd.models.machine_names import LOCAL
from hetsgd.models.run import StopRule, TraceLevel
from hetsgd.models.words import counted
from hetsgd.studies.case import Case, case_key
from hetsgd.studies.failure import BadInput, NotSaved, RunFailed, checking
from hetsgd.studies.machine_writer import machine_text
from hetsgd.studies.pool import Outcome, run_all
from hetsgd.studies.record import OutputError, StoredRun, read_run
from hetsgd.studies.resolve import SET, Ask, Ready, data_of, machine_here, resolve, split_settings, tell
from hetsgd.studies.screen import Meter, say

if TYPE_CHECKING:
    from hetsgd.models.plan import Plan
    from hetsgd.studies.execute import Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A case with what its run needs beside: when it stops, and the level of its trace."""

    case: Case
    stop: StopRule
    trace: TraceLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A simulated run for another process: what was asked, the plan it resolved to, and where results go."""

    ask: Ask
    plan: Plan
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsaved:
    """A result that could not be stored, and why: it counts in this process, and is run again by the next one."""

    record: Mapping[str, Any]
    resolved: Mapping[str, Any]
    reason: str


def perform(job: Job) -> Unsaved | None:
    """Run a job and write its folder; called in a child process. Returns the result where it cannot be written."""
    from hetsgd.studies.execute import run_simulated

    keys = tuple(split_settings(job.ask.settings)["machine"])
    ready = Ready(plan=job.plan, learner=job.ask.learner, data=data_of(job.ask), machine_set=keys)
    return stored(run_simulated(ready), job.folder)


def stored(finished: Finished, folder: Path) -> Unsaved | None:
    """Write the folder of a finished run; returns the result where that fails."""
    record = finished.record()
    try:
        finished.save(folder, record)
    except NotSaved as error:
        return Unsaved(record=record, resolved=finished.resolved(), reason=str(error))
    return None


@dataclass(slots=True)
class Runner:
    """Runs cases into `folder`. `cluster`: the address of a Dask scheduler, or None for processes here.

    `origin`: what gives the settings of the cases, for messages.
    """

    folder: Path
    learner: str
    workers: int
    cluster: str | None = None
    origin: str = SET
    failures: list[str] = field(default_factory=list)
    unsaved: dict[Path, Unsaved] = field(default_factory=dict)

    def resolve_all(self, tasks: Sequence[Task]) -> list[Ready]:
        """Resolve and check runs before any of them starts; BadInput where one is wrong."""
        return [resolve(self._ask(task)) for task in tasks]

    def check_real(self, tasks: Sequence[Task]) -> None:
        """Check real runs before any of them starts; BadInput where this machine cannot do one."""
        for task in tasks:
            resolve(replace(self._ask(task), learner="real"))

    def settle_local(self, minutes: float, workloads: Sequence[str]) -> None:
        """Write the machine file that stands for `local` in this folder, unless it is there already.

        `minutes` > 0: the machine is calibrated for the workloads for so long. What was resolved before was resolved
        on `local` as it is elsewhere. Raises BadInput, RunFailed.
        """
        path = self._local
        if path.is_file():
            return
        with checking(f"--out: {path}"):
            path.parent.mkdir(parents=True, exist_ok=True)
        if minutes:
            self._calibrate(minutes, workloads)
            return
        text = machine_text(machine_here(), origin="detected on the machine at hand")
        with checking(f"--out: {path}"):
            part = path.with_suffix(".part")
            part.write_text(text, encoding="utf-8")
            part.replace(path)

    def _calibrate(self, minutes: float, workloads: Sequence[str]) -> None:
        from hetsgd.studies import calibration

        try:
            machine = calibration.calibrate_here(self._local, minutes, calibration.dense_of(workloads))
        except calibration.Interrupted as error:
            raise KeyboardInterrupt from error
        for line in calibration.error_words(machine):
            say(line)

    @property
    def _local(self) -> Path:
        return self.folder / "machines" / f"{LOCAL}.toml"

    def simulate(self, title: str, tasks: Sequence[Task]) -> dict[Case, StoredRun]:
        """Run what is not there yet; returns all that have a result, in the order of `tasks`."""
        jobs: dict[Path, tuple[Job, Case]] = {}
        folders: dict[Case, Path] = {}
        for task, ready in zip(tasks, self.resolve_all(tasks), strict=True):
            tell(ready)
            folder = folders[task.case] = self.folder_of(task.case, ready)
            if not _there(folder):
                jobs[folder] = Job(ask=self._ask(task), plan=ready.plan, folder=folder), task.case
        runs = len(set(folders.values()))
        if len(jobs) < runs:
            say(f"{title}: {runs - len(jobs)} of {counted(runs, 'run is')} there already")
        if jobs:
            self._perform_all(title, [job for job, _ in jobs.values()], [case for _, case in jobs.values()])
        return {case: run for case, folder in folders.items() if (run := self._result(folder)) is not None}

    def measure(self, title: str, tasks: Sequence[Task]) -> dict[Case, StoredRun]:
        """Run real tasks one after the other, in the order given (the caller interleaves repeats)."""
        from hetsgd.real import warm_start

        found: dict[Case, StoredRun] = {}
        with warm_start(), Meter(title, len(tasks)) as meter:
            for number, task in enumerate(tasks):
                ready = resolve(replace(self._ask(task), learner="real"))
                folder = self.folder_of(task.case, ready)
                meter.at(number, task.case.words())
                if not _there(folder):
                    self._measure_one(task.case, ready, folder)
                run = self._result(folder)
                if run is not None:
                    found[task.case] = run
        return found

    def _result(self, folder: Path) -> StoredRun | None:
        """The run that belongs into a folder, stored or not; None where it failed."""
        if (lost := self.unsaved.get(folder)) is not None:
            return StoredRun(folder=folder, record=lost.record, resolved=lost.resolved)
        return read_run(folder) if _there(folder) else None

    def _measure_one(self, case: Case, ready: Ready, folder: Path) -> None:
        """Run for real and save; a run that breaks is told and costs neither the others nor the report."""
        from hetsgd.studies.execute import run_real

        try:
            finished = run_real(ready)
        except BadInput:
            raise
        except Exception as error:  # noqa: BLE001 - whatever breaks a run on hardware breaks that run alone
            self._failed("real runs", case, f"{type(error).__name__}: {error}")
            return
        if finished.trace.status == "interrupted":
            raise KeyboardInterrupt
        self._note(folder, stored(finished, folder))

    def _note(self, folder: Path, lost: Unsaved | None) -> None:
        if lost is not None:
            if not self.unsaved:
                say(f"not saved, the study goes on: {lost.reason}")
            self.unsaved[folder] = lost

    def _failed(self, title: str, case: Case, error: str) -> None:
        self.failures.append(f"{case.words()}: {error}")
        say(f"{title}: {self.failures[-1]}")

    def _machine(self, name: str) -> str:
        """The machine file that stands for `local` in this folder, once it is settled: the same for every later run."""
        return str(self._local) if name == LOCAL and self._local.is_file() else name

    def folder_of(self, case: Case, ready: Ready) -> Path:
        """Where the result of a case is kept."""
        return self.folder / "runs" / case_key(case, ready)

    def _ask(self, task: Task) -> Ask:
        case = task.case
        return Ask(
            machine=self._machine(case.machine),
            workload=case.workload,
            policy=case.policy,
            settings=(*case.settings, ("run.trace", task.trace)),
            learner=self.learner,
            stop=task.stop,
            seed=case.seed,
            origin=self.origin,
        )

    def _perform_all(self, title: str, jobs: Sequence[Job], cases: Sequence[Case]) -> None:
        with Meter(title, len(jobs)) as meter:
            outcomes = self._outcomes(jobs)
            try:
                for number, outcome in enumerate(outcomes, start=1):
                    case = cases[outcome.index]
                    if outcome.error:
                        self._failed(title, case, outcome.error)
                    self._note(jobs[outcome.index].folder, outcome.value)
                    meter.at(number, f"{number} of {len(jobs)}, {case.label} on {case.machine}")
            finally:
                outcomes.close()
        if self.failures and all(self._result(job.folder) is None for job in jobs):
            raise RunFailed(self.failures[0])

    def _outcomes(self, jobs: Sequence[Job]) -> Generator[Outcome]:
        if self.cluster is None:
            return run_all(perform, jobs, self.workers)
        from hetsgd.studies.cluster import run_on_cluster

        return run_on_cluster(jobs, self.cluster)


def _there(folder: Path) -> bool:
    """Whether a folder holds a whole run; a damaged one is made again."""
    if not (folder / "run.json").is_file():
        return False
    try:
        read_run(folder)
    except OutputError:
        return False
    return True


def check_workers(workers: int | None) -> int:
    """The number of worker processes: the one asked for, or the processors this process may use."""
    import os

    if workers is None:
        available = getattr(os, "sched_getaffinity", None)
        return len(available(0)) if available is not None else os.cpu_count() or 1
    if workers < 1:
        raise BadInput(f"--workers must be >= 1, got {workers}")
    return workers
