"""Calibrations of surrogates on disk, one JSON file each: those that ship, and a user's own."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from hetsgd.models.data.folders import cache_folder
from hetsgd.models.data.known import KNOWN, whereabouts
from hetsgd.models.edge import problems, read_text
from hetsgd.models.surrogates.axes import AxisError
from hetsgd.models.surrogates.calibration import Calibration, fingerprint
from hetsgd.models.workload import Workload

SCHEMA: Final = "hetsgd.surrogate/1"
SHIPPED: Final = Path(__file__).with_name("shipped")


def save_calibration(path: Path, calibration: Calibration) -> None:
    """Write the file, whole or not at all."""
    text = json.dumps({"schema": SCHEMA, **_rounded(asdict(calibration))}, indent=1, sort_keys=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(path)


def load_calibration(path: Path) -> Calibration:
    """Read a file; ValueError names it and what is wrong with it."""
    try:
        content: Any = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: must be JSON: {error}") from error
    if not isinstance(content, dict) or content.pop("schema", None) != SCHEMA:
        raise ValueError(f"{path}: must be a surrogate's calibration ({SCHEMA}); hetsgd pilots writes one")
    try:
        return TypeAdapter(Calibration).validate_python(content)
    except ValidationError as error:
        raise ValueError(problems(error, origin=str(path), given=content)) from error


def own_folder() -> Path:
    """Where a user's own calibrations are kept."""
    return cache_folder() / "surrogates"


def own_path(workload: Workload) -> Path:
    """The file of a user's own calibration of this workload."""
    return own_folder() / f"{fingerprint(workload)}.json"


def find_calibration(workload: Workload, asked: str = "") -> Calibration:
    """The user's own calibration of this workload, else the one that ships; AxisError where there is none.

    `asked`: how the workload was named, with its overrides, for the command that the error gives; left out: its name.
    """
    if not workload.fully_connected:
        raise AxisError(
            f"surrogate: axis workload: {workload.name} is a traced module, which surrogates do not model; "
            "use --learner replay"
        )
    own = own_path(workload)
    if own.exists():
        return load_calibration(own)
    for found in _shipped():
        if found.fingerprint == fingerprint(workload):
            return found
    known = ", ".join(sorted(found.workload for found in _shipped()))
    named = asked or workload.name
    raise AxisError(
        f"--learner: a surrogate is fitted to short runs of the very network, initial model and data set, and there "
        f"are none of {named} (there are of: {known}); {_first(workload)}run hetsgd pilots --workload {named} "
        "(minutes), or use --learner replay"
    )


def _first(workload: Workload) -> str:
    """What must be done before pilots can run: they compute losses, so they need the data."""
    if workload.dataset not in KNOWN or whereabouts(workload.dataset).at_hand:
        return ""
    return f"its data set {workload.dataset} is not at hand: get it (hetsgd list datasets says how), then "


@lru_cache(maxsize=1)
def _shipped() -> tuple[Calibration, ...]:
    return tuple(load_calibration(path) for path in sorted(SHIPPED.glob("*.json")))


def _rounded(value: Any) -> Any:
    """Seven digits: what was measured has fewer."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value
