"""Bytes of a data file, plain or compressed (.bz2, .gz, .xz)."""

import bz2
import gzip
import io
import lzma
import zlib
from pathlib import Path

from hetsgd.models.data.dataset import DataError, MissingDataError

COMPRESSIONS = ("", ".xz", ".bz2", ".gz")
"""Suffixes that are understood, the empty one being a plain file."""

MAX_CONTENT_BYTES = 16 * 2**30
"""Largest decompressed content."""

_CHUNK_BYTES = 2**24


def read_bytes(path: Path) -> bytes:
    """The decompressed content of a file.

    Raises MissingDataError where it is absent, DataError where it cannot be read, is damaged or is empty.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise MissingDataError(f"{path}: no such file") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        content = _decompress(raw, path.suffix.lower())
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{path}: must be a whole {path.suffix} file, got damaged content ({error})") from error
    if not content.strip():
        raise DataError(f"{path}: must hold rows, the file is empty")
    return content


def _decompress(raw: bytes, suffix: str) -> bytes:
    if not raw:
        return raw  # reported as empty by the caller, whatever the suffix
    if suffix == ".bz2":
        return _bounded(bz2.open(io.BytesIO(raw)))
    if suffix == ".gz":
        return _bounded(gzip.open(io.BytesIO(raw)))
    if suffix == ".xz":
        return _bounded(lzma.open(io.BytesIO(raw)))
    return raw


def _bounded(file: gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile) -> bytes:
    """All content, chunk by chunk: a few bytes that unpack without end must not fill the memory."""
    chunks: list[bytes] = []
    size_bytes = 0
    with file:
        while chunk := file.read(_CHUNK_BYTES):
            chunks.append(chunk)
            size_bytes += len(chunk)
            if size_bytes > MAX_CONTENT_BYTES:
                raise ValueError(f"it unpacks to more than {MAX_CONTENT_BYTES / 2**30:.0f} GiB")
    return b"".join(chunks)


def bare_suffix(path: Path) -> str:
    """Suffix below the compression's, in lower case: `.csv` for `x.csv.xz`."""
    bare = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return bare.suffix.lower()
