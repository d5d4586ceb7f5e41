"""The losses that the recorded order of each real run implies, beside those that were measured.

Kept in the run's folder, so that a second start takes them from there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hetsgd.studies.case import Case
from hetsgd.studies.pool import run_all
from hetsgd.studies.record import StoredRun, to_json
from hetsgd.studies.resolve import Ask, data_of
from hetsgd.studies.screen import Meter, say

if TYPE_CHECKING:
    from hetsgd.models.plan import Plan

SCHEMA: Final = "hetsgd.event-order/1"
IMPLIED: Final = "event_order_loss"
"""Key of a record: the training loss of each of its points with the order of events as recorded; None: diverged."""
_FILE: Final = "event_order.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A real run whose order is replayed."""

    plan: Plan
    ask: Ask
    folder: Path


def with_event_orders(
    runs: Mapping[Case, StoredRun], plans: Mapping[Case, Plan], workers: int
) -> dict[Case, StoredRun]:
    """The runs, their records with the losses that their order of events implies where it can be replayed."""
    todo = {case: run for case, run in runs.items() if case in plans and not (run.folder / _FILE).is_file()}
    found = {run.folder: kept for case, run in runs.items() if case not in todo and (kept := _read(run.folder))}
    if todo:
        jobs = [_Job(plan=plans[case], ask=_ask(case), folder=run.folder) for case, run in todo.items()]
        found |= _perform(jobs, [case.words() for case in todo], workers)
    return {
        case: replace(run, record={**run.record, IMPLIED: found[run.folder]}) if run.folder in found else run
        for case, run in runs.items()
    }


def _ask(case: Case) -> Ask:
    """What the data set of a case is found by."""
    return Ask(machine=case.machine, workload=case.workload, policy=case.policy, settings=case.settings)


def _perform(jobs: Sequence[_Job], words: Sequence[str], workers: int) -> dict[Path, list[float | None]]:
    found = {}
    with Meter("losses that the real order of events implies", len(jobs)) as meter:
        outcomes = run_all(replay_order, jobs, workers)
        try:
            for number, outcome in enumerate(outcomes, start=1):
                meter.at(number, words[outcome.index])
                if outcome.error:
                    say(f"event order: {words[outcome.index]} is not replayed: {outcome.error}")
                else:
                    found[jobs[outcome.index].folder] = outcome.value
        finally:
            outcomes.close()
    return found


def replay_order(job: _Job) -> list[float | None]:
    """Replay one run and keep the result in its folder; called in a child process."""
    from hetsgd.models.loss_curve import in_order
    from hetsgd.real.event_order import event_order_replay
    from hetsgd.studies.trace_store import read_trace

    trace = read_trace(job.folder / "trace")
    losses = event_order_replay(trace, job.plan, data_of(job.ask)())
    implied = [None if losses[row].diverged else losses[row].train for row in in_order(trace["evaluations"])]
    content: dict[str, Any] = {"schema": SCHEMA, "train": implied}
    part = job.folder / f"{_FILE}.part"
    part.write_text(to_json(content) + "\n", encoding="utf-8")
    part.replace(job.folder / _FILE)
    return implied


def _read(folder: Path) -> list[float | None] | None:
    try:
        content = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        return None
    train: list[float | None] = content["train"]
    return train


def implied_record(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The record of a real run with the losses that its order implies; None where there are none."""
    implied = record.get(IMPLIED)
    if implied is None or len(implied) != len(record["loss"]):
        return None
    points = [{**point, "train": train} for point, train in zip(record["loss"], implied, strict=True)]
    return {**record, "loss": points}
