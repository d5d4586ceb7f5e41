"""`hetsgd paper`: the figures of arXiv:2004.08771 predicted, beside what was published."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated

import typer

from hetsgd.studies.commands.options import ForceOption, JsonOption, help_of, path_of


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("paper", help=help_of(command))(command)


def command(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", parser=path_of, help="Folder of the report and of paper.csv.")
    ] = Path("out/paper"),
    force: ForceOption = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Try few of the unpublished settings: under a minute instead of minutes.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", help="Processes; default: all cores.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Predict epoch times, update shares and utilization of the paper's two servers, beside its figures.

    Searches the settings that the paper does not publish (some minutes; DIR keeps what was tried, so that a second
    call is quick), and writes paper.csv and report.html into DIR.

    Example:

    \b
      hetsgd paper --out out/paper
    """
    from hetsgd.studies.commands.one_study import written
    from hetsgd.studies.failure import Interrupted
    from hetsgd.studies.out_folder import Owner, taken
    from hetsgd.studies.paper.report import write_reproduction
    from hetsgd.studies.paper.reproduction import reproduce
    from hetsgd.studies.paper.words import answer_lines
    from hetsgd.studies.record import to_json
    from hetsgd.studies.runner import check_workers
    from hetsgd.studies.screen import Meter, say, showing

    count = check_workers(workers)
    owner = Owner(kind="reproduction of the paper", words="by hetsgd paper", inputs={})
    with taken(out, owner, force=force):
        try:
            with Meter("paper", 1.0) as meter:
                study = reproduce(out, workers=count, quick=quick, progress=meter.at)
        except KeyboardInterrupt:
            raise Interrupted(f"what was tried is kept in {out}; the same command goes on there") from None
        with showing(kept=True):
            if as_json:
                print(to_json(study.as_json()))
            else:
                for line in answer_lines(study):
                    print(textwrap.fill(line, 118, subsequent_indent="  ", break_on_hyphens=False))
        say("report: drawing the figures")
        fault = written(out, lambda part: write_reproduction(part, study))
        if fault is not None:
            raise fault
    if not as_json:
        with showing(kept=True):
            print(f"Report: {out / 'report.html'}")
