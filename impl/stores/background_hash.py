"""One SHA-256 chain in a thread of its own, so that hashing overlaps with reading and writing.

hashlib releases the interpreter lock for all but small pieces. Small ones are gathered first: handing one over costs
more than hashing it.
"""

import hashlib
from queue import Queue
from threading import Thread
from types import TracebackType
from typing import Final, Self

_GATHER_BYTES: Final = 1 << 18
_WAITING: Final = 4


class BackgroundHash:
    """A digest that is fed in order and asked for once; use it in a `with` block.

    At most four pieces wait. What is fed must not be changed afterwards; a mutable buffer is copied.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._gathered = bytearray()
        self._queue: Queue[bytes | None] = Queue(_WAITING)
        self._thread: Thread | None = None

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Takes the next bytes."""
        if self._gathered or memoryview(data).nbytes < _GATHER_BYTES:
            self._gathered += data
            if len(self._gathered) >= _GATHER_BYTES:
                self._flush()
            return
        self._put(data if isinstance(data, bytes) else bytes(data))

    def digest(self) -> bytes:
        """Returns the digest of everything that was fed, after the thread has ended."""
        self._flush()
        self._stop()
        return self._hash.digest()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _flush(self) -> None:
        data, self._gathered = bytes(self._gathered), bytearray()
        if not data:
            return
        if self._thread is None and len(data) < _GATHER_BYTES:
            self._hash.update(data)  # little in all: no thread is worth it
        else:
            self._put(data)

    def _put(self, data: bytes) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._work, name="store-hash", daemon=True)
            self._thread.start()
        self._queue.put(data)

    def _work(self) -> None:
        while (data := self._queue.get()) is not None:
            self._hash.update(data)

    def _stop(self) -> None:
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
