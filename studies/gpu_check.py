"""Whether the executor does its work right and fast on an accelerator: `make gpu-check`, in less than 8 minutes.

    python -m hetsgd.studies.gpu_check [--accelerator cuda:0] [--out DIR] [--short]

Five parts: every way to write and merge against a plain loop in float64 on the CPU; copies behind computing, seen in
a trace; rows per second against bare loops on the same device; a calibration of the machine; a validation of three
policies. Without an accelerator a core stands in for one, which shows that the checks work and nothing about devices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hetsgd.studies.failure import EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_RUN_FAILED, BadInput
from hetsgd.studies.gpu_findings import Finding, Status, print_findings, write_findings
from hetsgd.studies.screen import say

if TYPE_CHECKING:
    from hetsgd.models.data.dataset import Dataset
    from hetsgd.models.machine import Machine
    from hetsgd.models.plan import Plan
    from hetsgd.models.trace import SpanKind, Trace

LIMIT_S: Final = 470.0
_FIGURE: Final = 0.95
_HIDDEN: Final = 0.5
_POLICIES: Final = "minibatch,hogbatch,adaptive-hogbatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is checked. `cases`: at most so many ways to merge; `minutes` 0 leaves calibration and validation out.

    `seconds` is the length of one measured run, `rounds` how often executor and bare loops take turns.
    """

    cases: int
    batches: tuple[int, ...]
    rows: int
    hidden: tuple[int, ...]
    seconds: float
    rounds: int
    minutes: float
    repeats: int


WHOLE: Final = Extent(
    cases=100, batches=(256, 2048, 8192), rows=32768, hidden=(1024, 1024), seconds=2.0, rounds=2, minutes=1.0, repeats=3
)  # fmt: skip
SHORT: Final = Extent(
    cases=2, batches=(64,), rows=512, hidden=(32,), seconds=0.2, rounds=1, minutes=0.0, repeats=2
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What is checked: one accelerator of a machine, and until when (`time.monotonic`)."""

    machine: Machine
    accelerator: str
    extent: Extent
    until_s: float

    @property
    def stand_in(self) -> bool:
        """Whether a core stands in for the accelerator."""
        return self.machine.accelerator(self.accelerator).stand_in

    @property
    def device(self) -> str:
        """The torch device."""
        return self.machine.accelerator(self.accelerator).device


def main(
    accelerator: Annotated[
        str | None, typer.Option("--accelerator", metavar="A", help="A torch device as cuda:0; else the first found.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder for the machine file and all results.")
    ] = Path("out/gpu-check"),
    short: Annotated[bool, typer.Option("--short", help="A few seconds: whether the checks themselves work.")] = False,
) -> None:
    """Check the executor on an accelerator; one table at the end, everything in a folder."""
    extent = SHORT if short else WHOLE
    try:
        found = bench(accelerator, extent)
    except BadInput as error:
        say(f"gpu-check: {error}")
        raise typer.Exit(EXIT_BAD_INPUT) from None
    say(f"gpu-check: {description(found)}; at most {LIMIT_S / 60:.0f} minutes")
    findings: list[Finding] = []
    code = 0
    try:
        run_checks(found, out, findings)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    write_findings(out, description(found), findings)
    print_findings(description(found), findings)
    say(f"gpu-check: everything is in {out}")
    raise typer.Exit(code or (EXIT_RUN_FAILED if any(finding.status == "wrong" for finding in findings) else 0))


def bench(accelerator: str | None, extent: Extent) -> Bench:
    """This machine with one lane and the accelerator that was asked for, the first one, or a stand-in."""
    from hetsgd.studies.hardware import with_hardware
    from hetsgd.studies.resolve import Ask, machine_here, resolve

    here = machine_here()
    device = accelerator or (here.accelerators[0].device if here.accelerators else "cpu")
    ask = Ask(machine="local", workload="quickstart", policy="minibatch", learner="real")
    machine = with_hardware(resolve(ask, check=False), 1, device).plan.machine
    return Bench(
        machine=machine, accelerator=machine.accelerators[0].name, extent=extent, until_s=time.monotonic() + LIMIT_S
    )  # fmt: skip


def description(bench: Bench) -> str:
    """What was checked, in words."""
    if bench.stand_in:
        return "no accelerator here: a core stands in for one, which says nothing about devices"
    return f"accelerator {bench.device} of {bench.machine.description or bench.machine.name}"


def run_checks(bench: Bench, out: Path, findings: list[Finding]) -> None:
    """All parts, one after the other, into `findings`; a part that fails is a finding and does not end the others."""
    from hetsgd.real import warm_start
    from hetsgd.studies.gpu_model import model_checks

    out.mkdir(parents=True, exist_ok=True)
    parts: tuple[tuple[str, Callable[[Bench], Iterator[Finding]]], ...] = (
        ("merges", _merges),
        ("overlap", _overlap),
        ("throughput", _throughput),
        ("model", lambda bench: model_checks(bench.device, bench.extent, out, bench.until_s, _POLICIES)),
    )
    for name, part in parts:
        say(f"gpu-check: {name}")
        if time.monotonic() > bench.until_s:
            findings.append(Finding(part=name, what="all", found="no time was left", status="skipped"))
            continue
        try:
            with warm_start():
                findings.extend(part(bench))
        except (RuntimeError, ValueError, OSError) as error:
            findings.append(Finding(part=name, what="ends with an error", found=str(error), status="wrong"))


def _merges(bench: Bench) -> Iterator[Finding]:
    """Every way to write and merge; float32 where a device has no float64."""
    from hetsgd.real.merge_cases import CASES, check_case, one_accelerator

    machine = one_accelerator(bench.machine, bench.accelerator)
    precision = "float32" if bench.device.startswith("mps") else "float64"
    for case in CASES[: bench.extent.cases]:
        agreement = check_case(case, machine, "float32" if precision == "float32" else "float64")
        yield Finding(
            part="merges", what=case.name, value=agreement.error, found=f"{agreement.error:.1e} of the way",
            wanted=f"<= {agreement.tolerance:g} ({precision})", status="ok" if agreement.holds else "wrong",
        )  # fmt: skip


def _overlap(bench: Bench) -> Iterator[Finding]:
    """Copies behind computing; only the rows of the next batch have to be hidden."""
    from hetsgd.studies.overlap import overlap

    plan, data = _plan(bench, bench.extent.batches[-1], lookahead=1)
    trace = _train(plan, data)
    kinds: tuple[SpanKind, ...] = ("load", "pull", "push")
    for kind in kinds:
        found = overlap(trace, bench.accelerator, kind)
        status: Status = "ok" if kind != "load" or found.share >= _HIDDEN else "short"
        if bench.stand_in:
            status = "skipped"
        yield Finding(
            part="overlap", what=f"{kind} behind compute", value=found.share,
            found=f"{found.share:.0%} of {1e3 * found.copied_s:.1f} ms", status=status,
            wanted="a stand-in copies and computes on one core" if bench.stand_in
            else f">= {_HIDDEN:.0%}" if kind == "load" else "reported",
        )  # fmt: skip


def _throughput(bench: Bench) -> Iterator[Finding]:
    """Rows/s of the executor beside two bare loops; they take turns, and the best of each counts."""
    from hetsgd.real.bare_loop import bare_rates

    extent = bench.extent
    for batch in extent.batches:
        plan, data = _plan(bench, batch, lookahead=1)
        rates, steps, copies = [], [], []
        for _ in range(extent.rounds):
            trace = _train(plan, data)
            rates.append(_rate(trace))
            bare = bare_rates(plan.workload, data, bench.device, batch, extent.seconds / 2)
            steps.append(bare.steps)
            copies.append(bare.copies)
        best, share = max(rates), max(rates) / max(copies)
        yield Finding(
            part="throughput", what=f"batch {batch}: executor / bare loop that copies", value=share,
            found=f"{share:.2f} ({best:,.0f} rows/s)", wanted=f">= {_FIGURE}",
            status="ok" if share >= _FIGURE else "short",
        )  # fmt: skip
        yield Finding(
            part="throughput", what=f"batch {batch}: executor / bare steps without copies", value=best / max(steps),
            found=f"{best / max(steps):.2f} (bare: {max(steps):,.0f} rows/s)", wanted="reported", status="ok",
        )  # fmt: skip


def _rate(trace: Trace) -> float:
    """Rows/s from the first start to the last end: what the deadline broke off does not count."""
    results = trace["results"]
    if not len(results):
        raise RuntimeError("no assignment came to its end within the run; give it longer")
    return float(results["rows"].sum()) / float(results["end_s"].max() - results["start_s"].min())


def _train(plan: Plan, data: Dataset) -> Trace:
    from hetsgd.real import train

    trace = train(plan, data).trace
    if trace.status == "interrupted":
        raise KeyboardInterrupt
    return trace


def _plan(bench: Bench, batch: int, *, lookahead: int) -> tuple[Plan, Dataset]:
    """Minibatch training of a network that keeps a device busy, on the one accelerator."""
    import numpy as np

    from hetsgd.models.data.dataset import Dataset
    from hetsgd.models.plan import Plan
    from hetsgd.models.policies import recipe
    from hetsgd.models.run import RunSettings, StopRule
    from hetsgd.models.workload import Workload
    from hetsgd.real.merge_cases import one_accelerator

    extent, rng = bench.extent, np.random.default_rng(0)
    x = rng.normal(size=(extent.rows, 256)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    data = Dataset(
        name="throughput", train_x=x, train_y=y, test_x=x[:64], test_y=y[:64], classes=2, multilabel=False,
        source="made",
    )  # fmt: skip
    workload = Workload(
        name="throughput", dataset=data.name, rows=data.rows, test_rows=data.test_rows, features=data.features,
        outputs=2, hidden=extent.hidden,
    )  # fmt: skip
    settings = RunSettings(
        stop=StopRule(seconds=extent.seconds), learning_rate=1e-3, lookahead=lookahead, evaluation="deferred"
    )
    machine = one_accelerator(bench.machine, bench.accelerator)
    chosen = recipe("minibatch", accelerator_batch=batch)
    plan = Plan(machine=machine, workload=workload, policy="minibatch", recipe=chosen, run=settings)
    # Losses of many snapshots would take longer than the run.
    return replace(plan, run=replace(settings, evaluate_every_s=extent.seconds)), data


if __name__ == "__main__":
    typer.run(main)
