"""`hetsgd list`: what can be named."""

from __future__ import annotations

import dataclasses
import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from hetsgd.studies.commands.options import JsonOption


class Listing(StrEnum):
    """The kinds of things that have built-in names."""

    MACHINES = "machines"
    WORKLOADS = "workloads"
    POLICIES = "policies"
    DATASETS = "datasets"


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("list")(command)


def command(
    what: Annotated[Listing, typer.Argument(help="What to list.")],
    as_json: JsonOption = False,
) -> None:
    """Show what can be named: machines, workloads, policies or datasets.

    With --json the policies come with their keys: type, default, range and meaning.

    Example:

    \b
      hetsgd list policies
    """
    items = listed(what)
    if as_json:
        print(json.dumps(items, indent=2, ensure_ascii=False))
        return
    width = max(len(item["name"]) for item in items)
    for item in items:
        print(f"{item['name']:<{width}}  {item['description']}")
        if item.get("keys"):
            print(f"{'':<{width}}  keys: {', '.join(_key_words(key) for key in item['keys'])}")


def listed(what: Listing) -> list[dict[str, Any]]:
    """Names and descriptions of one kind."""
    if what is Listing.POLICIES:
        return _policies()
    if what is Listing.MACHINES:
        from hetsgd.models.machine_names import describe_machines

        pairs = describe_machines()
    elif what is Listing.WORKLOADS:
        from hetsgd.models.workload_names import describe_workloads

        pairs = describe_workloads()
    else:
        from hetsgd.models.data.names import describe

        pairs = describe()
    return [{"name": name, "description": description} for name, description in pairs]


def _policies() -> list[dict[str, Any]]:
    from hetsgd.models.policies import POLICIES

    return [
        {
            "name": name,
            "description": info.description,
            "keys": [dataclasses.asdict(key) for key in info.parameters()],
        }
        for name, info in POLICIES.items()
    ]


def _key_words(key: dict[str, Any]) -> str:
    return f"{key['name']}={key['default']}"
