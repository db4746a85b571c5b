"""Memory for reads: page-aligned slots of one size, made once, handed out by number.

The scheduler says who uses which slot and when; here is only where its bytes are. Untouched slots cost address space,
not memory. The file system can read into them directly, past the page cache.
"""

import contextlib
import mmap
from typing import Final

from assay.impl.runtime.limits import LaneLimits

ALIGNMENT: Final = 4096
"""Bytes to which slots are aligned; direct reads need it of memory, offset and size."""


class SlotMemory:
    """The slots of one lane."""

    def __init__(self, limits: LaneLimits) -> None:
        self.slot_bytes = limits.slot_bytes
        self.stride_bytes = -(-limits.slot_bytes // ALIGNMENT) * ALIGNMENT
        self._map = mmap.mmap(-1, self.stride_bytes * limits.slots)
        self._view = memoryview(self._map)

    @property
    def memory_bytes(self) -> int:
        """Bytes of all slots, alignment included."""
        return len(self._view)

    def view(self, slot: int, offset: int, size: int) -> memoryview:
        """Returns writable bytes of a slot."""
        start = slot * self.stride_bytes + offset
        return self._view[start : start + size]

    def close(self) -> None:
        """Gives the memory back; a view that somebody still holds keeps it until it is gone."""
        self._view.release()
        with contextlib.suppress(BufferError):
            self._map.close()
