"""A study as a reader meets it: machines and workloads of files by the names that single runs give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from hetsgd.studies.campaign import StudyResult

_FILE = ".toml"


def presented(result: StudyResult) -> StudyResult:
    """The same results under names such as `my-box`, where the study was asked for `my-box.toml`.

    A name that another machine or workload of the study has already stays as it was typed.
    """
    study = result.study
    machines = _names(
        study.machines, ((case.machine, run.resolved.get("machine")) for case, run in result.found.items())
    )
    workloads = _names(
        study.workloads, ((case.workload, run.resolved.get("workload")) for case, run in result.found.items())
    )
    if all(typed == name for names in (machines, workloads) for typed, name in names.items()):
        return result

    def renamed(value: Any) -> Any:
        return replace(value, machine=machines[value.machine], workload=workloads[value.workload])

    validation = study.validation
    return replace(
        result,
        study=replace(
            study,
            machines=tuple(machines.values()),
            workloads=tuple(workloads.values()),
            on=tuple(replace(on, machine=machines[on.machine]) for on in study.on),
            validation=validation and replace(validation, machine=machines[validation.machine]),
        ),
        found={renamed(case): run for case, run in result.found.items()},
        choices=tuple(renamed(choice) for choice in result.choices),
    )


def _names(typed: Iterable[str], resolved: Iterable[tuple[str, Mapping[str, Any] | None]]) -> dict[str, str]:
    """What each is called: the name in its file, unless two would share one."""
    inside = {as_typed: str(value["name"]) for as_typed, value in resolved if value}
    names: dict[str, str] = {}
    for each in typed:
        name = inside.get(each, each) if each.endswith(_FILE) else each
        names[each] = each if name in names.values() else name
    return names
