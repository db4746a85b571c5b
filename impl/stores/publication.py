"""Atomic publication: a new store appears whole and verified, or the old one stays.

The order is that of AFN-003: sibling temporary file, length, bytes, fsync, reopen and verify, fsync of the
directory, rename (the commit point), fsync of the directory again. A failure before the rename removes the
temporary file and keeps the old target; a failure after it is reported and not rolled back, because the new
complete file is already visible.

A killed writer can't clean up after itself. Its temporary file is complete garbage to everyone (no reader opens
that name), holds a lock only while its owner lives, and is removed by the next publication of the same target.
"""

import contextlib
import errno
import fcntl
import functools
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from assay.impl.stores.extents import SYSTEM, Extent, Filesystem, StoreFile, system_words
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AssayError, Finding

_SOURCE = "AFN-003, transactional publication"


def _step(name: str, meaning: str, cause: str) -> str:
    return declare(f"publish.{name}", Authority.PROCESS, meaning, source=_SOURCE, cause=cause)


CREATE: Final = _step(
    "create", "The temporary file is created beside the target.", "a missing or read-only directory"
)
WRITE: Final = _step("write", "Every byte of the new file is written.", "a full or failing disk")
SYNC: Final = _step("sync", "The new file reaches the medium before it is verified.", "a failing disk")
VERIFY: Final = _step(
    "verify", "The new file, opened again, is the one that was written.", "a disk or a layer that lies"
)
DIRECTORY: Final = _step("directory", "The directory reaches the medium before the commit.", "a failing disk")
RENAME: Final = _step(
    "rename", "The new file takes the place of the target in one step.", "the target is a directory"
)
AFTER_COMMIT: Final = _step(
    "after-commit",
    "The rename reaches the medium. The new file is already in place and is not taken back.",
    "a failing disk",
)


class PublicationError(AssayError):
    """A store could not be published; the old target is untouched."""


class DurabilityError(PublicationError):
    """The new store is in place and complete, but a power loss may still bring the old one back."""


class Draft:
    """The temporary file while it is being written; offsets are absolute."""

    def __init__(self, descriptor: int, path: Path, size: int, system: Filesystem) -> None:
        self.descriptor = descriptor
        self.path = path
        self.size = size
        self.system = system

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Writes all of `data`, continuing after short and interrupted writes.

        Raises:
            PublicationError: publish.write.
        """
        view = memoryview(data).cast("B")
        if offset < 0 or len(view) > self.size - offset:
            raise _error(
                WRITE, self.path.name, f"bytes inside {self.size}", f"{len(view)} bytes from {offset}"
            )
        done = 0
        while done < len(view):
            try:
                count = self.system.pwrite(self.descriptor, view[done:], offset + done)
            except InterruptedError:
                continue
            except OSError as error:
                raise _error(
                    WRITE,
                    self.path.name,
                    f"{len(view)} bytes written at {offset}",
                    f"{done} bytes, then {system_words(error)}",
                ) from error
            if not 0 < count <= len(view) - done:
                raise _error(WRITE, self.path.name, f"1..{len(view) - done} bytes written", count)
            done += count

    def pieces(self, offset: int, size: int) -> Iterator[bytes]:
        """Yields back what was written; for digests over bytes that were too many to keep."""
        with StoreFile.of_descriptor(self.descriptor, self.path.name, self.system) as file:
            yield from file.extent().pieces(offset, size)


def publish(
    target: Path,
    size: int,
    fill: Callable[[Draft], None],
    verify: Callable[[Extent], None],
    system: Filesystem = SYSTEM,
) -> None:
    """Publishes a file of `size` bytes at `target`, or leaves everything as it was.

    Args:
        target: where the file shall be; an old file there survives until the commit point.
        size: final length in bytes; what `fill` doesn't write reads as zeros.
        fill: writes the bytes.
        verify: judges the reopened file and raises when it isn't right.
        system: the seam for injected faults.

    Raises:
        PublicationError: publish.<step>, before the commit.
        DurabilityError: publish.after-commit, when the new file is in place but the directory was not synced.
        AssayError: whatever `fill` and `verify` raise.
    """
    sweep(target, system)
    draft = _create(target, size, system)
    committed = False
    try:
        fill(draft)
        _attempt(SYNC, draft, lambda: system.sync(draft.descriptor))
        _verify(draft, verify)
        _attempt(DIRECTORY, draft, lambda: system.sync_directory(target.parent))
        try:
            _retry(lambda: system.rename(draft.path, target))
        except OSError as error:
            raise _error(RENAME, target.name, "the new file in place", system_words(error)) from error
        committed = True
    finally:
        if not committed:
            _remove(draft)
        # Nothing of the file is lost when close fails: it was synced and verified before.
        with contextlib.suppress(OSError):
            system.close(draft.descriptor)
    try:
        _retry(lambda: system.sync_directory(target.parent))
    except OSError as error:
        finding = Finding.of(
            AFTER_COMMIT,
            "publish",
            target.name,
            expected="the directory synced after the rename",
            got=system_words(error),
            hint="the new file is complete and in place; sync the file system before relying on it",
        )
        raise DurabilityError(finding) from error


def sweep(target: Path, system: Filesystem = SYSTEM) -> list[Path]:
    """Removes the temporary files that killed writers of `target` left, and returns them.

    A writer holds a lock on its temporary file; the lock dies with it.
    """
    removed = []
    for path in sorted(target.parent.glob(f"{_glob_escape(_prefix(target))}*")):
        try:
            descriptor = system.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            system.unlink(path)
            removed.append(path)
        except OSError:
            continue
        finally:
            system.close(descriptor)
    return removed


def _create(target: Path, size: int, system: Filesystem) -> Draft:
    while True:
        path = target.parent / f"{_prefix(target)}{secrets.token_hex(6)}"
        try:
            descriptor = system.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
        except InterruptedError:
            continue
        except OSError as error:
            if error.errno == errno.EEXIST:
                continue
            raise _error(
                CREATE, target.name, "a temporary file beside the target", system_words(error)
            ) from error
        draft = Draft(descriptor, path, size, system)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if system.status(descriptor).st_nlink == 1:
                _retry(functools.partial(system.truncate, descriptor, size))
                return draft
        except (OSError, OverflowError) as error:
            _remove(draft)
            words = system_words(error) if isinstance(error, OSError) else str(error)
            system.close(descriptor)
            raise _error(CREATE, target.name, f"a temporary file of {size} bytes", words) from error
        system.close(descriptor)  # another writer's sweep took it between creation and lock


def _verify(draft: Draft, verify: Callable[[Extent], None]) -> None:
    try:
        file = StoreFile.open(draft.path, draft.system)
    except AssayError as error:
        raise _error(VERIFY, draft.path.name, "the new file opened again", error.finding.got) from error
    with file:
        if file.size != draft.size or not os.path.samestat(
            os.fstat(file.descriptor), os.fstat(draft.descriptor)
        ):
            raise _error(VERIFY, draft.path.name, f"{draft.size} bytes, the file that was written", file.size)
        verify(file.extent())


def _attempt(code: str, draft: Draft, call: Callable[[], None]) -> None:
    try:
        _retry(call)
    except OSError as error:
        raise _error(code, draft.path.name, "success", system_words(error)) from error


def _retry(call: Callable[[], None]) -> None:
    while True:
        try:
            return call()
        except InterruptedError:
            continue


def _remove(draft: Draft) -> None:
    """Removes the temporary file, unless another file has taken its name."""
    with contextlib.suppress(OSError):
        if os.path.samestat(os.lstat(draft.path), os.fstat(draft.descriptor)):
            draft.system.unlink(draft.path)


def _prefix(target: Path) -> str:
    return f".{target.name[:180]}.tmp."


def _glob_escape(text: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in text)


def _error(code: str, where: str, expected: object, got: object) -> PublicationError:
    return PublicationError(Finding.of(code, "publish", where, expected=expected, got=got))
