"""Calibration and validation as parts of the check of an accelerator: commands of their own, with a time limit each."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hetsgd.studies.gpu_findings import Finding

if TYPE_CHECKING:
    from hetsgd.studies.gpu_check import Extent

MACHINE: Final = "machine.toml"
VALIDATION: Final = "validation.json"
_PROGRAM: Final = "from hetsgd.studies.main import main; main()"
_RUN_S: Final = 1.0
_GRACE_S: Final = 10.0
_ERROR: Final = {"time to loss": 0.1, "kendall tau": 0.8}


def model_checks(device: str, extent: Extent, out: Path, until_s: float, policies: str) -> Iterator[Finding]:
    """Calibrate this machine into the folder, then predict and measure three policies on it.

    A prediction that is off is `short`, never `wrong`: it says something about the model, not about the executor.
    """
    if not extent.minutes:
        yield Finding(part="model", what="calibration, validation", found="left out of the short check",
                      status="skipped")  # fmt: skip
        return
    machine = out / MACHINE
    code, _, errors = hetsgd(["calibrate", "--out", MACHINE, "--minutes", f"{extent.minutes:g}"], until_s, out)
    if code or not machine.is_file():
        yield Finding(part="model", what="calibration", found=_last(errors), status="wrong")
        return
    yield Finding(part="model", what="calibration", found=f"written: {machine.name}", status="ok")
    code, text, errors = hetsgd(
        ["validate", "--machine", MACHINE, "--workload", "quickstart", "--policies", policies, "--repeats",
         str(extent.repeats), "--seconds", f"{_RUN_S:g}", "--set", "policy.accelerator_batch=256", "--set",
         "run.learning_rate=0.1", "--json"],
        until_s,
        out,
    )  # fmt: skip
    if code is None:
        yield Finding(part="model", what="validation", found="no time was left to end it", status="short")
        return
    if code:
        yield Finding(part="model", what="validation", found=_last(errors), status="wrong")
        return
    (out / VALIDATION).write_text(text, encoding="utf-8")
    yield from validation_findings(json.loads(text))


def validation_findings(validation: dict[str, Any]) -> Iterator[Finding]:
    """The lines of a `hetsgd.validation/1` object."""
    error, floor, tau = validation["median_error"], validation["noise_floor"], validation["kendall_tau"]
    if error is None:
        yield Finding(part="model", what="median error of time to loss", found="no level was reached by all",
                      status="short")  # fmt: skip
    else:
        wanted = max(_ERROR["time to loss"], 1.5 * (floor or 0.0))
        yield Finding(
            part="model", what="median error of time to loss", value=error, found=f"{error:.1%}",
            wanted=f"<= {wanted:.1%} (10 %, or 1.5 x the noise floor)", status="ok" if error <= wanted else "short",
        )  # fmt: skip
    if tau is not None:
        yield Finding(
            part="model", what="Kendall's tau of the ranking", value=tau, found=f"{tau:.2f}",
            wanted=f">= {_ERROR['kendall tau']}", status="ok" if tau >= _ERROR["kendall tau"] else "short",
        )  # fmt: skip
    yield Finding(part="model", what="verdict", found=validation["verdict"], status="ok")


def hetsgd(arguments: Sequence[str], until_s: float, folder: Path) -> tuple[int | None, str, str]:
    """Run a command of the package in a folder: its exit code (None: ended for the time), output and errors.

    Files are named as in that folder, so that no path of this machine gets into what will be committed.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=folder,
    )  # fmt: skip
    try:
        out, errors = process.communicate(timeout=max(until_s - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            out, errors = process.communicate(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, errors = process.communicate()
        return None, out, errors
    return process.returncode, out, errors


def _last(errors: str) -> str:
    lines = errors.strip().splitlines()
    return lines[-1] if lines else "it said nothing"
