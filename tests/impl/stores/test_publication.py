"""Atomic publication under every fault and every kill: the old file whole, or the new one whole, nothing else."""

import fcntl
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest

from assay.impl.stores.expert_major.repack import repack
from assay.impl.stores.expert_major.writer import write_expert_store
from assay.impl.stores.extents import Extent, Filesystem
from assay.impl.stores.publication import Draft, PublicationError, publish, sweep
from assay.mutations.store_faults import MUTATING, Fault, FaultySystem, PublicationContract, StoreObserver
from assay.mutations.store_samples import (
    SMALL_FAMILY,
    golden_ple,
    native_gguf,
    small_component,
    small_manifest,
)

KINDS = {
    "open": ("error:EACCES", "error:ENOSPC", "interrupt"),
    "truncate": ("error:ENOSPC", "interrupt"),
    "pwrite": ("error:ENOSPC", "error:EIO", "short", "zero", "interrupt", "lie"),
    "pread": ("error:EIO", "short", "zero", "interrupt", "lie"),
    "sync": ("error:EIO", "error:ENOSPC", "interrupt", "lie"),
    "sync_directory": ("error:EIO", "interrupt", "lie"),
    "rename": ("error:EACCES", "error:EISDIR", "late:EIO", "late:EINTR", "interrupt", "lie"),
    "close": ("error:EIO", "late:EIO", "lie"),
    "status": ("error:EIO",),
}
HARMLESS = {"short", "interrupt", "late:EINTR"}
OLD = b"the old store\n" * 9


class PleContract(PublicationContract):
    name = "rows.ple"

    def build(self, target: Path, system: Filesystem) -> None:
        golden_ple(target, system)


class ExpertContract(PublicationContract):
    name = "experts.store"

    def build(self, target: Path, system: Filesystem) -> None:
        write_expert_store(target, small_manifest(), SMALL_FAMILY, small_component, system)


class RepackContract(PublicationContract):
    name = "native.gguf"

    def __init__(self, source: Path) -> None:
        self.source = source

    def build(self, target: Path, system: Filesystem) -> None:
        repack(self.source, target, replace=True, system=system)


@pytest.fixture(params=["ple", "expert", "repack"])
def contract(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PublicationContract:
    if request.param == "ple":
        return PleContract()
    if request.param == "expert":
        return ExpertContract()
    return RepackContract(native_gguf(tmp_path_factory.mktemp("source"), "qwen35moe")[0])


@pytest.mark.parametrize(("call", "kind"), [(call, kind) for call, kinds in KINDS.items() for kind in kinds])
def test_a_fault_anywhere_leaves_the_old_file_or_the_new_one(
    contract: PublicationContract, call: str, kind: str, tmp_path: Path
) -> None:
    right, system = contract.clean(tmp_path)
    assert system.count(call) > 0, "the contract never makes this call, so that the fault tests nothing"
    count = system.count(call)
    errors = 0
    for nth in sorted({0, 1, count // 2, count - 2, count - 1} & set(range(count))):
        error = contract.judge_fault(tmp_path, Fault(call, nth, kind), right, OLD)
        if (call, kind) == ("pread", "lie"):
            errors += error is not None  # the changed byte may be one that nobody needs
        elif kind in HARMLESS or call == "close" or (kind == "lie" and call.startswith("sync")):
            assert error is None, f"{kind} at {call} {nth} is survivable, but: {error}"
        else:
            assert error is not None, f"{kind} at {call} {nth} was reported as success"
    assert errors > 0 or (call, kind) != ("pread", "lie")


@pytest.mark.parametrize("call", ["pwrite", "pread"])
def test_transfers_that_are_always_short_still_give_the_exact_file(
    contract: PublicationContract, call: str, tmp_path: Path
) -> None:
    right, _ = contract.clean(tmp_path)
    assert contract.judge_fault(tmp_path, Fault(call, -1, "short"), right, OLD) is None


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault("open", 0, "error:EACCES"), "publish.create"),
        (Fault("truncate", 0, "error:ENOSPC"), "publish.create"),
        (Fault("pwrite", 1, "error:ENOSPC"), "publish.write"),
        (Fault("pwrite", 1, "zero"), "publish.write"),
        (Fault("sync", 0, "error:EIO"), "publish.sync"),
        (Fault("open", 1, "error:EACCES"), "publish.verify"),
        (Fault("sync_directory", 0, "error:EIO"), "publish.directory"),
        (Fault("rename", 0, "error:EISDIR"), "publish.rename"),
        (Fault("rename", 0, "lie"), "publish.rename"),
        (Fault("rename", 0, "late:EIO"), "publish.after-commit"),
        (Fault("status", 0, "error:EIO"), "publish.create"),
        (Fault("sync_directory", 1, "error:EIO"), "publish.after-commit"),
        (Fault("pwrite", 0, "lie"), "ple-store.page.header"),
    ],
)
def test_each_step_fails_at_its_own_clause(fault: Fault, code: str, tmp_path: Path) -> None:
    contract = PleContract()
    right, _ = contract.clean(tmp_path)
    error = contract.judge_fault(tmp_path, fault, right, OLD)
    assert error is not None
    assert error.finding.code == code


def test_an_error_after_the_commit_is_reported_and_not_rolled_back(tmp_path: Path) -> None:
    contract = PleContract()
    right, _ = contract.clean(tmp_path)
    error = contract.judge_fault(tmp_path, Fault("sync_directory", 1, "error:EIO"), right, OLD)
    assert type(error).__name__ == "DurabilityError"
    assert StoreObserver(tmp_path).data(contract.name) == right


def test_a_directory_in_the_place_of_the_target_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "rows.ple").mkdir()
    with pytest.raises(PublicationError) as caught:
        golden_ple(tmp_path / "rows.ple")
    assert (caught.value.finding.code, caught.value.finding.where) == ("publish.rename", "rows.ple")
    assert StoreObserver(tmp_path).names() == {"rows.ple"}


def test_a_writer_that_raises_leaves_nothing(tmp_path: Path) -> None:
    def fill(draft: Draft) -> None:
        draft.write(0, b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(tmp_path / "x", 100, fill, lambda _: None)
    assert StoreObserver(tmp_path).names() == set()


@pytest.mark.parametrize("offset", [-1, 97, 2**64])
def test_a_write_outside_the_file_is_refused(tmp_path: Path, offset: int) -> None:
    with pytest.raises(PublicationError) as caught:
        publish(tmp_path / "x", 100, lambda draft: draft.write(offset, b"four"), lambda _: None)
    assert caught.value.finding.code == "publish.write"
    assert StoreObserver(tmp_path).names() == set()


def test_a_temporary_file_that_another_took_is_not_removed(tmp_path: Path) -> None:
    taken: list[Path] = []

    def fill(draft: Draft) -> None:
        draft.path.unlink()
        draft.path.write_bytes(b"another's")
        taken.append(draft.path)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        publish(tmp_path / "x", 10, fill, lambda _: None)
    assert taken[0].read_bytes() == b"another's"


def test_a_temporary_file_that_was_exchanged_is_not_published(tmp_path: Path) -> None:
    def fill(draft: Draft) -> None:
        draft.path.unlink()
        draft.path.write_bytes(bytes(10))

    with pytest.raises(PublicationError) as caught:
        publish(tmp_path / "x", 10, fill, lambda _: None)
    assert caught.value.finding.code == "publish.verify"
    assert not (tmp_path / "x").exists()


def test_a_sweep_leaves_the_temporary_file_of_a_living_writer(tmp_path: Path) -> None:
    def verify(extent: Extent) -> None:
        assert sweep(tmp_path / "x") == []

    publish(tmp_path / "x", 10, lambda _: None, verify)
    assert (tmp_path / "x").read_bytes() == bytes(10)


def test_a_sweep_takes_only_names_that_publication_makes(tmp_path: Path) -> None:
    foreign = {
        ".a.tmp.store",
        ".a.tmp.0123456789ab",
        ".a.assay-0123456789.tmp",
        ".a.assay-0123456789AB.tmp",
        ".ab.tmp",
    }
    ours = ".a.assay-0123456789ab.tmp"
    for name in {*foreign, ours}:
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / ".a.assay-000000000000.tmp").mkdir()
    assert sweep(tmp_path / "a") == [tmp_path / ours]
    assert StoreObserver(tmp_path).names() == {*foreign, ".a.assay-000000000000.tmp"}


@pytest.mark.parametrize("name", [".a.assay-0123456789ab.tmp", "a\0b", "\ud800"])
def test_a_name_that_can_not_be_published_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(PublicationError) as caught:
        publish(tmp_path / name, 1, lambda _: None, lambda _: None)
    assert (caught.value.finding.code, caught.value.finding.where) == ("publish.create", repr(name))
    assert StoreObserver(tmp_path).names() == set()


def test_a_temporary_file_that_a_sweep_holds_is_given_up_for_another(tmp_path: Path) -> None:
    class Swept(Filesystem):
        held: ClassVar[list[int]] = []

        def open(self, path: Path, flags: int, mode: int = 0o644) -> int:
            descriptor = super().open(path, flags, mode)
            if flags & os.O_CREAT and not self.held:
                self.held.append(os.open(path, os.O_RDWR))
                fcntl.flock(self.held[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor

    publish(tmp_path / "x", 10, lambda _: None, lambda _: None, Swept())
    os.close(Swept.held[0])
    assert StoreObserver(tmp_path).names() == {"x"}


def test_a_writer_that_another_replaced_at_once_has_succeeded(tmp_path: Path) -> None:
    class Overtaken(Filesystem):
        def rename(self, source: Path, target: Path) -> None:
            super().rename(source, target)
            (tmp_path / "other").write_bytes(b"later")
            (tmp_path / "other").replace(target)

    (tmp_path / "x").write_bytes(OLD)
    publish(tmp_path / "x", 10, lambda _: None, lambda _: None, Overtaken())
    assert (tmp_path / "x").read_bytes() == b"later"


def test_a_file_that_appears_before_the_commit_is_not_replaced_unless_asked(tmp_path: Path) -> None:
    with pytest.raises(PublicationError) as caught:
        publish(
            tmp_path / "x",
            10,
            lambda _: None,
            lambda _: (tmp_path / "x").write_bytes(b"another's") and None,
            replace=False,
        )
    assert (caught.value.finding.code, caught.value.finding.where) == ("publish.rename", "x")
    assert StoreObserver(tmp_path).data("x") == b"another's"
    assert StoreObserver(tmp_path).names() == {"x"}
    publish(tmp_path / "y", 10, lambda _: None, lambda _: None, replace=False)
    assert StoreObserver(tmp_path).names() == {"x", "y"}


@pytest.mark.parametrize("number", ["EPERM", "EOPNOTSUPP", "ENOSYS", "EMLINK"])
def test_where_there_are_no_hard_links_a_new_file_is_renamed_into_place(tmp_path: Path, number: str) -> None:
    system = FaultySystem(Fault("link", -1, f"error:{number}"))
    publish(tmp_path / "x", 10, lambda _: None, lambda _: None, system, replace=False)
    assert StoreObserver(tmp_path).names() == {"x"}


def test_where_there_are_no_hard_links_a_file_that_came_meanwhile_stays(tmp_path: Path) -> None:
    target = tmp_path / "x"
    system = FaultySystem(Fault("link", -1, "error:EPERM"))
    with pytest.raises(PublicationError) as caught:
        publish(
            target, 10, lambda _: None, lambda _: target.write_bytes(b"theirs"), system, replace=False
        )  # fmt: skip
    assert (caught.value.finding.code, caught.value.finding.got) == ("publish.rename", "File exists")
    assert StoreObserver(tmp_path).data("x") == b"theirs"
    assert StoreObserver(tmp_path).names() == {"x"}


def test_a_pipe_in_the_place_of_the_target_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x")
    with pytest.raises(PublicationError) as caught:
        publish(tmp_path / "x", 10, lambda _: None, lambda _: None)
    assert (caught.value.finding.code, caught.value.finding.where) == ("publish.rename", "x")
    assert (tmp_path / "x").is_fifo()
    assert StoreObserver(tmp_path).names() == {"x"}


@pytest.mark.parametrize("kind", ["lie", "error:EACCES", "late:EIO"])
def test_a_faulty_link_is_told_from_one_that_took_effect(tmp_path: Path, kind: str) -> None:
    with pytest.raises(PublicationError) as caught:
        publish(
            tmp_path / "x",
            10,
            lambda _: None,
            lambda _: None,
            FaultySystem(Fault("link", 0, kind)),
            replace=False,
        )
    is_there = kind == "late:EIO"
    assert caught.value.finding.code == ("publish.after-commit" if is_there else "publish.rename")
    assert StoreObserver(tmp_path).names() == ({"x"} if is_there else set())


KILLED = """
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from assay.mutations.store_faults import Fault, FaultySystem
from assay.mutations.store_samples import SMALL_FAMILY, golden_ple, small_component, small_manifest
from assay.impl.stores.expert_major.writer import write_expert_store
kind, target, call, nth, fault = sys.argv[1:]
system = FaultySystem(Fault(call, int(nth), fault))
if kind == "ple":
    golden_ple(Path(target), system)
else:
    write_expert_store(Path(target), small_manifest(), SMALL_FAMILY, small_component, system)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ple", "expert"])
def test_a_kill_at_any_step_leaves_the_old_file_or_the_new_one(kind: str, tmp_path: Path) -> None:
    """SIGKILL before and after each call that changes the disk; what it leaves, the next publication removes."""
    contract: PublicationContract = PleContract() if kind == "ple" else ExpertContract()
    (tmp_path / contract.name).write_bytes(OLD)
    system = FaultySystem()
    contract.build(tmp_path / contract.name, system)
    right = StoreObserver(tmp_path).data(contract.name)
    steps = [
        (call, nth)
        for call in MUTATING
        for nth in range(0, system.count(call), max(1, system.count(call) // 16 if call == "pwrite" else 1))
    ]
    assert len(steps) >= 10
    for call, nth in steps:
        for fault in ("kill-before", "kill-after"):
            (tmp_path / contract.name).write_bytes(OLD)
            done = subprocess.run(
                [sys.executable, "-c", KILLED, kind, str(tmp_path / contract.name), call, str(nth), fault],
                check=False,
                capture_output=True,
                env={**os.environ},
            )
            assert done.returncode == -9, (call, nth, fault, done.stderr)
            seen = StoreObserver(tmp_path).data(contract.name)
            is_committed = (call, fault) == ("rename", "kill-after") or (call, nth) == ("sync_directory", 1)
            assert seen == (right if is_committed else OLD), (call, nth, fault)
            contract.build(tmp_path / contract.name, FaultySystem())
            assert StoreObserver(tmp_path).names() == {contract.name}, (call, nth, fault)
            assert StoreObserver(tmp_path).data(contract.name) == right


NEVER_REPLACED = """
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from assay.impl.stores.publication import publish
from assay.mutations.store_faults import Fault, FaultySystem
target, call, nth, fault = sys.argv[1:]
publish(Path(target), 5, lambda draft: draft.write(0, b"whole"), lambda _: None,
        FaultySystem(Fault(call, int(nth), fault)), replace=False)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "fault", "is_there"),
    [
        ("link", "kill-before", False),
        ("link", "kill-after", True),
        ("unlink", "kill-before", True),
        ("unlink", "kill-after", True),
    ],
)
def test_a_kill_while_a_file_that_replaces_nothing_is_put_in_place(
    call: str, fault: str, is_there: bool, tmp_path: Path
) -> None:
    """Between link and unlink the file has two names; the next publication takes the temporary one away."""
    command = [sys.executable, "-c", NEVER_REPLACED, str(tmp_path / "x"), call, "0", fault]
    done = subprocess.run(command, check=False, capture_output=True, env={**os.environ})
    assert done.returncode == -9, done.stderr
    seen = StoreObserver(tmp_path)
    assert ("x" in seen.names()) is is_there
    if is_there:
        assert seen.data("x") == b"whole"
    sweep(tmp_path / "x")
    assert seen.names() == ({"x"} if is_there else set())
    assert not is_there or seen.data("x") == b"whole"


def test_writers_of_one_target_at_once_leave_one_whole_file_and_readers_never_see_less(
    tmp_path: Path,
) -> None:
    target = tmp_path / "x"
    size = 1 << 16
    target.write_bytes(bytes([255]) * size)
    is_done = threading.Event()
    halves: list[set[int]] = []

    def watch() -> None:
        while not is_done.is_set():
            data = target.read_bytes()
            if len(data) != size or len(set(data)) != 1:
                halves.append(set(data))

    def write(number: int) -> None:
        for turn in range(4):
            mark = bytes([number * 4 + turn]) * size
            publish(target, size, lambda draft, mark=mark: draft.write(0, mark), lambda _: None)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
    finally:
        is_done.set()
        watcher.join()
    assert halves == []
    assert len(set(target.read_bytes())) == 1
    assert StoreObserver(tmp_path).names() == {"x"}
