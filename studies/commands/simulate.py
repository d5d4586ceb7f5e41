"""`hetsgd simulate`: one run on the model of a machine."""

from __future__ import annotations

from typing import Annotated

import typer

from hetsgd.studies.commands.options import (
    EpochsOption,
    ForceOption,
    JsonOption,
    LearnerName,
    LearnerOption,
    MachineOption,
    OutOption,
    PolicyOption,
    ReferenceOption,
    SecondsOption,
    SeedOption,
    SetOption,
    TargetOption,
    UpdatesOption,
    WorkloadOption,
    help_of,
    settings_of,
    stop_of,
)


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("simulate", help=help_of(command))(command)


def command(
    machine: MachineOption = "local",
    workload: WorkloadOption = "quickstart",
    policy: PolicyOption = "adaptive-hogbatch",
    settings: SetOption = None,
    learner: LearnerOption = LearnerName.REPLAY,
    seconds: SecondsOption = None,
    epochs: EpochsOption = None,
    updates: UpdatesOption = None,
    target_loss: TargetOption = None,
    seed: SeedOption = None,
    loss_reference: ReferenceOption = None,
    out: OutOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also show where the time of each worker's assignments goes.")
    ] = False,
    replicas: Annotated[
        int,
        typer.Option(
            "--replicas",
            metavar="R",
            help="Replay R seeds from --seed on, all in the order of events of the first.",
        ),
    ] = 1,
) -> None:
    """Simulate one run of a policy on a machine; needs no GPU.

    Times are virtual seconds of the simulated machine. Without a stop rule the run ends after 5 of them.

    Example:

    \b
      hetsgd simulate --machine aws-p3.16xlarge --workload covtype \\
        --policy adaptive-hogbatch --set policy.alpha=2 \\
        --learner none --seconds 40
      hetsgd simulate --machine aws-p3.16xlarge --workload covtype \\
        --learner none --epochs 1 --explain
    """
    from hetsgd.studies.commands.one_run import finish
    from hetsgd.studies.execute import run_simulated
    from hetsgd.studies.explain import check_explain, run_explained
    from hetsgd.studies.replicas import check_replicas, run_replicas
    from hetsgd.studies.resolve import Ask, resolve

    ask = Ask(
        machine=machine,
        workload=workload,
        policy=policy,
        settings=settings_of(settings),
        learner=learner.value,
        stop=stop_of(seconds, epochs, updates, target_loss),
        seed=seed,
    )
    check_replicas(replicas, learner.value, explain=explain)
    run = run_explained if explain else run_simulated if replicas == 1 else run_replicas(replicas)
    finish(
        lambda: check_explain(resolve(ask)) if explain else resolve(ask), run, out=out, force=force, as_json=as_json,
        loss_reference=loss_reference,
    )  # fmt: skip
