"""Run the cases of a study, in parallel where they are simulated, and keep each result under the key of its inputs.

A folder `runs/<key>` with a `run.json` is a whole result: a second start, or one after a kill, takes it from there.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hetsgd.models.machine_names import LOCAL
from hetsgd.models.run import StopRule
from hetsgd.studies.case import Case, case_key
from hetsgd.studies.failure import BadInput, RunFailed
from hetsgd.studies.machine_writer import machine_text
from hetsgd.studies.pool import Outcome, run_all
from hetsgd.studies.record import OutputError, StoredRun, read_run
from hetsgd.studies.resolve import Ask, Ready, data_of, machine_here, resolve
from hetsgd.studies.screen import Meter, say

if TYPE_CHECKING:
    from hetsgd.models.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A simulated run for another process: what was asked, the plan it resolved to, and where results go."""

    ask: Ask
    plan: Plan
    folder: Path


def perform(job: Job) -> None:
    """Run a job and write its folder; called in a child process."""
    from hetsgd.studies.execute import run_simulated

    finished = run_simulated(Ready(plan=job.plan, learner=job.ask.learner, data=data_of(job.ask)))
    finished.save(job.folder, finished.record())


@dataclass(slots=True)
class Runner:
    """Runs cases into `folder`. `cluster`: the address of a Dask scheduler, or None for processes here."""

    folder: Path
    learner: str
    workers: int
    cluster: str | None = None
    failures: list[str] = field(default_factory=list)

    def resolve_all(self, cases: Sequence[Case], stop: StopRule, trace: str) -> dict[Case, Ready]:
        """Resolve and check cases before any of them runs; BadInput names the case."""
        return {case: resolve(self._ask(case, stop, trace)) for case in cases}

    def simulate(self, title: str, cases: Sequence[Case], stop: StopRule, trace: str) -> dict[Case, StoredRun]:
        """Run simulated cases that are not there yet; returns all that have a result, in the order of `cases`."""
        ready = self.resolve_all(cases, stop, trace)
        folders = {case: self.folder_of(case, ready[case]) for case in cases}
        todo: dict[Path, Case] = {folders[case]: case for case in cases if not _there(folders[case])}
        jobs = [
            Job(ask=self._ask(case, stop, trace), plan=ready[case].plan, folder=folder) for folder, case in todo.items()
        ]
        if len(jobs) < len(cases):
            say(f"{title}: {len(cases) - len(jobs)} of {len(cases)} runs are there already")
        if jobs:
            self._perform_all(title, jobs, list(todo.values()))
        return {case: read_run(folders[case]) for case in cases if _there(folders[case])}

    def measure(self, title: str, cases: Sequence[Case], stop: StopRule) -> dict[Case, StoredRun]:
        """Run real cases one after the other, in the order given (the caller interleaves repeats)."""
        from hetsgd.studies.execute import run_real

        ready = {case: resolve(replace(self._ask(case, stop, "full"), learner="real")) for case in cases}
        folders = {case: self.folder_of(case, ready[case]) for case in cases}
        with Meter(title, len(cases)) as meter:
            for number, case in enumerate(cases):
                meter.at(number, case.words())
                if _there(folders[case]):
                    continue
                finished = run_real(ready[case])
                record = finished.record()
                if record["status"] == "interrupted":
                    raise KeyboardInterrupt
                finished.save(folders[case], record)
        return {case: read_run(folders[case]) for case in cases}

    def _machine(self, name: str) -> str:
        """The machine file that stands for `local` in this folder: measured once, the same for every later run."""
        if name != LOCAL:
            return name
        path = self.folder / "machines" / f"{LOCAL}.toml"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            part.write_text(machine_text(machine_here(), origin="detected on the machine at hand"), encoding="utf-8")
            part.replace(path)
        return str(path)

    def folder_of(self, case: Case, ready: Ready) -> Path:
        """Where the result of a case is kept."""
        return self.folder / "runs" / case_key(case, ready)

    def _ask(self, case: Case, stop: StopRule, trace: str) -> Ask:
        return Ask(
            machine=self._machine(case.machine),
            workload=case.workload,
            policy=case.policy,
            settings=(*case.settings, ("run.trace", trace)),
            learner=self.learner,
            stop=stop,
            seed=case.seed,
        )

    def _perform_all(self, title: str, jobs: Sequence[Job], cases: Sequence[Case]) -> None:
        with Meter(title, len(jobs)) as meter:
            outcomes = self._outcomes(jobs)
            try:
                for number, outcome in enumerate(outcomes, start=1):
                    case = cases[outcome.index]
                    if outcome.error:
                        self.failures.append(f"{case.words()}: {outcome.error}")
                        say(f"{title}: {self.failures[-1]}")
                    meter.at(number, f"{number} of {len(jobs)}, {case.label} on {case.machine}")
            finally:
                outcomes.close()
        if self.failures and not any(_there(job.folder) for job in jobs):
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
