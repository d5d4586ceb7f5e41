"""The scheduling policies, by name. Nothing is loaded before it is asked for: listing names stays instant.

>>> recipe("hogbatch", accelerator_batch=512).accelerator_batch
512
"""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from typing import Any, Final

from hetsgd.models.contract import check_parts
from hetsgd.models.edge import load_object
from hetsgd.models.foreign import by_signal, told
from hetsgd.models.keys import Key, check_keys, keys_of
from hetsgd.models.policy import PolicyError, Recipe

_PARTS: Final = ("begin", "kinds", "lane_modes", "max_lookahead", "reads_losses")
_GUIDE: Final = "docs/policies.md"
"""How a policy is written, with an example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo:
    """A built-in policy: its name, one sentence about it, and where its recipe is (`module:class`)."""

    name: str
    description: str
    home: str

    def load(self) -> type[Any]:
        """The recipe class."""
        module, _, name = self.home.partition(":")
        loaded: type[Any] = getattr(import_module(module), name)
        return loaded

    def parameters(self) -> tuple[Key, ...]:
        """The parameters of the recipe, in order."""
        return keys_of(self.load())


def _info(name: str, kind: str, description: str) -> tuple[str, PolicyInfo]:
    home = f"hetsgd.models.policies.{name.replace('-', '_')}:{kind}"
    return name, PolicyInfo(name=name, description=description, home=home)


POLICIES: Final[dict[str, PolicyInfo]] = dict(
    (
        _info("hogwild", "Hogwild", "The CPU lanes alone update the shared model in place, without locks."),
        _info("minibatch", "Minibatch", "The accelerators alone train with one large fixed batch."),
        _info(
            "synchronous",
            "Synchronous",
            "All workers compute one gradient each on the same model; their mean over the rows is one update.",
        ),
        _info(
            "hogbatch",
            "Hogbatch",
            "CPU lanes with small and accelerators with large fixed batches update one model asynchronously.",
        ),
        _info(
            "adaptive-hogbatch",
            "AdaptiveHogbatch",
            "Hogbatch whose batch sizes grow and shrink so that all workers make about as many updates.",
        ),
        _info(
            "backup-workers",
            "BackupWorkers",
            "A synchronous round that takes the first gradients and drops those of the slowest workers.",
        ),
        _info(
            "ringmaster",
            "Ringmaster",
            "Each gradient is applied as it arrives, unless the model has moved on too far since it was read.",
        ),
        _info(
            "easgd",
            "Easgd",
            "Workers train replicas of their own, which an elastic force ties to the global model.",
        ),
    )
)


def recipe(name: str, **keys: object) -> Recipe:
    """The policy called `name` with these parameters; the others have their defaults.

    `name` is a built-in policy or `package.module:object`, where the object is a recipe or a class of recipes.
    PolicyError names the policy, key or value that is wrong, and the nearest right name.
    """
    found = _foreign(name) if ":" in name else _built_in(name)
    if isinstance(found, type):
        _known_keys(name, found, keys)
        try:
            made = found(**keys)
        except PolicyError:  # it says itself which of its keys breaks which rule
            raise
        except BaseException as error:
            if by_signal(error):
                raise
            raise PolicyError(f"policy: {name}: making one raised {told(error)}; see {_GUIDE}") from error
    else:
        if keys:
            _known_keys(name, type(found), keys)
            made = dataclasses.replace(found, **keys)
        else:
            made = found
    missing = [part for part in _PARTS if not hasattr(made, part)]
    if missing:
        raise PolicyError(
            f"policy: {name} is no recipe, it has no {', '.join(missing)}; {_GUIDE} says what each of them is, "
            "and has an example"
        )
    try:
        check_parts(made)
    except PolicyError as error:
        raise PolicyError(f"policy: {name}: {error} ({_GUIDE})") from error
    if dataclasses.is_dataclass(made):
        check_keys(made)  # the ranges that its keys have, whether or not the recipe looks at them itself
    result: Recipe = made
    return result


def _built_in(name: str) -> type[Any]:
    info = POLICIES.get(name)
    if info is None and name.endswith(".py"):
        raise PolicyError(
            f"policy: {name!r} is a Python file; name the class in it as {PurePath(name).stem}:CLASS, with the file "
            f"in the folder where you call this or on PYTHONPATH ({_GUIDE})"
        )
    if info is None:
        raise PolicyError(
            f"policy: there is no {name!r}{_nearest(name, list(POLICIES))}; policies: {', '.join(POLICIES)}; one of "
            f"your own is package.module:object ({_GUIDE})"
        )
    return info.load()


def _foreign(name: str) -> Any:
    module, _, path = name.partition(":")
    if not module or not path:
        raise PolicyError(f"policy: a policy of your own is named package.module:object, got {name!r}")
    try:
        return load_object(name)
    except ValueError as error:
        raise PolicyError(f"policy: {error}") from error


def _known_keys(name: str, kind: type, keys: dict[str, object]) -> None:
    if not keys:
        return
    if not dataclasses.is_dataclass(kind):
        raise PolicyError(f"policy.{next(iter(keys))}: {name} has no keys, since its recipe is no dataclass")
    known = [item.name for item in keys_of(kind)]
    for given in keys:
        if given not in known:
            has = f"its keys: {', '.join(known)}" if known else "it has none"
            raise PolicyError(f"policy.{given}: {name} has no such key{_nearest(given, known)}; {has}")


def _nearest(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5) or [
        known for known in names if name and (name in known or known in name)
    ]
    return f", did you mean {close[0]!r}?" if close else ""
