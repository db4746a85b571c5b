"""Bounded reading of files that nobody vouches for, and the one seam through which stores touch the system.

Every store reads through an `Extent`: a range of one open file, checked by subtraction, that hands out whole
records or raises. A short read is continued, an interrupted one repeated, and the end of the file inside a
record is an error. Nothing here allocates more than its caller asked for.
"""

import contextlib
import fcntl
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Self

from assay.impl.stores.arguments import writable
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding

_SOURCE = "assay: reading and writing of stores; bug report A25 (short direct reads)"

FILE_OPEN: Final = declare(
    "store.file.open",
    Authority.INPUT,
    "A store lies in a regular file that can be opened for reading.",
    source=_SOURCE,
    cause="a wrong path, a directory, a pipe, or missing permission",
)
FILE_EXTENT: Final = declare(
    "store.file.extent",
    Authority.INPUT,
    "An extent starts and ends inside its file.",
    source="ExpertMajor v2 and PLE rows v1, open arguments",
    cause="a truncated file, or an offset from another file",
)
FILE_SHORT: Final = declare(
    "store.file.short",
    Authority.INPUT,
    "A record is read whole: the file doesn't end inside it.",
    source="ExpertMajor v2 and PLE rows v1, record reads",
    cause="the file was shortened after it was opened",
)
FILE_IO: Final = declare(
    "store.file.io",
    Authority.INPUT,
    "The operating system reads and writes without an error.",
    source=_SOURCE,
    cause="a failing disk, a lost mount, or a full one",
)
FILE_CHANGED: Final = declare(
    "store.file.changed",
    Authority.INPUT,
    "Device, inode, size and modification time stay the same from open to verdict.",
    source="ExpertMajor v2, offline verifier",
    cause="another process wrote to the file while it was judged",
)

STAGE: Final = "file"
PIECE_BYTES: Final = 1 << 20
"""Size of one piece of a streamed read: large enough to saturate a disk, small enough to keep memory flat."""


class Filesystem:
    """The system calls that stores make. Tests replace single methods to inject faults."""

    def open(self, path: Path, flags: int, mode: int = 0o644) -> int:
        """Opens `path` and returns its descriptor, which children don't inherit."""
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def close(self, descriptor: int) -> None:
        """Closes a descriptor."""
        os.close(descriptor)

    def duplicate(self, descriptor: int) -> int:
        """Returns a second descriptor of the same open file, which children don't inherit."""
        return os.dup(descriptor)

    def status(self, descriptor: int) -> os.stat_result:
        """Returns the status of an open file."""
        return os.fstat(descriptor)

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        """Reads up to `size` bytes at `offset`."""
        return os.pread(descriptor, size, offset)

    def pread_into(self, descriptor: int, target: memoryview, offset: int) -> int:
        """Reads up to all of `target` at `offset` and returns how much.

        A subclass that replaces `pread` is asked here too.
        """
        if type(self).pread is Filesystem.pread:
            return os.preadv(descriptor, [target], offset)
        data = self.pread(descriptor, len(target), offset)
        target[: len(data)] = data[: len(target)]
        return len(data)

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, offset: int) -> int:
        """Writes up to all of `data` at `offset` and returns how much."""
        return os.pwrite(descriptor, data, offset)

    def truncate(self, descriptor: int, size: int) -> None:
        """Sets the length of an open file; what is new reads as zeros."""
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Puts the bytes of an open file on the medium."""
        if sys.platform == "darwin":
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        else:
            os.fsync(descriptor)

    def sync_directory(self, path: Path) -> None:
        """Puts the entries of a directory on the medium."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Puts `source` in the place of `target`, atomically."""
        os.replace(source, target)  # noqa: PTH105 - the seam names the system call

    def link(self, source: Path, target: Path) -> None:
        """Gives `source` a second name, unless something has it."""
        os.link(source, target, follow_symlinks=False)

    def entry(self, path: Path) -> os.stat_result:
        """Returns the status of what a name stands for, a link itself included."""
        return os.lstat(path)

    def unlink(self, path: Path) -> None:
        """Removes a directory entry."""
        os.unlink(path)  # noqa: PTH108 - the seam names the system call

    def will_need(self, descriptor: int, offset: int, size: int) -> None:
        """Asks the system to read a range ahead; a hint, so that a failure is no error.

        One thread that hints all pages of a batch before it reads the first gets the queue depth of many threads.
        """
        with contextlib.suppress(OSError):
            if sys.platform == "darwin":
                # struct radvisory {off_t offset; int count;}
                fcntl.fcntl(descriptor, 44, offset.to_bytes(8, "little") + size.to_bytes(8, "little"))
            else:
                os.posix_fadvise(descriptor, offset, size, os.POSIX_FADV_WILLNEED)


SYSTEM: Final = Filesystem()


def fail(
    code: str, where: str, *, expected: object, got: object, hint: str = "", stage: str = STAGE
) -> NoReturn:
    """Raises an `AdmissionError` with one finding."""
    raise AdmissionError(Finding.of(code, stage, where, expected=expected, got=got, hint=hint))


def system_words(error: OSError) -> str:
    """Returns what the system said, without the path, which `where` already names."""
    return error.strerror or type(error).__name__


class StoreFile:
    """One regular file open for reading, with the identity it had when it was opened."""

    def __init__(self, descriptor: int, name: str, system: Filesystem = SYSTEM) -> None:
        self.descriptor = descriptor
        self.name = name
        self.system = system
        try:
            status = system.status(descriptor)
        except OSError as error:
            self.close()
            fail(FILE_IO, name, expected="the status of the file", got=system_words(error))
        if not stat.S_ISREG(status.st_mode):
            self.close()
            fail(FILE_OPEN, name, expected="a regular file", got=_kind(status.st_mode))
        self.size = status.st_size
        self._identity = _identity(status)

    @classmethod
    def open(cls, path: Path, system: Filesystem = SYSTEM) -> Self:
        """Opens a file; a pipe or a device is refused without waiting for it.

        Raises:
            AdmissionError: store.file.open.
        """
        while True:
            try:
                descriptor = system.open(path, os.O_RDONLY | os.O_NONBLOCK)
                break
            except InterruptedError:
                continue
            except (OSError, ValueError) as error:
                words = system_words(error) if isinstance(error, OSError) else str(error)
                fail(FILE_OPEN, str(path), expected="a readable file", got=words)
        return cls(descriptor, str(path), system)

    @classmethod
    def of_descriptor(cls, descriptor: int, name: str, system: Filesystem = SYSTEM) -> Self:
        """Takes a second descriptor of a file that the caller has open, and keeps open.

        Raises:
            AdmissionError: store.file.open, when the descriptor is closed or not of a regular file.
        """
        try:
            own = system.duplicate(descriptor)
        except (OSError, ValueError, OverflowError) as error:
            fail(FILE_OPEN, name, expected="an open descriptor", got=str(error))
        return cls(own, name, system)

    def extent(self, start: int = 0, size: int | None = None, name: str = "") -> "Extent":
        """Returns a range of the file; without a size, everything from `start` on.

        Raises:
            AdmissionError: store.file.extent, when it doesn't lie inside the file.
        """
        if start < 0 or start > self.size:
            fail(FILE_EXTENT, name or self.name, expected=f"a start in 0..{self.size}", got=start)
        length = self.size - start if size is None else size
        if length < 0 or length > self.size - start:
            fail(
                FILE_EXTENT,
                name or self.name,
                expected=f"at most {self.size - start} bytes from {start}",
                got=length,
            )
        return Extent(self, start, length, name or self.name)

    def check_unchanged(self) -> None:
        """Raises store.file.changed when the file is no longer the one that was opened."""
        try:
            found = _identity(self.system.status(self.descriptor))
        except OSError as error:
            fail(FILE_IO, self.name, expected="the status of the file", got=system_words(error))
        if found != self._identity:
            fail(
                FILE_CHANGED,
                self.name,
                expected=_identity_words(self._identity),
                got=_identity_words(found),
            )

    @property
    def identity(self) -> tuple[int, int, int, int]:
        """Device, inode, size in bytes and modification time in nanoseconds, as they were at open."""
        return self._identity

    def close(self) -> None:
        """Closes the file; a second call does nothing, and a failure takes nothing back of what was read."""
        if self.descriptor >= 0:
            descriptor, self.descriptor = self.descriptor, -1
            with contextlib.suppress(OSError):
                self.system.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Extent:
    """A range of an open file; offsets are relative to its first byte."""

    __slots__ = ("file", "name", "size", "start")

    def __init__(self, file: StoreFile, start: int, size: int, name: str) -> None:
        self.file = file
        self.start = start
        self.size = size
        self.name = name

    def part(self, offset: int, size: int, name: str) -> "Extent":
        """Returns a range of this range.

        Raises:
            AdmissionError: store.file.extent.
        """
        self._check(offset, size)
        return Extent(self.file, self.start + offset, size, name)

    def read(self, offset: int, size: int) -> bytes:
        """Returns exactly `size` bytes.

        Raises:
            AdmissionError: store.file.extent, store.file.short or store.file.io.
        """
        if offset < 0 or size < 0 or offset > self.size - size:
            self._check(offset, size)
        try:
            data = self.file.system.pread(self.file.descriptor, size, self.start + offset)
        except InterruptedError:
            data = b""
        except OSError as error:
            self._failed(offset, size, 0, error)
        else:
            if len(data) == size:
                return data
            if not data:
                fail(FILE_SHORT, self.name, expected=f"{size} bytes from {offset}", got="0 bytes")
        return self._read_on(data, offset, size)

    def read_into(self, offset: int, target: bytearray | memoryview) -> None:
        """Fills `target` whole, or raises and leaves it as it was.

        Raises:
            ContractError: store.buffer.
            AdmissionError: store.file.extent, store.file.short or store.file.io.
        """
        view = writable(target, None, "target")
        view[:] = self.read(offset, len(view))

    def fill(self, offset: int, target: memoryview) -> None:
        """Fills memory that nobody else sees yet, without a copy between; after an error it holds anything.

        Args:
            offset: where the bytes start.
            target: writable bytes; every one of them is filled.

        Raises:
            AdmissionError: store.file.extent, store.file.short or store.file.io.
        """
        size = len(target)
        self._check(offset, size)
        have = 0
        while have < size:
            try:
                count = self.file.system.pread_into(
                    self.file.descriptor, target[have:], self.start + offset + have
                )
            except InterruptedError:
                continue
            except OSError as error:
                self._failed(offset, size, have, error)
            if not count:
                fail(FILE_SHORT, self.name, expected=f"{size} bytes from {offset}", got=f"{have} bytes")
            have += count
        if have > size:
            fail(FILE_IO, self.name, expected=f"at most {size} bytes from {offset}", got=f"{have} bytes")

    def pieces(self, offset: int, size: int, piece_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
        """Yields the bytes of a range in order, at most `piece_bytes` at a time."""
        self._check(offset, size)
        end = offset + size
        while offset < end:
            data = self.read(offset, min(piece_bytes, end - offset))
            yield data
            offset += len(data)

    def will_need(self, places: Sequence[tuple[int, int]]) -> None:
        """Hints that these (offset, size) ranges are read next."""
        hint, descriptor, start = self.file.system.will_need, self.file.descriptor, self.start
        for offset, size in places:
            hint(descriptor, start + offset, size)

    def _check(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset > self.size or size > self.size - offset:
            fail(
                FILE_EXTENT,
                self.name,
                expected=f"a range inside {self.size} bytes",
                got=f"{size} bytes from {offset}",
            )

    def _read_on(self, data: bytes, offset: int, size: int) -> bytes:
        """Finishes a read that came back short, interrupted or failed."""
        pieces, have = [data], len(data)
        while have <= size:
            if have == size:
                return b"".join(pieces)
            try:
                more = self.file.system.pread(self.file.descriptor, size - have, self.start + offset + have)
            except InterruptedError:
                continue
            except OSError as error:
                self._failed(offset, size, have, error)
            if not more:
                fail(FILE_SHORT, self.name, expected=f"{size} bytes from {offset}", got=f"{have} bytes")
            pieces.append(more)
            have += len(more)
        fail(FILE_IO, self.name, expected=f"at most {size} bytes from {offset}", got=f"{have} bytes")

    def _failed(self, offset: int, size: int, have: int, error: OSError) -> NoReturn:
        fail(
            FILE_IO,
            self.name,
            expected=f"{size} bytes from {offset}",
            got=f"{have} bytes, then {system_words(error)}",
        )


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _identity_words(identity: tuple[int, int, int, int]) -> str:
    return "device {}, inode {}, {} bytes, changed at {} ns".format(*identity)


def _kind(mode: int) -> str:
    for test, name in (
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a character device"),
        (stat.S_ISBLK, "a block device"),
    ):
        if test(mode):
            return name
    return "something else"
