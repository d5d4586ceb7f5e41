"""Fetch one public data file: into its place at once or not at all."""

import hashlib
import http.client
import os
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO

from hetsgd.models.data.errors import DataError
from hetsgd.models.data.homes import Home

DownloadProgress = Callable[[int, int | None], None]
"""Called with the bytes received so far and the whole size, None where the server does not say."""

TIMEOUT_S = 30.0
"""Longest silence of a server."""

LONGEST_S = 3600.0
"""Longest whole transfer: a server that trickles must not hold a program for ever."""

LARGEST_BYTES = 4 * 2**30
_CHUNK_BYTES = 2**18


class DownloadError(DataError):
    """A data file could not be fetched; the message says why and where to put it by hand."""


def fetch(
    home: Home,
    folder: Path,
    *,
    progress: DownloadProgress | None = None,
    tell: Callable[[str], None] | None = None,
    timeout_s: float = TIMEOUT_S,
    longest_s: float = LONGEST_S,
) -> Path:
    """Fetch the file into `folder` and return its path; a reader never sees a part of it.

    `tell` gets the sentences that a person should read (default: standard error): what is fetched, and the
    computed checksum where none is known. `timeout_s` bounds each wait for the server, `longest_s` the transfer.

    Raises DownloadError where the server cannot be reached or answers with an error, where it sends less than it
    announced or another content than the checksum says, and where the folder cannot be written.
    """
    target = folder / home.file
    say = tell or _to_stderr
    say(f"fetching {home.url}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=home.file, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as out:
                found = _transfer(home.url, out, progress, timeout_s, longest_s)
            if home.sha256 is not None and found != home.sha256:
                raise ValueError(f"its sha256 must be {home.sha256}, got {found}: another version, or damaged")
            Path(temporary).replace(target)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise DownloadError(
            f"{home.url}: could not be fetched ({_reason(error)}); nothing was kept. "
            f"Fetch it by other means and put it at {target}"
        ) from error
    if home.sha256 is None:
        say(f"{home.file}: checksum not known, computed sha256 {found}; compare it with one you trust")
    return target


def _transfer(url: str, out: IO[bytes], progress: DownloadProgress | None, timeout_s: float, longest_s: float) -> str:
    """Copy the content and return its sha256; ValueError where it is not whole."""
    request = urllib.request.Request(url, headers={"User-Agent": "hetsgd"})
    digest = hashlib.sha256()
    deadline = time.monotonic() + longest_s
    received = 0
    with _answer(request, timeout_s) as answer:
        announced = answer.headers.get("Content-Length", "")
        total = int(announced) if announced.isdigit() else None
        while chunk := answer.read1(_CHUNK_BYTES):
            out.write(chunk)
            digest.update(chunk)
            received += len(chunk)
            if received > LARGEST_BYTES:
                raise ValueError(f"it is larger than {LARGEST_BYTES / 2**30:.0f} GiB")
            if time.monotonic() > deadline:
                raise ValueError(f"it took more than {longest_s:g} s, {received:,} bytes had come")
            if progress is not None:
                progress(received, total)
    if total is not None and received != total:
        raise ValueError(f"it must have {total:,} bytes, {received:,} came before the connection ended")
    if not received:
        raise ValueError("it is empty")
    return digest.hexdigest()


def _answer(request: urllib.request.Request, timeout_s: float) -> http.client.HTTPResponse:
    try:
        answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        error.close()  # it is an answer too, with a connection of its own
        raise
    return answer


def _reason(error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}"
    if isinstance(error, TimeoutError):
        return "the server is silent"
    if isinstance(error, urllib.error.URLError):
        return f"no connection: {error.reason}"
    return str(error) or type(error).__name__


def _to_stderr(sentence: str) -> None:
    sys.stderr.write(sentence + "\n")
