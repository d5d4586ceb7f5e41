"""Bytes of a data file, plain or compressed (.bz2, .gz, .xz)."""

import bz2
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from hetsgd.models.data.errors import DataError, MissingDataError
from hetsgd.models.data.folders import COMPRESSIONS

MAX_CONTENT_BYTES = 16 * 2**30
"""Largest decompressed content, on a machine with memory enough."""

_MEMORY_SHARE = 4
"""Content may take so much of the memory at most: parsing it takes the rest."""

_CHUNK_BYTES = 2**24
_INPUT_BYTES = 2**16


def content_limit() -> int:
    """Largest content that this machine can take in, bytes."""
    from hetsgd.models.machine_local import memory_bytes

    return min(MAX_CONTENT_BYTES, memory_bytes() // _MEMORY_SHARE)


def size_words(size_bytes: int) -> str:
    """A size for a message.

    >>> size_words(2**30), size_words(5 * 2**20), size_words(512)
    ('1.0 GiB', '5.0 MiB', '0.5 KiB')
    """
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:.1f} {unit}"
    return f"{size_bytes / 2**10:.1f} KiB"


def read_bytes(path: Path) -> bytes:
    """The decompressed content of a file.

    Raises MissingDataError where it is absent, DataError where it cannot be read, is damaged or is empty.
    """
    raw = _read(path)
    try:
        content = _decompress(raw, path.suffix.lower())
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{path}: must be a whole {path.suffix} file, got damaged content ({error})") from error
    if not content.strip():
        raise DataError(f"{path}: must hold rows, the file is empty")
    return content


def _read(path: Path) -> bytes:
    """The bytes as they lie there; of regular files only, since a pipe or device would be waited for without end."""
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"{path}: must be a file, and is a folder, pipe or device")
        size_bytes, limit = path.stat().st_size, content_limit()
        if size_bytes > limit:
            raise DataError(
                f"{path}: must be at most {size_words(limit)} on this machine, got {size_words(size_bytes)}"
            )
        return path.read_bytes()
    except FileNotFoundError as error:
        raise MissingDataError(f"{path}: no such file") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except DataError:
        raise
    except ValueError as error:  # a zero byte in a name
        raise DataError(f"{str(path)!r}: cannot be read: {error}") from error


class _Stream(Protocol):
    """What the decompressors of bz2 and lzma have in common, and that of gzip is given below."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def needs_input(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gzip:
    """A gzip member with the interface of the other two; checks its checksum at the end."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


_STREAMS: dict[str, Callable[[], _Stream]] = {
    ".bz2": bz2.BZ2Decompressor,
    ".gz": _Gzip,
    ".xz": lambda: lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=2**30),
}


def _decompress(raw: bytes, suffix: str) -> bytes:
    """All streams of a file one after the other, whole, and nothing after them but zeros that pad a block."""
    make = _STREAMS.get(suffix)
    if make is None:
        return raw
    chunks: list[bytes] = []
    left, place = content_limit(), 0
    while place < len(raw):
        if place and not raw[place] and not raw[place:].strip(b"\0"):
            break
        stream = make()
        while not stream.eof:
            given = raw[place : place + _INPUT_BYTES] if stream.needs_input else b""
            place += len(given)
            chunk = stream.decompress(given, _CHUNK_BYTES)
            if not chunk and not stream.eof and place == len(raw) and stream.needs_input:
                raise EOFError("it ends in the middle")
            chunks.append(chunk)
            left -= len(chunk)
            if left < 0:  # a few bytes that unpack without end must not fill the memory
                raise ValueError(f"it unpacks to more than {size_words(content_limit())}")
        place -= len(stream.unused_data)
    return b"".join(chunks)


def bare_suffix(path: Path) -> str:
    """Suffix below the compression's, in lower case: `.csv` for `x.csv.xz`."""
    bare = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS[1:] else path
    return bare.suffix.lower()
