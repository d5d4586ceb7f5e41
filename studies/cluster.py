"""The same jobs on a Dask cluster; needs the `cluster` extra."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hetsgd.studies.failure import BadInput
from hetsgd.studies.pool import Outcome
from hetsgd.studies.runner import Job, Unsaved, perform

_FIX = "install it with: pip install 'hetsgd[cluster]'"


def _client(address: str) -> Any:
    """A client of the scheduler; Dask comes without types."""
    import distributed

    client: Any = distributed.Client
    return client(address, timeout="5s")


def check_cluster(address: str) -> None:
    """Raise BadInput unless Dask is installed and a scheduler answers at `address`."""
    try:
        import distributed  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise BadInput(f"--cluster: needs dask and distributed, which are not installed; {_FIX}") from error
    if "://" not in address:
        raise BadInput(f"--cluster: must be the address of a Dask scheduler such as tcp://host:8786, got {address!r}")
    try:
        _client(address).close()
    except (OSError, TimeoutError, ValueError) as error:
        raise BadInput(f"--cluster: no Dask scheduler answers at {address}: {error}") from error


def files_of(job: Job) -> dict[str, bytes]:
    """Run a job into a folder of the worker's own and return the files, since a cluster need not share disks."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        if (lost := perform(replace(job, folder=folder))) is not None:
            raise OSError(lost.reason)
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run_on_cluster(jobs: Sequence[Job], address: str) -> Generator[Outcome]:
    """Yield the outcome of each job as it is done; its files are written here, `run.json` last."""
    import distributed

    as_completed: Any = distributed.as_completed
    with _client(address) as client:
        futures = {client.submit(files_of, job, pure=False): index for index, job in enumerate(jobs)}
        try:
            for future in as_completed(futures):
                yield _stored(future, futures[future], jobs)
        finally:
            client.cancel(list(futures))


def _stored(future: Any, index: int, jobs: Sequence[Job]) -> Outcome:
    error = future.exception()
    if error is not None:
        return Outcome(index=index, error=f"{type(error).__name__}: {error}")
    files, folder = future.result(), jobs[index].folder
    try:
        for name, content in sorted(files.items(), key=lambda item: item[0] == "run.json"):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    except OSError as full:
        record, resolved = (json.loads(files[name]) for name in ("run.json", "resolved.json"))
        (folder / "run.json").unlink(missing_ok=True)
        reason = f"{full.filename or folder}: cannot be written: {full.strerror or full}"
        return Outcome(index=index, value=Unsaved(record=record, resolved=resolved, reason=reason))
    return Outcome(index=index)
