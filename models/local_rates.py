"""What was measured of the machine at hand, kept for later commands, so that two of them see the same machine.

Kept in the user's cache folder, one file for each host: its processor, usable cores, caches, memory and the versions of
what the measurement ran with. Measured anew when one of these changes, when asked for, or when the file is gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from hetsgd.models.data.folders import cache_folder

_FORMAT: Final = 1
RENEW: Final = "--set machine.fresh=true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What was measured: copies of one thread (DRAM, L3), of all cores, and matrix products of one thread.

    A copy of n bytes counts 2 n: read and written.
    """

    core_bytes_per_s: float
    core_l3_bytes_per_s: float
    all_bytes_per_s: float
    flops_float32: float
    flops_float64: float
    half_batch: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0.0 if field.name == "half_batch" else 1e3
            if not least <= value < math.inf:
                raise ValueError(f"local: {field.name} must be >= {least:g} and finite, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Rates with the time they were measured at (ISO, UTC), and the file that keeps them (None: it cannot be written).

    `fresh`: measured by this very command.
    """

    rates: Rates
    date: str
    path: Path | None
    fresh: bool

    def words(self) -> str:
        """One line for a person: from when the rates are, where they are kept, and how they are renewed."""
        if self.fresh:
            where = "not kept: the cache folder cannot be written" if self.path is None else f"kept in {self.path}"
            return f"local: this machine's rates measured just now, {where}"
        return f"local: this machine's rates of {self.date[:16].replace('T', ' ')} UTC from {self.path}; {RENEW} renews"


def host(cores: int, sizes: dict[str, int]) -> dict[str, Any]:
    """What must be the same for kept rates to count: hardware in words, usable cores, sizes, versions."""
    from importlib.metadata import version

    return {
        "processor": _processor(),
        "machine": platform.machine(),
        "cores": cores,
        "sizes": sizes,
        "versions": {"python": platform.python_version(), "numpy": version("numpy"), "hetsgd": version("hetsgd")},
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def rates_of(measured_on: dict[str, Any], measure: Callable[[], Rates], *, fresh: bool = False) -> Kept:
    """The kept rates of this host, or new ones, which are kept from then on; `fresh` measures in any case."""
    key = hashlib.sha256(json.dumps([_FORMAT, measured_on], sort_keys=True).encode()).hexdigest()[:12]
    path = cache_folder() / "machines" / f"local-{key}.json"
    kept = None if fresh else _read(path)
    if kept is not None:
        return kept
    rates = measure()
    date = datetime.now(UTC).isoformat(timespec="seconds")
    written = _write(path, {"format": _FORMAT, "date": date, "host": measured_on, "rates": asdict(rates)})
    return Kept(rates=rates, date=date, path=path if written else None, fresh=True)


def _read(path: Path) -> Kept | None:
    """The rates in a file; None where there is none, or not one that can be used."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Kept(rates=Rates(**content["rates"]), date=str(content["date"]), path=path, fresh=False)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(path: Path, content: dict[str, Any]) -> bool:
    """Write whole or not at all: another command may read at the same time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=path.parent, prefix=".local-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1)
            os.replace(part, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(part)
            return False
    except OSError:
        return False
    return True
