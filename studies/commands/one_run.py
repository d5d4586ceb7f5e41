"""What `simulate` and `train` share: from options to a plan, and from a finished run to output and exit code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsgd.studies.commands.options import reference_of
from hetsgd.studies.failure import Interrupted, NotSaved, RunFailed
from hetsgd.studies.interrupts import Held
from hetsgd.studies.screen import Meter, results_only, say, showing

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from hetsgd.models.plan import ProgressSink
    from hetsgd.studies.execute import Finished
    from hetsgd.studies.resolve import Ready


def finish(
    prepare: Callable[[], Ready], run: Callable[[Ready, ProgressSink], Finished], *, out: Path | None, force: bool,
    as_json: bool, loss_reference: str | None,
) -> None:  # fmt: skip
    """Resolve it, run it, save it, print it, and end with the exit code that its status asks for.

    What is wrong with the folder is found before the run. Results that cannot be saved after all are printed all the
    same, and NotSaved says why.
    """
    from hetsgd.models.loss_curve import LossReference
    from hetsgd.studies.resolve import tell

    pair = reference_of(loss_reference)
    reference = None if pair is None else LossReference(initial=pair[0], best=pair[1])
    with results_only():
        ready = prepare()
    tell(ready)
    plan = ready.plan
    engine = "real" if ready.learner == "real" else "sim"
    with nullcontext() if out is None else _taken(out, ready, engine, force):
        say(f"{plan.policy} on {plan.machine.name}, workload {plan.workload.name}, seed {plan.run.seed}")
        with results_only(), Meter(plan.policy, 1.0) as meter:
            finished = run(ready, meter.run)
        # From here on there is something to lose: a first signal waits until it is saved and shown.
        with Held(after=1 if finished.trace.status == "interrupted" else 0) as held:
            try:
                record = finished.record(reference)
                fault = _store_and_show(finished, record, out, as_json=as_json)
            except KeyboardInterrupt:
                raise Interrupted("twice, so the run that had ended is not stored") from None
    if fault is not None:
        raise fault
    if held.received:
        kept = "give --out DIR to save what was done so far" if out is None else f"what was done so far is in {out}"
        raise Interrupted(kept)
    if record["status"] == "failed":
        raise RunFailed(record["stop_reason"])


def _taken(out: Path, ready: Ready, engine: Any, force: bool) -> AbstractContextManager[Path]:
    from hetsgd.models.words import few
    from hetsgd.studies.comparison import input_differences
    from hetsgd.studies.out_folder import Owner, taken
    from hetsgd.studies.record import resolved_inputs

    def differs(there: Owner, wanted: Owner) -> str:
        return few(item.name for item in input_differences(there.inputs, wanted.inputs).chosen)

    inputs = resolved_inputs(ready.plan, engine=engine, learner=ready.learner, machine_set=ready.machine_set)
    owner = Owner(kind="run", words="", inputs=inputs)
    return taken(out, owner, force=force, differs=differs)


def _store_and_show(
    finished: Finished, record: Mapping[str, Any], out: Path | None, *, as_json: bool
) -> NotSaved | None:
    """Save and print; a fault of the saving comes back, so that what was printed is not lost with it."""
    from hetsgd.studies.record import to_json
    from hetsgd.studies.summary import print_summary

    fault = None
    for note in record["notes"]:
        say(f"note: {note}")
    if out is not None:
        try:
            finished.save(out, record)
            say(f"saved in {out}")
        except NotSaved as error:
            fault = error
    with showing(kept=out is not None):
        if as_json:
            print(to_json(record))
        else:
            print_summary(record)
    return fault
