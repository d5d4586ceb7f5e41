"""`hetsgd train`: one run on this machine's real hardware."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from hetsgd.models.words import counted
from hetsgd.studies.commands.options import (
    EpochsOption,
    ForceOption,
    JsonOption,
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

if TYPE_CHECKING:
    from hetsgd.models.plan import Plan
    from hetsgd.studies.resolve import Ask, Ready


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("train", help=help_of(command))(command)


def command(
    machine: MachineOption = "local",
    workload: WorkloadOption = "quickstart",
    policy: PolicyOption = "adaptive-hogbatch",
    settings: SetOption = None,
    cpu_lanes: Annotated[
        int | None, typer.Option("--cpu-lanes", metavar="N", help="Lanes of the CPU team, one core each; 0: no team.")
    ] = None,
    accelerators: Annotated[
        str | None,
        typer.Option(
            "--accelerators", metavar="A", help="Devices as cuda:0,cuda:1, or cpu (a stand-in), or cpu,cpu, or none."
        ),
    ] = None,
    seconds: SecondsOption = None,
    epochs: EpochsOption = None,
    updates: UpdatesOption = None,
    target_loss: TargetOption = None,
    seed: SeedOption = None,
    loss_reference: ReferenceOption = None,
    out: OutOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train for real on this machine with a policy.

    With --out the final model is saved as model.pt, a plain state_dict for torch.load(..., weights_only=True):
    layers.0.weight (outputs, inputs), layers.0.bias, layers.1.weight and so on, as torch.nn.Linear has them. Without
    a stop rule training ends after 5 seconds. Ctrl-C ends it earlier; what was measured is saved.

    Example:

    \b
      hetsgd train --workload quickstart --policy hogbatch \\
        --cpu-lanes 1 --accelerators cpu --epochs 3 --out out/first
    """
    from hetsgd.studies.commands.one_run import finish
    from hetsgd.studies.execute import run_real
    from hetsgd.studies.resolve import Ask

    ask = Ask(
        machine=machine,
        workload=workload,
        policy=policy,
        settings=settings_of(settings),
        learner="real",
        stop=stop_of(seconds, epochs, updates, target_loss),
        seed=seed,
    )
    finish(
        lambda: on_hardware(ask, cpu_lanes, accelerators), run_real, out=out, force=force, as_json=as_json,
        loss_reference=loss_reference,
    )  # fmt: skip


def on_hardware(ask: Ask, cpu_lanes: int | None, accelerators: str | None) -> Ready:
    """The run on the lanes and devices that the options name, checked."""
    from hetsgd.studies.hardware import with_hardware
    from hetsgd.studies.resolve import check_plan, resolve

    ready = resolve(ask, check=False)
    if cpu_lanes is None and any(key == "machine.cpu_lanes" for key, _ in ask.settings):
        # --accelerators looks at the machine anew; what --set says of the lanes stays.
        cpu_lanes = ready.plan.machine.cpu_lanes
    chosen = with_hardware(ready, cpu_lanes, accelerators)
    check_plan(chosen.plan, chosen.learner)
    return replace(chosen, notices=(*chosen.notices, *_crowded(chosen.plan)))


def _crowded(plan: Plan) -> list[str]:
    """A note where workers share cores, which nothing in the results would tell."""
    from hetsgd.models.machine_local import available_cores

    members, cores = plan.fleet().members, available_cores()
    lanes = sum(member.lanes for member in members if member.kind == "cpu")
    cards = [plan.machine.accelerator(member.name) for member in members if member.kind == "accelerator"]
    stand_ins = sum(card.stand_in for card in cards)
    if not stand_ins or lanes + stand_ins <= cores:
        return []
    fewer = f"; --cpu-lanes {cores - stand_ins} gives each a core of its own" if cores > stand_ins else ""
    return [
        f"{counted(lanes, 'CPU lane')} and {counted(stand_ins, 'stand-in')} share {counted(cores, 'core')} and slow "
        f"each other down{fewer}"
    ]
