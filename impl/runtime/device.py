"""The system calls that streaming makes, and the one loop that makes whole reads of them.

A device may read less than asked, be interrupted, or fail; a transfer continues, repeats or says so. Nothing is
published from here: a transfer fills memory that nobody else looks at until it is judged.

What the page cache had is asked with `RWF_NOWAIT`, before anything is hinted; where the system can't say, it is
unknown and stays so. Direct reads pass the guest's cache; a host's cache below it can't be seen from here.
"""

import errno
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from assay.impl.runtime.clauses import IO, SHORT, STAGE, damaged
from assay.impl.runtime.slots import ALIGNMENT
from assay.impl.runtime.tickets import Piece
from assay.impl.stores.extents import StoreFile, system_words
from assay.spec.errors import Finding

_NOWAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
_F_NOCACHE: Final = 48  # macOS
_F_RDADVISE: Final = 44  # macOS: struct radvisory {off_t offset; int count;}
_INTERRUPTS: Final = 1000
"""Interrupted calls in a row after which a read is given up: a device that is only ever interrupted never ends."""


class Device:
    """The calls; a test or a peer replaces them one by one."""

    def read_some(self, descriptor: int, target: memoryview, offset: int) -> int:
        """Reads up to all of `target` and returns how much; waits for the medium."""
        return os.preadv(descriptor, [target], offset)

    def read_cached(self, descriptor: int, target: memoryview, offset: int) -> int | None:
        """Reads what the page cache has of a range and returns how much; None where the system can't say."""
        if _NOWAIT is None:
            return None
        try:
            return os.preadv(descriptor, [target], offset, _NOWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno in {errno.EOPNOTSUPP, errno.EINVAL}:
                return None
            raise

    def will_need(self, descriptor: int, offset: int, size: int) -> None:
        """Asks the system to read a range ahead."""
        if sys.platform == "darwin":
            import fcntl

            fcntl.fcntl(descriptor, _F_RDADVISE, offset.to_bytes(8, "little") + size.to_bytes(8, "little"))
        else:
            os.posix_fadvise(descriptor, offset, size, os.POSIX_FADV_WILLNEED)


@dataclass(frozen=True, slots=True)
class Transfer:
    """What one read was.

    Attributes:
        logical_bytes: bytes that were asked for.
        cached_bytes: bytes that the page cache had; None when unknown.
        direct_bytes: bytes that were read past the page cache.
        calls: system calls that read.
    """

    logical_bytes: int
    cached_bytes: int | None
    direct_bytes: int
    calls: int


class DeviceFile:
    """One file, open for streaming: buffered without read-ahead, and directly if that was asked for and works.

    Attributes:
        name: the file's name, for errors.
        buffered: descriptor that reads through the page cache.
        direct: descriptor that reads past it, or -1.
        refusal: why there is no direct descriptor, in the system's words; empty when there is or none was asked for.
    """

    def __init__(self, file: StoreFile, *, wants_direct: bool = False) -> None:
        self.name = file.name
        self.size = file.size
        self.direct, self.refusal = -1, ""
        self.buffered = _reopened(file, 0)
        if sys.platform != "darwin":
            # Random access: without this a small read would bring in the device's whole read-ahead.
            os.posix_fadvise(self.buffered, 0, 0, os.POSIX_FADV_RANDOM)
        if wants_direct:
            try:
                self.direct = _opened_directly(file)
            except OSError as error:
                self.refusal = system_words(error)

    def close(self) -> None:
        """Closes both descriptors; a second call does nothing."""
        for descriptor in (self.buffered, self.direct):
            if descriptor >= 0:
                os.close(descriptor)
        self.buffered = self.direct = -1


def transfer(device: Device, file: DeviceFile, pieces: Sequence[Piece], into: memoryview) -> Transfer:
    """Fills `into` with pieces of a file, one after another.

    Cached pieces are taken first; what is missing is hinted all at once and then read, so that one thread keeps a
    device as busy as it has pieces.

    Raises:
        AdmissionError: runtime.read.short or runtime.read.io; what `into` then holds is worth nothing.
    """
    places: list[tuple[Piece, memoryview]] = []
    start = 0
    for piece in pieces:
        places.append((piece, into[start : start + piece.size]))
        start += piece.size
    if file.direct >= 0 and all(not (one.offset | one.size) % ALIGNMENT for one in pieces):
        try:
            calls = sum(_fill(device, file.direct, piece, target, 0, file) for piece, target in places)
            return Transfer(start, 0, start, calls)
        except _DirectRefusedError:
            pass  # the file system takes direct opens, but not this read
    cached: int | None = 0
    calls, missing = 0, []
    for piece, target in places:
        found = _cached(device, file, piece, target)
        calls += found is not None
        cached = None if found is None or cached is None else cached + found
        if (found or 0) < piece.size:
            missing.append((piece, target, found or 0))
    if len(missing) > 1:
        for piece, _, have in missing:
            try:
                device.will_need(file.buffered, piece.offset + have, piece.size - have)
            except OSError:
                break  # a hint
    calls += sum(_fill(device, file.buffered, piece, target, have, file) for piece, target, have in missing)
    return Transfer(start, cached, 0, calls)


class _DirectRefusedError(Exception):
    """The system refuses a direct read at this place."""


def _cached(device: Device, file: DeviceFile, piece: Piece, target: memoryview) -> int | None:
    for _ in range(_INTERRUPTS):
        try:
            return device.read_cached(file.buffered, target, piece.offset)
        except InterruptedError:
            continue
        except OSError as error:
            raise _failed(file, piece, 0, system_words(error)) from error
    return None


def _fill(
    device: Device, descriptor: int, piece: Piece, target: memoryview, have: int, file: DeviceFile
) -> int:
    """Reads the rest of a piece and returns the number of calls."""
    calls = interrupts = 0
    while have < piece.size:
        calls += 1
        try:
            got = device.read_some(descriptor, target[have:], piece.offset + have)
        except InterruptedError as error:
            interrupts += 1
            if interrupts >= _INTERRUPTS:
                raise _failed(file, piece, have, "nothing but interrupts") from error
            continue
        except OSError as error:
            if descriptor == file.direct and error.errno == errno.EINVAL:
                raise _DirectRefusedError from error
            raise _failed(file, piece, have, system_words(error)) from error
        if got == 0:
            where = f"{file.name} from {piece.offset}"
            finding = Finding.of(SHORT, STAGE, where, expected=f"{piece.size} bytes", got=f"{have} bytes")
            raise damaged(finding)
        have += got
        interrupts = 0
        if descriptor == file.direct and have < piece.size and have % ALIGNMENT:
            raise _DirectRefusedError  # the rest is no aligned read; take it through the cache
    return calls


def _failed(file: DeviceFile, piece: Piece, have: int, words: str) -> Exception:
    where = f"{file.name} from {piece.offset}"
    return damaged(
        Finding.of(IO, STAGE, where, expected=f"{piece.size} bytes", got=f"{have} bytes, then {words}")
    )


def _opened_directly(file: StoreFile) -> int:
    if sys.platform == "darwin":
        import fcntl

        descriptor = _reopened(file, 0)
        fcntl.fcntl(descriptor, _F_NOCACHE, 1)
        return descriptor
    flag = getattr(os, "O_DIRECT", None)
    if flag is None:
        raise OSError(errno.ENOTSUP, "no O_DIRECT on this system")
    return _reopened(file, flag)


def _reopened(file: StoreFile, flags: int) -> int:
    """Returns a descriptor of the same file with a state of its own: hints and flags of one don't reach the other.

    Raises:
        OSError: when it can't be opened again, or another file has its name now.
    """
    link = f"/proc/self/fd/{file.descriptor}"
    path = link if Path(link).exists() else file.name
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    status = os.fstat(descriptor)
    if (status.st_dev, status.st_ino) != file.identity[:2]:
        os.close(descriptor)
        raise OSError(errno.ESTALE, "another file has this name now")
    return descriptor
