"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hetsgd.models.edge import own_path
from hetsgd.models.run import StopRule
from hetsgd.studies.failure import BadInput, checking

_NAME = "a built-in name, a .toml file or package.module:object"


class LearnerName(StrEnum):
    """What turns the events of a simulated run into a loss curve."""

    REPLAY = "replay"
    SURROGATE = "surrogate"
    NONE = "none"


MachineOption = Annotated[str, typer.Option("--machine", metavar="M", help=f"The machine: {_NAME}.")]
WorkloadOption = Annotated[str, typer.Option("--workload", metavar="W", help=f"Network and data: {_NAME}.")]
PolicyOption = Annotated[str, typer.Option("--policy", metavar="P", help=f"The scheduling policy: {_NAME}.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="K=V",
        help="A setting: policy.KEY, run.KEY, workload.KEY or machine.KEY; may be repeated. "
        "`hetsgd list policies NAME` has the keys of a policy.",
    ),
]
LearnerOption = Annotated[
    LearnerName,
    typer.Option(
        "--learner",
        help="replay: real gradients in virtual time; surrogate: losses with an interval, fitted to replays; none: "
        "timing only.",
    ),
]
SecondsOption = Annotated[float | None, typer.Option("--seconds", metavar="S", help="Stop after S seconds.")]
EpochsOption = Annotated[int | None, typer.Option("--epochs", metavar="E", help="Stop after E epochs.")]
UpdatesOption = Annotated[
    int | None, typer.Option("--updates", metavar="U", help="Stop after U model updates; work in flight then counts.")
]
TargetOption = Annotated[
    float | None, typer.Option("--target-loss", metavar="L", help="Stop when the training loss is at or below L.")
]
SeedOption = Annotated[int | None, typer.Option("--seed", metavar="N", help="Seed of data order, model and noise.")]
ReferenceOption = Annotated[
    str | None,
    typer.Option("--loss-reference", metavar="L0,LBEST", help="Losses that normalise time_to_loss_s, as 0.69,0.5."),
]


def help_of(command: Callable[..., None]) -> str:
    """The docstring of a command as its help: paragraphs flow to the terminal's width, examples stay as they are."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(text if "\b" in text else " ".join(text.split()) for text in paragraphs)


def path_of(text: str | Path) -> Path:
    """The path with a leading ~ resolved: a shell leaves it alone in --out=~/DIR. An empty one is refused."""
    if not str(text).strip():
        raise typer.BadParameter(f"must name a file or folder, got {str(text)!r}")
    return own_path(text)


OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Store results and trace in DIR.", parser=path_of)
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace what DIR holds of another run or study; else that is refused.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


def settings_of(texts: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    """The pairs of `--set KEY=VALUE` options.

    >>> settings_of(["policy.alpha=2", "run.lookahead=1"])
    (('policy.alpha', '2'), ('run.lookahead', '1'))
    """
    pairs = []
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise BadInput(f"--set: must be KEY=VALUE, such as policy.alpha=2, got {text!r}")
        pairs.append((key.strip(), value.strip()))
    repeated = {key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1}
    if repeated:
        raise BadInput(f"--set: {', '.join(sorted(repeated))} is given more than once; give it once")
    return tuple(pairs)


def stop_of(
    seconds: float | None, epochs: int | None, updates: int | None, target_loss: float | None
) -> StopRule | None:
    """The stop rule of the options; None when none of them is given."""
    if seconds is None and epochs is None and updates is None and target_loss is None:
        return None
    # A target alone may never be met: it is bounded by the default time.
    if target_loss is not None and seconds is None and epochs is None and updates is None:
        seconds = DEFAULT_SECONDS
    with checking("--seconds/--epochs/--updates/--target-loss"):
        return StopRule(seconds=seconds, epochs=epochs, updates=updates, target_loss=target_loss)


DEFAULT_SECONDS = 5.0


def reference_of(text: str | None) -> tuple[float, float] | None:
    """The two losses of `--loss-reference`: initial and best.

    >>> reference_of("0.69,0.5")
    (0.69, 0.5)
    """
    if text is None:
        return None
    try:
        initial, best = (float(part) for part in text.split(","))
    except ValueError as error:
        raise BadInput(f"--loss-reference: must be two losses L0,LBEST such as 0.69,0.5, got {text!r}") from error
    if not (math.isfinite(initial) and math.isfinite(best) and best < initial):
        raise BadInput(f"--loss-reference: L0 must be finite and above LBEST, got {text!r}")
    return initial, best
