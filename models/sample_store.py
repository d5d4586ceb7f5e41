"""Measurements on disk while a calibration runs: each is there as soon as it is made, so that a kill costs none.

One JSON object a line: first what is measured on what, then `[key, values, seconds since the start]`. A line that was
cut short by a kill is ignored.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

_SCHEMA: Final = "hetsgd.samples/1"


class SampleStore:
    """Lists of numbers by key, and who measured them: `identity` says on what, with what and which versions.

    Use it as a context. A file of another identity is begun anew, and `set_aside` says that there was one.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self._path = path
        self._identity = json.loads(json.dumps(dict(identity)))
        self._values: dict[str, list[list[float]]] = defaultdict(list)
        self._file: IO[str] | None = None
        self.resumed = 0
        self.elapsed_s = 0.0
        self.set_aside = False

    def __enter__(self) -> Self:
        self._load()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        whole = [[key, values, self.elapsed_s] for key, found in self._values.items() for values in found]
        part = self._path.with_name(f"{self._path.name}.new")
        lines = [{"schema": _SCHEMA, "identity": self._identity}, *whole]
        part.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        os.replace(part, self._path)
        self._file = self._path.open("a", encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def add(self, key: str, values: list[float], elapsed_s: float) -> None:
        """One more measurement under a key, made `elapsed_s` seconds after the start."""
        self._values[key].append(values)
        self.elapsed_s = elapsed_s
        if self._file is not None:
            self._file.write(f"{json.dumps([key, values, elapsed_s])}\n")
            self._file.flush()

    def count(self, key: str) -> int:
        """How often it was measured."""
        return len(self._values[key]) if key in self._values else 0

    def all(self, key: str) -> list[list[float]]:
        """All measurements under a key, in the order of time."""
        return list(self._values[key]) if key in self._values else []

    def measured(self) -> list[str]:
        """All keys, in the order of their first measurement."""
        return [key for key, values in self._values.items() if values]

    def remove(self) -> None:
        """Delete the file: what was measured is written elsewhere."""
        self._path.unlink(missing_ok=True)

    def _load(self) -> None:
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return
        found = [_parsed(line) for line in lines]
        head = found[0] if found else None
        if not isinstance(head, dict) or head.get("identity") != self._identity or head.get("schema") != _SCHEMA:
            self.set_aside = True
            return
        for line in found[1:]:
            if isinstance(line, list) and len(line) == 3:
                self._values[line[0]].append(line[1])
                self.elapsed_s = max(self.elapsed_s, line[2])
                self.resumed += 1


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return None
