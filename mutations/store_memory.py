"""Stores in memory, so that thousands of mutated copies can be judged without a file for each."""

import os
import stat
from typing import Final

from assay.impl.stores.extents import Extent, Filesystem, StoreFile

_DESCRIPTOR: Final = 1 << 30


class MemorySystem(Filesystem):
    """A file system with one regular file, which is never opened for real."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.bytes_read = 0

    def close(self, descriptor: int) -> None:
        """Does nothing: no descriptor is real."""

    def duplicate(self, descriptor: int) -> int:
        """Returns the descriptor: no descriptor is real."""
        return descriptor

    def status(self, descriptor: int) -> os.stat_result:
        """Returns the status of a regular file of this size."""
        del descriptor
        return os.stat_result((stat.S_IFREG | 0o644, 1, 1, 1, 0, 0, len(self.data), 0, 0, 0))

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        """Returns the bytes, and counts them."""
        del descriptor
        data = self.data[offset : offset + size]
        self.bytes_read += len(data)
        return data

    def will_need(self, descriptor: int, offset: int, size: int) -> None:
        """Does nothing: the bytes are here."""


def memory_extent(data: bytes, start: int = 0, size: int | None = None, name: str = "memory") -> Extent:
    """Returns an extent over bytes in memory."""
    return StoreFile(_DESCRIPTOR, name, MemorySystem(data)).extent(start, size, name)
