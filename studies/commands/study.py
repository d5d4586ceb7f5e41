"""`hetsgd study run` and `hetsgd study report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsgd.models.words import counted
from hetsgd.studies.commands.options import ForceOption, help_of, path_of
from hetsgd.studies.failure import RunFailed


def add(app: typer.Typer) -> None:
    """Add the two commands to the program."""
    group = typer.Typer(help="Run a study file, or rebuild the report of one.", no_args_is_help=True,
                        rich_markup_mode="rich")  # fmt: skip
    group.command("run", help=help_of(run))(run)
    group.command("report", help=help_of(report))(report)
    app.add_typer(group, name="study")


def run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", parser=path_of, help="The study: a TOML file, or quickstart.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", parser=path_of, help="Folder; default out/NAME.")
    ] = None,
    force: ForceOption = False,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", help="Processes for simulated runs; default: all cores.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="ADDRESS", help="A Dask scheduler, such as tcp://host:8786.")
    ] = None,
) -> None:
    """Run a study; running it again resumes it, and keeps what is there.

    FILE names machines, workloads, policies with grids of their keys, stop rules, and whether to tune by pilots, to
    calibrate this machine and to validate by real runs: docs/studies.md has every key.

    Example:

    \b
      hetsgd study run studies/quickstart.toml --out out/quickstart
    """
    from hetsgd.studies.answer import answer_lines
    from hetsgd.studies.commands.one_study import draw_report, run_study, store_study, study_folder
    from hetsgd.studies.runner import Runner, check_workers
    from hetsgd.studies.screen import showing
    from hetsgd.studies.study_file import find_study, load_study
    from hetsgd.studies.study_folder import write_study

    study = load_study(file)
    source = find_study(file)
    text = source.read_text(encoding="utf-8")
    count = check_workers(workers)
    if cluster is not None:
        from hetsgd.studies.cluster import check_cluster

        check_cluster(cluster)
    with study_folder(out or Path("out") / study.name, study, "study", force=force, source=source) as folder:
        runner = Runner(folder=folder, learner=study.learner, workers=count, cluster=cluster, origin=str(source))
        result = run_study(study, runner)
        fault = store_study(folder, runner, lambda part: write_study(part, result, text))
        with showing(kept=True):
            for line in answer_lines(result):
                print(line)
        fault = fault or draw_report(folder, result)
        if fault is not None:
            raise fault
        with showing(kept=True):
            print(f"Report: {folder / 'report.html'}")
    _tell_failures(result.failures)


def _tell_failures(failures: tuple[str, ...]) -> None:
    if failures:
        raise RunFailed(f"{counted(len(failures), 'run')} of the study failed; the report names them")


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", parser=path_of, help="Folder of a study.")],
) -> None:
    """Rebuild report.html, report.md and the figures of a study from its folder.

    Example:

    \b
      hetsgd study report out/quickstart
    """
    from hetsgd.studies.answer import answer_lines
    from hetsgd.studies.commands.one_study import draw_report
    from hetsgd.studies.screen import showing
    from hetsgd.studies.study_folder import read_study

    result = read_study(folder)
    with showing(kept=True):
        for line in answer_lines(result):
            print(line)
    fault = draw_report(folder, result)
    if fault is not None:
        raise fault
    with showing(kept=True):
        print(f"Report: {folder / 'report.html'}")
