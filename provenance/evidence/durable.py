"""Writing files so that a kill at any moment leaves the old file or the new one, and nothing between.

A file is written beside its place, flushed to the device, renamed over its place, and then the folder is flushed.
What a killed process left beside is recognised by its name and removed by the next one.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from assay.spec.clauses import Authority, declare
from assay.spec.errors import Finding, IncompleteError

TEMPORARY_PREFIX: Final = ".writing-"


UNWRITABLE: Final = declare(
    "evidence.unwritable",
    Authority.PROCESS,
    "Evidence, run log and reports can be written.",
    source="design: status is computed",
    cause="the disk is full, or the folder is read-only",
    fix="make room or name another folder with --out or --evidence, then run again; nothing written before is lost",
)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a failed write into one typed error that names the path; the work is then unfinished, not damaged.

    Raises:
        IncompleteError: evidence.unwritable, for any OSError inside.
    """
    try:
        yield
    except OSError as error:
        where = path if error.filename is None else error.filename
        got = error.strerror or str(error)
        finding = Finding.of(UNWRITABLE, "run", str(where), expected="a place that can be written", got=got)
        raise IncompleteError(finding) from error


class Disk:
    """The operating system's part of a durable write, one method a step, so that tests can fail or die at each."""

    def write(self, descriptor: int, data: bytes) -> int:
        """Writes some of `data` and returns how many bytes."""
        return os.write(descriptor, data)

    def flush(self, descriptor: int) -> None:
        """Waits until the file or folder is on the device."""
        os.fsync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Puts `source` in the place of `target` in one step."""
        source.replace(target)


def write_durably(path: Path, data: bytes, disk: Disk | None = None) -> None:
    """Writes `data` to `path`, entirely or not at all; returns once it would survive a power cut.

    Raises:
        OSError: when a step failed; the temporary file is then removed and `path` is what it was, unless only the
            flush of the folder failed.
    """
    disk = disk or Disk()
    beside = path.with_name(f"{TEMPORARY_PREFIX}{os.getpid()}-{os.urandom(4).hex()}-{path.name}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        try:
            left = memoryview(data)
            while left:
                left = left[disk.write(descriptor, left.tobytes()) :]
            disk.flush(descriptor)
        finally:
            os.close(descriptor)
        disk.rename(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    flush_folder(path.parent, disk)


def flush_folder(folder: Path, disk: Disk | None = None) -> None:
    """Waits until the names in `folder` are on the device."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        (disk or Disk()).flush(descriptor)
    finally:
        os.close(descriptor)


def remove_abandoned(folder: Path, *, even_of_the_living: bool = False) -> list[str]:
    """Removes what dead processes left beside their files in `folder`; returns the names.

    Args:
        folder: where to look; it need not exist.
        even_of_the_living: also remove those of running processes; right only under a lock that every writer takes.
    """
    removed = []
    for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
        owner = path.name.removeprefix(TEMPORARY_PREFIX).split("-", maxsplit=1)[0]
        if even_of_the_living or not (owner.isdecimal() and _is_running(int(owner))):
            path.unlink(missing_ok=True)
            removed.append(path.name)
    return sorted(removed)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on the file `path`; the system releases it when the process dies, however it dies."""
    import fcntl

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
