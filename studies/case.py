"""One run of a study: who it is, what it resolves to, and the key under which its result is kept."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal

from hetsgd.studies.resolve import Ready
from hetsgd.studies.study import Settings

Role = Literal["pilot", "run", "predicted", "measured"]
KEY_LENGTH: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run of a study. `label` names the policy in reports; `repeat` counts real runs under one seed."""

    role: Role
    machine: str
    workload: str
    label: str
    policy: str
    seed: int
    settings: Settings
    repeat: int = 0

    @property
    def engine(self) -> Literal["sim", "real"]:
        """Which engine runs it."""
        return "real" if self.role == "measured" else "sim"

    def words(self) -> str:
        """The case in a few words, for progress and messages."""
        return f"{self.role}: {self.label} on {self.machine}, {self.workload}, seed {self.seed}"


def case_key(case: Case, ready: Ready) -> str:
    """The sha256 of everything that decides the result: resolved inputs, engine, repeat and versions (hex, cut)."""
    content = {
        "engine": case.engine,
        "repeat": case.repeat,
        "learner": ready.learner,
        "inputs": inputs_of(ready),
        "versions": versions(),
        "source": source_digest(),
    }
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]


def inputs_of(ready: Ready) -> dict[str, Any]:
    """The resolved inputs of a run as plain values."""
    plan = ready.plan
    recipe: Any = plan.recipe
    return {
        "machine": asdict(plan.machine),
        "workload": asdict(plan.workload),
        "policy": {"name": plan.policy, "recipe": _qualified(type(recipe)), "keys": asdict(recipe)},
        "run": asdict(plan.run),
    }


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Versions of what can change a result."""
    import platform

    names = ("hetsgd", "numpy", "networkx", "scipy", "simpy", "torch")
    found = {name: metadata.version(name) for name in names}
    return {"python": platform.python_version(), **found}


@lru_cache(maxsize=1)
def source_digest() -> str:
    """The sha256 of the sources of the models and engines: an edited formula makes old results void."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for folder in ("models", "sim", "real"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".py", ".toml", ".npz"):
                digest.update(path.relative_to(root).as_posix().encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _qualified(kind: type) -> str:
    """The class by name, with a digest of its source where it is no part of this package."""
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind.__module__.startswith("hetsgd."):
        return name
    import inspect

    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):
        source = ""
    return f"{name} {hashlib.sha256(source.encode()).hexdigest()}"
