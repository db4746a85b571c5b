"""Injected faults: a file system that misbehaves on schedule, and checks that look past the code under test.

`FaultySystem` numbers every call that can go wrong and lets one of them fail, come back short, be interrupted or
lie. `StoreObserver` looks at the folder and the bytes with the operating system's own calls, so that a store writer
can't vouch for itself; any store's tests may inherit from `PublicationContract`.
"""

import errno
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, TypeVar

from assay.impl.stores.extents import Filesystem
from assay.spec.errors import AssayError

Answer = TypeVar("Answer")

CALLS: Final = (
    "open", "truncate", "pwrite", "sync", "sync_directory", "pread", "rename", "link", "unlink", "close", "status",
    "entry",
)  # fmt: skip
"""Calls that can be made to fail."""

KINDS: Final = {
    "open": ("error:EACCES", "interrupt"),
    "truncate": ("error:ENOSPC",),
    "pwrite": ("error:ENOSPC", "short", "zero", "interrupt", "lie"),
    "pread": ("error:EIO", "short", "zero", "interrupt", "lie"),
    "sync": ("error:EIO", "late:EIO", "interrupt", "lie"),
    "sync_directory": ("error:EIO", "late:EIO", "interrupt", "lie"),
    "rename": ("error:EACCES", "late:EIO", "late:EINTR", "interrupt", "lie"),
    "close": ("error:EIO", "late:EIO", "lie"),
    "status": ("error:EIO", "lie"),
}
"""For each call the ways in which it is made to misbehave."""

MUTATING: Final = ("open", "truncate", "pwrite", "sync", "sync_directory", "rename", "link", "unlink")
"""Calls before and after which a process can be killed with a difference on disk."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One misbehaviour.

    Attributes:
        call: name of the call.
        nth: which of these calls, from 0; -1 means every one.
        kind: `error:ENOSPC` and the like, `late:EIO` (takes effect, then fails), `short`, `zero`, `interrupt`, `lie`
            (says done and does nothing, changes a bit, or names another file), `kill-before`, `kill-after`.
    """

    call: str
    nth: int
    kind: str


class FaultySystem(Filesystem):
    """The real system with one fault."""

    def __init__(self, fault: Fault | None = None) -> None:
        self.fault = fault
        self.calls: list[str] = []

    def count(self, call: str) -> int:
        """Returns how often a call was made."""
        return self.calls.count(call)

    def open(self, path: Path, flags: int, mode: int = 0o644) -> int:
        """As the system, or faulty."""
        return self._do("open", lambda: Filesystem.open(self, path, flags, mode))

    def truncate(self, descriptor: int, size: int) -> None:
        """As the system, or faulty."""
        self._do("truncate", lambda: Filesystem.truncate(self, descriptor, size))

    def sync(self, descriptor: int) -> None:
        """As the system, or faulty."""
        self._do("sync", lambda: Filesystem.sync(self, descriptor))

    def sync_directory(self, path: Path) -> None:
        """As the system, or faulty."""
        self._do("sync_directory", lambda: Filesystem.sync_directory(self, path))

    def rename(self, source: Path, target: Path) -> None:
        """As the system, or faulty."""
        self._do("rename", lambda: Filesystem.rename(self, source, target))

    def link(self, source: Path, target: Path) -> None:
        """As the system, or faulty."""
        self._do("link", lambda: Filesystem.link(self, source, target))

    def close(self, descriptor: int) -> None:
        """As the system, or faulty; a lie leaves the descriptor open."""
        self._do("close", lambda: Filesystem.close(self, descriptor))

    def status(self, descriptor: int) -> os.stat_result:
        """As the system, or faulty; a lie names another inode."""
        return self._do("status", lambda: Filesystem.status(self, descriptor))

    def entry(self, path: Path) -> os.stat_result:
        """As the system, or faulty; a lie names another inode."""
        return self._do("entry", lambda: Filesystem.entry(self, path))

    def unlink(self, path: Path) -> None:
        """As the system, or faulty."""
        self._do("unlink", lambda: Filesystem.unlink(self, path))

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        """As the system, or faulty."""
        kind = self._kind("pread")
        if kind == "short":
            return super().pread(descriptor, max(1, size // 2), offset)
        if kind == "zero":
            return b""
        data = super().pread(descriptor, size, offset)
        if kind == "lie" and data:
            return data[:-1] + bytes([data[-1] ^ 1])
        return data

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, offset: int) -> int:
        """As the system, or faulty."""
        view = memoryview(data).cast("B")
        kind = self._kind("pwrite")
        if kind == "short":
            return super().pwrite(descriptor, view[: max(1, len(view) // 2)], offset)
        if kind == "zero":
            return 0
        if kind == "lie":
            return len(view)
        written = super().pwrite(descriptor, view, offset)
        if kind == "kill-after":
            _die()
        return written

    def _do(self, call: str, real: Callable[[], Answer]) -> Answer:
        kind = self._kind(call)
        if kind == "lie" and call not in {"open", "status", "entry"}:
            return None  # type: ignore[return-value]
        answer = real()
        if kind == "lie" and isinstance(answer, os.stat_result):
            return os.stat_result((answer[0], answer[1] ^ 1, *answer[2:]))  # type: ignore[return-value]
        if kind.startswith("late:"):
            number = getattr(errno, kind.removeprefix("late:"))
            raise OSError(number, os.strerror(number))
        if kind == "kill-after":
            _die()
        return answer

    def _kind(self, call: str) -> str:
        """Counts a call, raises or kills if it is the one, and returns the kind of any other fault."""
        nth = self.calls.count(call)
        self.calls.append(call)
        fault = self.fault
        if fault is None or fault.call != call or fault.nth not in {nth, -1}:
            return ""
        if fault.kind == "interrupt":
            raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))
        if fault.kind.startswith("error:"):
            number = getattr(errno, fault.kind.removeprefix("error:"))
            raise OSError(number, os.strerror(number))
        if fault.kind == "kill-before":
            _die()
        return fault.kind


class KilledError(BaseException):
    """The process is dead; nothing that handles errors handles this."""


class DyingSystem(FaultySystem):
    """The real system up to its n-th call of any kind, and then what a kill leaves: nothing is done any more.

    Descriptors are closed at that moment, as the system does for a dead process, so that its locks are gone as well.
    It costs no process, so that every single step can be tried; that a true SIGKILL does the same is a test of its own.
    """

    def __init__(self, nth: int) -> None:
        super().__init__()
        self.nth = nth
        self._opened: set[int] = set()

    def open(self, path: Path, flags: int, mode: int = 0o644) -> int:
        """As the system, or dead."""
        descriptor = super().open(path, flags, mode)
        self._opened.add(descriptor)
        return descriptor

    def duplicate(self, descriptor: int) -> int:
        """As the system."""
        own = super().duplicate(descriptor)
        self._opened.add(own)
        return own

    def close(self, descriptor: int) -> None:
        """As the system, or dead."""
        super().close(descriptor)
        self._opened.discard(descriptor)

    def _kind(self, call: str) -> str:
        if len(self.calls) >= self.nth:
            for descriptor in self._opened:
                os.close(descriptor)
            self._opened.clear()
            raise KilledError(call)
        return super()._kind(call)


class StoreObserver:
    """What is really in a folder, seen without the code under test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> set[str]:
        """Returns the names of all entries, hidden ones included."""
        return set(os.listdir(self.folder))  # noqa: PTH208 - the system's own call

    def data(self, name: str) -> bytes:
        """Returns the bytes of a file."""
        descriptor = os.open(self.folder / name, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            pieces = []
            while size > 0:
                pieces.append(os.read(descriptor, size))
                size -= len(pieces[-1])
            return b"".join(pieces)
        finally:
            os.close(descriptor)


class PublicationContract:
    """What every store writer owes, as checks for a test class to inherit.

    A subclass sets `name` and `build(target, system)`, which writes the same bytes each time. A writer with errors of
    its own says which they are, and which of them come after its commit point.

    Example:
        class TestMine(PublicationContract):
            name = "mine.store"
            errors = (MyError, OSError)

            def build(self, target: Path, system: Filesystem) -> None:
                my_writer(target, open=system.open, write=system.pwrite, rename=system.rename)

            def test_faults(self, tmp_path: Path) -> None:
                right, system = self.clean(tmp_path)
                for fault in self.faults(system):
                    self.judge_fault(tmp_path, fault, right, b"old")
    """

    name: ClassVar[str] = "store"
    errors: ClassVar[tuple[type[Exception], ...]] = (AssayError,)
    kinds: ClassVar[Mapping[str, tuple[str, ...]]] = KINDS

    def build(self, target: Path, system: Filesystem) -> None:
        """Writes the store at `target` through `system`."""
        raise AssertionError(f"a subclass builds {target} through {system}")

    def clean(self, folder: Path) -> tuple[bytes, FaultySystem]:
        """Builds without a fault and returns the bytes and the calls that were made."""
        system = FaultySystem()
        self.build(folder / self.name, system)
        return StoreObserver(folder).data(self.name), system

    def is_committed(self, error: Exception) -> bool:
        """Says whether an error came after the new file was in place."""
        return isinstance(error, AssayError) and error.finding.code == "publish.after-commit"

    def faults(self, system: FaultySystem) -> Iterator[Fault]:
        """Yields the faults to inject, given the calls of a clean run: each kind at the first, middle and last call."""
        for call, kinds in self.kinds.items():
            count = system.count(call)
            for nth in sorted({0, count // 2, count - 1} & set(range(count))):
                yield from (Fault(call, nth, kind) for kind in kinds)

    def judge_fault(self, folder: Path, fault: Fault, right: bytes, old: bytes) -> Exception | None:
        """Builds over an old target with a fault, checks what is on disk, and returns the error if there was one.

        Raises:
            AssertionError: when the target is neither the whole old nor the whole new file, a temporary file is
                left, success was reported without the new file, or failure before the commit with it.
        """
        (folder / self.name).write_bytes(old)
        error: Exception | None = None
        try:
            self.build(folder / self.name, FaultySystem(fault))
        except self.errors as raised:
            error = raised
        seen = StoreObserver(folder)
        data = seen.data(self.name)
        committed = error is None or self.is_committed(error)
        _require(data == (right if committed else old), f"{fault}: wrong bytes at the target after {error}")
        left = seen.names() - {self.name}
        # A temporary file can stay only if the very call that removes it fails.
        _require(not left or fault.call == "unlink", f"{fault}: left {left}")
        return error


def _require(claim: bool, text: str) -> None:
    if not claim:
        raise AssertionError(text)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
