"""`hetsgd study run` and `hetsgd study report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsgd.studies.failure import EXIT_RUN_FAILED


def add(app: typer.Typer) -> None:
    """Add the two commands to the program."""
    group = typer.Typer(help="Run a study file, or rebuild the report of one.", no_args_is_help=True,
                        rich_markup_mode="rich")  # fmt: skip
    group.command("run")(run)
    group.command("report")(report)
    app.add_typer(group, name="study")


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The study: a TOML file, or quickstart.")],
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder; default out/NAME.")] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", help="Processes for simulated runs; default: all cores.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="ADDRESS", help="A Dask scheduler, such as tcp://host:8786.")
    ] = None,
) -> None:
    """Run a study; running it again resumes it, and keeps what is there.

    Example:

    \b
      hetsgd study run studies/quickstart.toml --out out/quickstart
    """
    from hetsgd.studies.answer import answer_lines
    from hetsgd.studies.campaign import run_campaign
    from hetsgd.studies.failure import checking
    from hetsgd.studies.record import check_folder
    from hetsgd.studies.report import write_report
    from hetsgd.studies.runner import Runner, check_workers
    from hetsgd.studies.screen import say
    from hetsgd.studies.study_file import find_study, load_study
    from hetsgd.studies.study_folder import write_study

    study = load_study(file)
    count = check_workers(workers)
    if cluster is not None:
        from hetsgd.studies.cluster import check_cluster

        check_cluster(cluster)
    folder = out or Path("out") / study.name
    with checking("--out"):
        check_folder(folder)
    runner = Runner(folder=folder, learner=study.learner, workers=count, cluster=cluster)
    result = run_campaign(study, runner)
    write_study(folder, result, find_study(file).read_text(encoding="utf-8"))
    say("report: drawing the figures")
    path = write_report(folder, result)
    for line in answer_lines(result):
        print(line)
    print(f"Report: {path}")
    if result.failures:
        say(f"hetsgd: {len(result.failures)} of the runs failed; the report names them")
        raise typer.Exit(EXIT_RUN_FAILED)


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a study.")],
) -> None:
    """Rebuild report.html, report.md and the figures of a study from its folder.

    Example:

    \b
      hetsgd study report out/quickstart
    """
    from hetsgd.studies.answer import answer_lines
    from hetsgd.studies.report import write_report
    from hetsgd.studies.study_folder import read_study

    result = read_study(folder)
    path = write_report(folder, result)
    for line in answer_lines(result):
        print(line)
    print(f"Report: {path}")
