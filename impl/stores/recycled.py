"""Memory for reads that is used again as soon as nobody looks at it any more, and never before.

A fresh buffer of a few megabytes costs the system more than copying into an old one: its pages are made and zeroed one
by one. A buffer that is reused while someone still reads it is the worse evil (bug report A23), so nobody hands memory
back here, and nobody can hand it back too early: a buffer is free when no view of it exists, which CPython knows,
because it refuses to resize a bytearray that is being looked at. A view that is kept costs a fresh buffer next time.
"""

from threading import Lock


class RecycledBuffers:
    """Buffers for one kind of read; up to `kept` of them are remembered, however many are in use."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._buffers: list[bytearray] = []
        self._lock = Lock()
        self.made = 0

    def take(self, size: int) -> memoryview:
        """Returns a writable view of `size` bytes, from 1 up, that nobody else looks at; its content is undefined."""
        with self._lock:
            for place, buffer in enumerate(self._buffers):
                if len(buffer) >= size and _is_unwatched(buffer):
                    self._buffers.append(
                        self._buffers.pop(place)
                    )  # the one that was free longest comes first
                    return memoryview(buffer)[:size]
            self.made += 1
            fresh = bytearray(size)
            self._buffers.append(fresh)
            # What is no longer remembered lives as long as its views do.
            del self._buffers[: -self._kept]
            return memoryview(fresh)


def _is_unwatched(buffer: bytearray) -> bool:
    """Says whether no memoryview, array or other view of a buffer exists."""
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True
