"""Named arrays in anonymous shared memory: nothing has a name in the file system, so nothing can be left behind.

The memory is a `memfd` where the system has one, else a temporary file that is unlinked before it is used. A child
gets the file descriptor and the layout; the memory is gone when the last process that maps it is gone, however
it ended. Pages take memory only once they are touched, so generous shapes cost nothing.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_LINE_BYTES: Final = 64

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where each array lies: name -> (offset in bytes, shape, dtype text). Arrays start on their own cache line."""

    fields: Mapping[str, tuple[int, Shape, str]]
    size_bytes: int


def layout_of(arrays: Mapping[str, tuple[Shape, str]]) -> Layout:
    """The layout of arrays given by shape and dtype.

    >>> layout_of({"a": ((3,), "f8"), "b": ((2, 2), "i4")}).fields["b"]
    (64, (2, 2), 'i4')
    """
    fields, offset = {}, 0
    for name, (shape, dtype) in arrays.items():
        fields[name] = (offset, shape, dtype)
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        offset += -(-size // _LINE_BYTES) * _LINE_BYTES
    return Layout(fields=fields, size_bytes=max(offset, _LINE_BYTES))


def _anonymous_file(size_bytes: int) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("hetsgd", os.MFD_CLOEXEC)
    else:
        descriptor, path = tempfile.mkstemp(prefix="hetsgd-")
        os.unlink(path)
    os.ftruncate(descriptor, size_bytes)
    return descriptor


class SharedMemory:
    """Arrays by name. Made new without `descriptor`, else mapped from what another process made."""

    def __init__(self, layout: Layout, descriptor: int | None = None) -> None:
        self.layout = layout
        self.descriptor = _anonymous_file(layout.size_bytes) if descriptor is None else descriptor
        self._map = mmap.mmap(self.descriptor, layout.size_bytes)

    def __getitem__(self, name: str) -> NDArray[Any]:
        offset, shape, dtype = self.layout.fields[name]
        count = int(np.prod(shape, dtype=np.int64))
        if not count:
            return np.empty(shape, dtype=dtype)
        return np.frombuffer(self._map, dtype=dtype, count=count, offset=offset).reshape(shape)

    def close_descriptor(self) -> None:
        """Close the descriptor, once every child has its own; the mapping stays as long as an array uses it."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)
