"""`hetsgd list`: what can be named."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from hetsgd.models.edge import nearest
from hetsgd.studies.commands.options import help_of
from hetsgd.studies.failure import BadInput

Items = list[dict[str, Any]]

_ABOUT: Final = {
    "machines": "what a run is simulated on (--machine)",
    "workloads": "networks with their data (--workload)",
    "policies": "who gets how many rows at which rate (--policy)",
    "datasets": "the data of workloads (workload.dataset), and whether they are at hand",
}
"""The kinds of things that have built-in names."""

_WIDE: Final = 118
"""Columns of a line of text here."""


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("list", help=help_of(command))(command)


def command(
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help=f"{', '.join(_ABOUT)}. Left out: the names of all four.")
    ] = None,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One of them, with all there is to say.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON array instead: an object with name, description and more each.")
    ] = False,
) -> None:
    """Show what can be named on the command line and in files.

    Policies are shown with their keys and defaults, data sets with the place of their files. With a NAME the type,
    range and meaning of each key are shown as well, and the checksums of data files; --json has everything.

    Example:

    \b
      hetsgd list
      hetsgd list policies
      hetsgd list policies hogbatch
      hetsgd list datasets --json
    """
    if kind is not None and kind not in _ABOUT:
        raise BadInput(f"list: {kind!r} is no kind of name, {nearest(kind, _ABOUT)}")
    items = overview() if kind is None else listed(kind)
    if name is not None:
        items = [item for item in items if item["name"] == name]
        if not items:
            names = [item["name"] for item in listed(str(kind))]
            raise BadInput(f"list: {name!r} is none of the {kind}, {nearest(name, names)}")
    if as_json:
        print(json.dumps(items, indent=2, ensure_ascii=False))
        return
    width = max(len(item["name"]) for item in items)
    for item in items:
        first, *others = textwrap.wrap(item["description"], _WIDE - width) or [""]
        print(f"{item['name']:<{width}}  {first}".rstrip())
        for line in (*others, *(_details(item) if name is None else _everything(item))):
            print(f"{'':<{width}}  {line}")
    if name is None and kind in _NOTES:
        print(f"\n{_NOTES[kind]()}")


def overview() -> Items:
    """The four kinds, each with the names that it has."""
    return [
        {"name": kind, "description": about, "names": [item["name"] for item in listed(kind)]}
        for kind, about in _ABOUT.items()
    ]


def listed(kind: str) -> Items:
    """Names and descriptions of one kind, with what is particular to it."""
    return _LISTS[kind]()


def _machines() -> Items:
    from hetsgd.models.machine_names import describe_machines

    return [{"name": name, "description": description} for name, description in describe_machines()]


def _policies() -> Items:
    from hetsgd.models.policies import POLICIES

    return [
        {
            "name": name,
            "description": info.description,
            "keys": [dataclasses.asdict(key) for key in info.parameters()],
        }
        for name, info in POLICIES.items()
    ]


def _workloads() -> Items:
    from hetsgd.models.data.known import whereabouts
    from hetsgd.models.workload_names import describe_workloads, workload_dataset

    found = []
    for name, description in describe_workloads():
        dataset = workload_dataset(name)
        at_hand = whereabouts(dataset).at_hand
        found.append({"name": name, "description": description, "dataset": dataset, "at_hand": at_hand})
    return found


def _datasets() -> Items:
    from hetsgd.models.data.known import whereabouts
    from hetsgd.models.data.names import describe

    found = []
    for name, description in describe():
        where = whereabouts(name)
        found.append({"name": name, "description": description, **dataclasses.asdict(where)})
    return found


_LISTS: Final[dict[str, Callable[[], Items]]] = {
    "machines": _machines, "workloads": _workloads, "policies": _policies, "datasets": _datasets,
}  # fmt: skip


def _details(item: dict[str, Any]) -> list[str]:
    """The lines below a name."""
    if "names" in item:
        return [", ".join(item["names"])]
    if "keys" in item:
        keys = ", ".join(_key_words(key) for key in item["keys"])
        return textwrap.wrap(f"keys: {keys}", _WIDE - 20, subsequent_indent="      ") if keys else []
    if "wanted" in item:
        return [_whereabouts(item)]
    if item.get("at_hand") is False:
        least = "learning takes the embedded sample" if item["dataset"] == "covtype" else "only timing works"
        return [f"data set {item['dataset']} is not at hand: {least} (see hetsgd list datasets)"]
    return []


def _everything(item: dict[str, Any]) -> list[str]:
    """The lines below a name that was asked for: keys one by one, files with their checksums."""
    if "keys" in item:
        return [line for key in item["keys"] for line in _key_lines(key)] or ["no keys"]
    if "wanted" in item:
        sums = [f"sha256 of {home['url']}: {home['sha256'] or 'not known'}" for home in item["homes"]]
        return [_whereabouts(item), *sums]
    return _details(item)


def _key_lines(key: dict[str, Any]) -> list[str]:
    """A key as `--set` gives it, with type and range, and its meaning below."""
    words = f"policy.{key['name']}={key['default']}  ({key['type']}{_range(key)})"
    return [words, *textwrap.wrap(key["meaning"], _WIDE - 24, initial_indent="    ", subsequent_indent="    ")]


def _range(key: dict[str, Any]) -> str:
    if key["choices"]:
        return f", one of {', '.join(key['choices'])}"
    low = "" if key["low"] is None else f", >= {key['low']:,.12g}"
    return low + ("" if key["high"] is None else f", <= {key['high']:,.12g}")


def _key_words(key: dict[str, Any]) -> str:
    return f"{key['name']}={key['default']}"


def _whereabouts(item: dict[str, Any]) -> str:
    """Where a data set is, or what is missing of it."""
    if item["at_hand"]:
        return f"at hand: {' and '.join(item['files']) or 'part of this package'}"
    homes = " and ".join(home["url"] for home in item["homes"])
    return f"not at hand: {' and '.join(item['wanted'])}, {homes or 'no public address is known'}"


def _about_files() -> str:
    """Where data files go, once for all sets."""
    from hetsgd.models.data.folders import data_folders

    folders = " or ".join(f"{folder}/NAME/" for folder in data_folders())
    return (
        f"Files that are not at hand go into {folders}, plain, .xz, .bz2 or .gz; HETSGD_DATA names the folder above.\n"
        "--set workload.download=true fetches those that have an address."
    )


_NOTES: Final[dict[str | None, Callable[[], str]]] = {
    None: lambda: (
        "hetsgd list KIND describes them, hetsgd list KIND NAME one. A TOML file or package.module:object of your own "
        "is named likewise."
    ),
    "datasets": _about_files,
    "policies": lambda: (
        "hetsgd list policies NAME has the range and meaning of each key. docs/policies.md: one of your own."
    ),
}
