"""The published base class judges writers that aren't ours: a careful one passes, each careless one is caught."""

import contextlib
import errno
import os
from pathlib import Path
from typing import ClassVar, NoReturn

import pytest

from assay.impl.stores.extents import Filesystem
from assay.mutations.store_faults import Fault, FaultySystem, PublicationContract

DATA = bytes(range(256)) * 20
OLD = b"the old store"


class LateError(Exception):
    """An outsider's error after the commit."""


def write_whole(system: Filesystem, descriptor: int, data: bytes) -> None:
    done = 0
    while done < len(data):
        try:
            count = system.pwrite(descriptor, data[done:], done)
        except InterruptedError:
            continue
        if count == 0:
            raise OSError(errno.EIO, "nothing written")
        done += count


def repeated(call: object, *arguments: object) -> object:
    while True:
        try:
            return call(*arguments)
        except InterruptedError:
            continue


def read_whole(system: Filesystem, descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = repeated(system.pread, descriptor, size - len(data), len(data))
        if not more:
            raise OSError(errno.EIO, "the end came early")
        data += more
    return data


def give_up(words: str) -> NoReturn:
    raise OSError(errno.EIO, words)


def careful(target: Path, system: Filesystem) -> None:
    """Temporary file, sync, read back, rename that is checked, sync of the directory: another's own code."""
    path = target.with_name(f".{target.name}.new")
    descriptor = repeated(system.open, path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        try:
            write_whole(system, descriptor, DATA)
            repeated(system.sync, descriptor)
            if read_whole(system, descriptor, len(DATA)) != DATA:
                give_up("other bytes")
            inode = os.fstat(descriptor).st_ino
            late = None
            try:
                system.rename(path, target)
            except OSError as error:
                late = error
            if os.lstat(target).st_ino != inode:
                give_up(str(late or "the rename did nothing"))
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        try:
            repeated(system.sync_directory, target.parent)
        except OSError as error:
            raise LateError(str(error)) from error
        if late is not None and not isinstance(late, InterruptedError):
            raise LateError(str(late))
    finally:
        os.close(descriptor)


class Careful(PublicationContract):
    name = "mine.store"
    errors: ClassVar = (OSError, LateError)

    def is_committed(self, error: Exception) -> bool:
        return isinstance(error, LateError)

    def build(self, target: Path, system: Filesystem) -> None:
        careful(target, system)


class TestCareful(Careful):
    """How an outsider uses it."""

    def test_no_fault_leaves_a_half_file(self, tmp_path: Path) -> None:
        right, system = self.clean(tmp_path)
        assert right == DATA
        faults = list(self.faults(system))
        assert {fault.call for fault in faults} == {
            "open",
            "pwrite",
            "pread",
            "sync",
            "sync_directory",
            "rename",
        }
        for fault in faults:
            self.judge_fault(tmp_path, fault, right, OLD)


class InPlace(Careful):
    """Writes over the target itself."""

    def build(self, target: Path, system: Filesystem) -> None:
        descriptor = system.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            write_whole(system, descriptor, DATA)
        finally:
            os.close(descriptor)


class Unverified(Careful):
    """Believes what the disk says."""

    def build(self, target: Path, system: Filesystem) -> None:
        path = target.with_name("new")
        descriptor = system.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            write_whole(system, descriptor, DATA)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(descriptor)
        system.rename(path, target)


class Untidy(Careful):
    """Leaves its temporary file when it fails."""

    def build(self, target: Path, system: Filesystem) -> None:
        path = target.with_name("new")
        descriptor = system.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            write_whole(system, descriptor, DATA)
        finally:
            os.close(descriptor)
        system.rename(path, target)


class Hasty(Careful):
    """Takes one write for all of it."""

    def build(self, target: Path, system: Filesystem) -> None:
        path = target.with_name("new")
        descriptor = system.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            system.pwrite(descriptor, DATA, 0)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(descriptor)
        system.rename(path, target)


class Swallowing(Careful):
    """Reports success whatever happened."""

    def build(self, target: Path, system: Filesystem) -> None:
        with contextlib.suppress(OSError, LateError):
            careful(target, system)


@pytest.mark.parametrize(
    ("contract", "fault", "words"),
    [
        (InPlace(), Fault("pwrite", 0, "error:ENOSPC"), "wrong bytes"),
        (Unverified(), Fault("pwrite", 0, "lie"), "wrong bytes"),
        (Unverified(), Fault("rename", 0, "lie"), "wrong bytes"),
        (Untidy(), Fault("pwrite", 0, "error:ENOSPC"), "left {'new'}"),
        (Hasty(), Fault("pwrite", 0, "short"), "wrong bytes"),
        (Swallowing(), Fault("pwrite", 0, "error:ENOSPC"), "wrong bytes"),
    ],
    ids=["in place", "lying write", "lying rename", "temporary file", "short write", "swallowed error"],
)
def test_a_careless_writer_is_caught(
    contract: PublicationContract, fault: Fault, words: str, tmp_path: Path
) -> None:
    right, _ = contract.clean(tmp_path)
    assert right == DATA
    with pytest.raises(AssertionError, match=words):
        contract.judge_fault(tmp_path, fault, right, OLD)


def test_an_error_that_the_writer_did_not_announce_is_not_swallowed(tmp_path: Path) -> None:
    class Crashing(Careful):
        def build(self, target: Path, system: Filesystem) -> None:
            if isinstance(system, FaultySystem) and system.fault is not None:
                raise ZeroDivisionError
            careful(target, system)

    right, _ = Crashing().clean(tmp_path)
    with pytest.raises(ZeroDivisionError):
        Crashing().judge_fault(tmp_path, Fault("pwrite", 0, "short"), right, OLD)
