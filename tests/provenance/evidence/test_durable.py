"""A kill at any step of a write loses nothing that was there and leaves nothing half written."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.provenance.evidence.durable import Disk, remove_abandoned, write_durably
from assay.provenance.evidence.ledger import Ledger
from assay.spec.documents.evidence import Evidence

MakeRecord = Callable[..., Evidence]

DYING_APPENDER = """
import os, signal, sys
from pathlib import Path
from assay.provenance.evidence.durable import Disk
from assay.provenance.evidence.ledger import Ledger
from assay.spec.documents.evidence import Evidence

class Dying(Disk):
    left = int(sys.argv[3])
    is_second_half = False
    def step(self, do):
        if Dying.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        Dying.left -= 1
        return do()
    def write(self, descriptor, data):
        Dying.is_second_half = not Dying.is_second_half
        part = data[: len(data) // 2] if Dying.is_second_half else data
        return self.step(lambda: os.write(descriptor, part))
    def flush(self, descriptor):
        return self.step(lambda: Disk.flush(self, descriptor))
    def rename(self, source, target):
        return self.step(lambda: Disk.rename(self, source, target))

ledger = Ledger(Path(sys.argv[1]), Dying())
record = Evidence.model_validate_json(sys.argv[2])
for number in (1, 2):
    ledger.append(record.model_copy(update={"seed": number}))
    print(number, flush=True)
"""


class Failing(Disk):
    """Fails the step of the given name."""

    def __init__(self, step: str) -> None:
        self._step = step

    def write(self, descriptor: int, data: bytes) -> int:
        if self._step == "write":
            os.write(descriptor, data[:3])
            raise OSError(errno.ENOSPC, "no space left")
        return super().write(descriptor, data)

    def flush(self, descriptor: int) -> None:
        if self._step == "flush":
            raise OSError(errno.EIO, "device error")
        super().flush(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        if self._step == "rename":
            raise OSError(errno.EACCES, "refused")
        super().rename(source, target)


class Stuttering(Disk):
    """Writes one byte at a time."""

    def write(self, descriptor: int, data: bytes) -> int:
        return os.write(descriptor, data[:1])


@pytest.mark.parametrize("step", ["write", "flush", "rename"])
def test_a_failed_step_leaves_the_old_file_and_nothing_beside(tmp_path: Path, step: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match=r"no space|device|refused"):
        write_durably(path, b"new content", Failing(step))
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("file", b"old")]


def test_short_writes_are_continued(tmp_path: Path) -> None:
    write_durably(tmp_path / "file", b"every byte", Stuttering())
    assert (tmp_path / "file").read_bytes() == b"every byte"


def test_only_the_leftovers_of_dead_processes_are_removed(tmp_path: Path) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    names = [f".writing-{int(dead.stdout)}-00-a", f".writing-{os.getpid()}-00-b", "a"]
    for name in names:
        (tmp_path / name).write_bytes(b"")
    assert remove_abandoned(tmp_path) == [names[0]]
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(names[1:])


STEPS_OF_AN_APPEND = 10
"""Two halves written, file flushed, renamed, folder flushed; once for the record and once for HEAD."""


@pytest.mark.slow
def test_a_kill_at_any_step_loses_no_earlier_evidence_and_leaves_no_half_written_file(
    tmp_path: Path, make_record: MakeRecord
) -> None:
    for step in range(2 * STEPS_OF_AN_APPEND + 1):
        folder = tmp_path / str(step)
        ledger = Ledger(folder)
        ledger.append(make_record(seed=0))
        code, reported = append_two_and_die_at(step, folder, make_record)
        assert code == (0 if step == 2 * STEPS_OF_AN_APPEND else -signal.SIGKILL)
        chain = ledger.read()
        assert chain.findings == ()
        seeds = [entry.record.seed for entry in chain.entries]
        assert seeds in ([0], [0, 1], [0, 1, 2])
        assert len(seeds) - 1 >= len(reported)  # what was reported as written is there
        ledger.append(make_record(seed=9))
        assert [entry.record.seed for entry in ledger.read().entries] == [*seeds, 9]
        assert [path.name for path in folder.iterdir() if path.name.startswith(".writing-")] == []


@pytest.mark.slow
def test_a_kill_during_the_first_append_leaves_an_empty_or_whole_ledger(
    tmp_path: Path, make_record: MakeRecord
) -> None:
    for step in range(1 + 5 + STEPS_OF_AN_APPEND):  # the new folder, the first HEAD, the append
        folder = tmp_path / str(step)
        code, _ = append_two_and_die_at(step, folder, make_record)
        assert code == -signal.SIGKILL
        chain = Ledger(folder).read()
        assert chain.findings == ()
        assert len(chain.entries) <= 1
        Ledger(folder).append(make_record(seed=7))
        assert Ledger(folder).read().entries[-1].record.seed == 7


def append_two_and_die_at(step: int, folder: Path, make_record: MakeRecord) -> tuple[int, list[int]]:
    """Appends two records in a child that kills itself before its `step`-th step; returns what it reported."""
    text = make_record().model_dump_json(by_alias=True)
    command = [sys.executable, "-c", DYING_APPENDER, str(folder), text, str(step)]
    done = subprocess.run(command, capture_output=True, check=False)
    return done.returncode, [int(line) for line in done.stdout.split()]
