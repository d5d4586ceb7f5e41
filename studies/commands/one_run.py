"""What `simulate` and `train` share: from options to a plan, and from a finished run to output and exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hetsgd.studies.commands.options import reference_of
from hetsgd.studies.failure import EXIT_INTERRUPTED, RunFailed, checking
from hetsgd.studies.screen import Meter, say

if TYPE_CHECKING:
    from hetsgd.models.plan import ProgressSink
    from hetsgd.studies.execute import Finished
    from hetsgd.studies.resolve import Ready


def finish(
    ready: Ready, run: Callable[[Ready, ProgressSink], Finished], *, out: Path | None, as_json: bool,
    loss_reference: str | None,
) -> None:  # fmt: skip
    """Run it, save it, print it, and end with the exit code that its status asks for."""
    from hetsgd.models.loss_curve import LossReference
    from hetsgd.studies.record import check_folder, to_json
    from hetsgd.studies.summary import print_summary

    pair = reference_of(loss_reference)
    reference = None if pair is None else LossReference(initial=pair[0], best=pair[1])
    if out is not None:
        with checking("--out"):
            check_folder(out)
    plan = ready.plan
    say(f"{plan.policy} on {plan.machine.name}, workload {plan.workload.name}, seed {plan.run.seed}")
    with Meter(plan.policy, 1.0) as meter:
        finished = run(ready, meter.run)
    record = finished.record(reference)
    for note in record["notes"]:
        say(f"note: {note}")
    if out is not None:
        finished.save(out, record)
        say(f"saved in {out}")
    if as_json:
        print(to_json(record))
    else:
        print_summary(record)
    if record["status"] == "interrupted":
        raise typer.Exit(EXIT_INTERRUPTED)
    if record["status"] == "failed":
        raise RunFailed(record["stop_reason"])
