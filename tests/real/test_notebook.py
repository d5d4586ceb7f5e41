"""Training from a notebook: cells of a real kernel, with a policy that is written in one of them."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.real.test_engine_processes import script

# A client of its own process: its sockets end with it. Arguments: the cells as JSON.
CLIENT = """
import json, sys
import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

cells = [nbformat.v4.new_code_cell(text) for text in json.loads(sys.stdin.read())]
notebook = nbformat.v4.new_notebook(cells=cells)
manager = AsyncKernelManager(kernel_name="python3")
manager.kernel_spec.argv[0] = sys.executable
NotebookClient(notebook, km=manager, timeout=60).execute()
print("".join(output.get("text", "") for cell in notebook.cells for output in cell.outputs))
"""
POLICY = """
from dataclasses import dataclass, replace
from typing import ClassVar
from hetsgd.models.policy import Work

class Alternating:
    def next(self, view, worker):
        return Work(batch=8 if view.workers[worker].asked % 2 else 16, rate=0.05, reason="alternating")
    def on_result(self, view, result):
        return ()

@dataclass(frozen=True)
class Notebook:
    kinds: ClassVar = ("cpu", "accelerator")
    lane_modes: ClassVar = ("barrier",)
    max_lookahead: ClassVar = 1
    reads_losses: ClassVar = False
    def begin(self, fleet):
        return Alternating()
"""
AGAIN = """
mine = train(replace(plan, policy="mine", recipe=Notebook()), data)
print("mine", mine.trace.status, sorted(set(mine.trace["assignments"]["batch"].tolist())))
"""


def test_cells_of_a_notebook_train_and_bring_a_policy_of_their_own() -> None:
    cells = json.dumps([script(0.3), POLICY, AGAIN])
    done = subprocess.run(
        [sys.executable, "-c", CLIENT], input=cells, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "status done" in done.stdout
    assert "wrong []" in done.stdout
    assert "mine done [8, 16]" in done.stdout
