"""A disk that fills up while a real run is stored: it is printed all the same, and nothing half-written stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import resource, sys
from pathlib import Path
from hetsgd.models.run import StopRule
from hetsgd.studies.commands.one_run import finish
from hetsgd.studies.execute import run_real
from hetsgd.studies.failure import NotSaved
from hetsgd.studies.hardware import with_hardware
from hetsgd.studies.resolve import Ask, resolve

def prepare():
    ask = Ask(machine="local", workload="quickstart", policy="hogwild", learner="real", stop=StopRule(seconds=0.3))
    return with_hardware(resolve(ask, check=False), 1, "none")

def run(ready, progress):
    finished = run_real(ready, progress)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))  # from now on
    return finished

try:
    finish(prepare, run, out=Path(sys.argv[1]), force=False, as_json=True, loss_reference=None)
except NotSaved as error:
    print(error, file=sys.stderr)
    sys.exit(3)
"""


def test_a_trained_run_that_cannot_be_saved_is_printed(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    out = tmp_path / "o"
    child = subprocess.Popen([sys.executable, "-c", SCRIPT, str(out)], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    with os.fdopen(reader) as stream:
        printed = stream.read()
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 3, errors
    record = json.loads(printed)
    assert record["engine"] == "real"
    assert record["status"] == "done"
    assert record["updates"]["cpu"] > 0
    assert "cannot be written: File too large; free space" in errors
    assert not out.exists(), "something half-written was left"
