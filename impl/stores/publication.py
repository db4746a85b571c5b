"""Atomic publication: a new store appears whole and verified, or the old one stays.

The order is that of AFN-003: sibling temporary file, length, bytes, fsync, reopen and verify, fsync of the
directory, rename (the commit point), fsync of the directory again. A failure before the rename removes the
temporary file and keeps the old target; a failure after it is reported and not rolled back, because the new
complete file is already visible.

A rename is believed only when the target is then the file that was written: one that says done and did nothing is
a failure, and one that took effect and then reported an error is after the commit.

A killed writer can't clean up after itself. Its temporary file is complete garbage to everyone (no reader opens
that name), holds a lock only while its owner lives, and is removed by the next publication of the same target. Only
names that this module makes are ever removed, and no target may have one.
"""

import contextlib
import errno
import fcntl
import functools
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from assay.impl.stores.arguments import readable
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
    "rename",
    "The new file takes the place of the target in one step.",
    "the target is a directory, pipe or device, or exists and may not be replaced",
)
AFTER_COMMIT: Final = _step(
    "after-commit",
    "The rename reaches the medium. The new file is already in place and is not taken back.",
    "a failing disk",
)


_TEMPORARY: Final = re.compile(r"\..*\.assay-[0-9a-f]{12}\.tmp", re.DOTALL)
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
"""What file systems without hard links say, such as exFAT."""
_CREATIONS: Final = 100
"""Temporary files that other writers' sweeps may take before this one gives up."""

Identity = tuple[int, int]
"""Device and inode."""


class PublicationError(AssayError):
    """A store could not be published; this writer didn't change the target."""


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
            ContractError: publish.write, for data that is no contiguous buffer.
        """
        view = readable(data, None, self.path.name, WRITE)
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
    *,
    replace: bool = True,
) -> None:
    """Publishes a file of `size` bytes at `target`, or leaves everything as it was.

    Args:
        target: where the file shall be; an old file there survives until the commit point.
        size: final length in bytes; what `fill` doesn't write reads as zeros.
        fill: writes the bytes.
        verify: judges the reopened file and raises when it isn't right.
        system: the seam for injected faults.
        replace: whether a file that is at `target` at the commit point is replaced; otherwise it stays.

    Raises:
        PublicationError: publish.<step>, before the commit.
        DurabilityError: publish.after-commit, when the new file is in place but that may not last.
        AssayError: whatever `fill` and `verify` raise.
    """
    _check_name(target)
    _check_replaceable(target, system)
    sweep(target, system)
    draft = _create(target, size, system)
    committed = False
    try:
        fill(draft)
        _attempt(SYNC, draft, lambda: system.sync(draft.descriptor))
        identity = _verify(draft, verify)
        _attempt(DIRECTORY, draft, lambda: system.sync_directory(target.parent))
        doubt = _commit(draft, target, identity, replace=replace)
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
        doubt = doubt or system_words(error)
    if doubt:
        raise DurabilityError(
            Finding.of(
                AFTER_COMMIT,
                "publish",
                target.name,
                expected="rename and sync of the directory without an error",
                got=doubt,
                hint="the new file is complete and in place; sync the file system before relying on it",
            )
        )


def sweep(target: Path, system: Filesystem = SYSTEM) -> list[Path]:
    """Removes the temporary files that killed writers of `target` left, and returns them.

    A writer holds a lock on its temporary file; the lock dies with it. Only regular files with exactly the names that
    `publish` makes for this target are removed.
    """
    try:
        names = sorted(os.listdir(target.parent))  # noqa: PTH208 - names, not paths
    except (OSError, ValueError):
        return []
    prefix = _prefix(target)
    removed = []
    for path in (target.parent / name for name in names if _is_temporary(name, prefix)):
        try:
            descriptor = system.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            if stat.S_ISREG(system.status(descriptor).st_mode):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                system.unlink(path)
                removed.append(path)
        except OSError:
            continue
        finally:
            with contextlib.suppress(OSError):
                system.close(descriptor)
    return removed


def _create(target: Path, size: int, system: Filesystem) -> Draft:
    for _ in range(_CREATIONS):
        path = target.parent / f"{_prefix(target)}{secrets.token_hex(6)}.tmp"
        try:
            descriptor = system.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
        except InterruptedError:
            continue
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno == errno.EEXIST:
                continue
            raise _error(CREATE, target.name, "a temporary file beside the target", _words(error)) from error
        draft = Draft(descriptor, path, size, system)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if system.status(descriptor).st_nlink == 1:
                _retry(functools.partial(system.truncate, descriptor, size))
                return draft
        except BlockingIOError:
            _remove(draft)  # another writer's sweep holds it and is about to remove it
        except (OSError, OverflowError) as error:
            _remove(draft)
            with contextlib.suppress(OSError):
                system.close(descriptor)
            raise _error(CREATE, target.name, f"a temporary file of {size} bytes", _words(error)) from error
        with contextlib.suppress(OSError):
            system.close(descriptor)
    raise _error(CREATE, target.name, "a temporary file beside the target", f"{_CREATIONS} lost to others")


def _commit(draft: Draft, target: Path, identity: Identity, *, replace: bool) -> str:
    """Puts the draft in the target's place and returns what is doubtful about it, or nothing.

    Raises:
        PublicationError: publish.rename, when the draft isn't in place and no later writer's file is.
    """
    system = draft.system
    before = _status(target, system)
    doubt = ""
    try:
        _put(draft, target, identity, replace=replace)
    except OSError as error:
        doubt = system_words(error)
    after = _status(target, system)
    if after[:2] == identity:
        if not replace and _entry(draft.path, system) == identity:
            with contextlib.suppress(OSError):  # a second name of a published file; the next sweep removes it
                system.unlink(draft.path)
        return doubt and f"the new file in place, then {doubt}"
    # After success, a file that is neither the old nor the new one is that of a writer who committed later.
    if not doubt and after not in {(), before} and _entry(draft.path, system) != identity:
        return ""
    raise _error(
        RENAME, target.name, "the new file in place", doubt or "success reported, another file there"
    )


def _put(draft: Draft, target: Path, identity: Identity, *, replace: bool) -> None:
    while True:
        try:
            if replace:
                draft.system.rename(draft.path, target)
            else:
                _put_new(draft, target)
        except InterruptedError:
            if _entry(target, draft.system) == identity:
                break
        else:
            break


def _put_new(draft: Draft, target: Path) -> None:
    """Puts the draft where nothing is. A link never replaces; where there are none, looking first has to do."""
    try:
        draft.system.link(draft.path, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if _entry(target, draft.system):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        draft.system.rename(draft.path, target)


def _entry(path: Path, system: Filesystem) -> tuple[int, ...]:
    """Returns device and inode of what has a name, or nothing."""
    return _status(path, system)[:2]


def _status(path: Path, system: Filesystem) -> tuple[int, ...]:
    """Returns device, inode and times, since an inode's number is given to the next file once it is free."""
    try:
        found = system.entry(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _verify(draft: Draft, verify: Callable[[Extent], None]) -> Identity:
    try:
        file = StoreFile.open(draft.path, draft.system)
    except AssayError as error:
        raise _error(VERIFY, draft.path.name, "the new file opened again", error.finding.got) from error
    with file:
        try:
            written = draft.system.status(draft.descriptor)
        except OSError as error:
            raise _error(VERIFY, draft.path.name, "the status of the new file", _words(error)) from error
        identity = (written.st_dev, written.st_ino)
        if file.size != draft.size or file.identity[:2] != identity:
            raise _error(VERIFY, draft.path.name, f"{draft.size} bytes, the file that was written", file.size)
        verify(file.extent())
    return identity


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
    """Returns how the names of a target's temporary files start; a name has at most 255 bytes."""
    return f".{os.fsencode(target.name)[:180].decode('utf-8', 'ignore')}.assay-"


def _is_temporary(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and len(name) == len(prefix) + 16 and bool(_TEMPORARY.fullmatch(name))


def _check_name(target: Path) -> None:
    """Refuses what is no name, and a name that a sweep would take for a temporary file."""
    try:
        is_name = bool(os.fsencode(target.name).strip(b"\0")) and "\0" not in target.name
    except UnicodeEncodeError:
        is_name = False
    if not is_name or _TEMPORARY.fullmatch(target.name):
        raise _error(CREATE, repr(target.name), "the name of a file, not of a temporary one", target.name)


def _check_replaceable(target: Path, system: Filesystem) -> None:
    """Refuses to take the place of a folder, pipe, socket or device; a link is replaced itself."""
    try:
        mode = system.entry(target).st_mode
    except (OSError, ValueError):
        return  # nothing there, or nothing that can be asked: creating the draft says why
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        got = "a folder" if stat.S_ISDIR(mode) else "a pipe, socket or device"
        raise _error(RENAME, target.name, "a file or nothing at the target", got)


def _words(error: Exception) -> str:
    return system_words(error) if isinstance(error, OSError) else str(error)


def _error(code: str, where: str, expected: object, got: object) -> PublicationError:
    return PublicationError(Finding.of(code, "publish", where, expected=expected, got=got))
