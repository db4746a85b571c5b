"""Bounded reads: a record is whole or there is an error, and the caller's buffer is untouched."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.impl.stores.extents import Filesystem, StoreFile
from assay.spec.errors import AdmissionError

RECORD = bytes(range(250)) * 40  # 10,000 bytes


class Scripted(Filesystem):
    """Answers reads by script: a number is how many bytes come back, an exception is raised."""

    def __init__(self, *answers: int | OSError) -> None:
        self.answers = list(answers)

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        if not self.answers:
            return super().pread(descriptor, size, offset)
        answer = self.answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return super().pread(descriptor, min(size, answer), offset)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "record"
    target.write_bytes(RECORD)
    return target


def code_and_where(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(AdmissionError) as caught:
        call()
    return caught.value.finding.code, caught.value.finding.where


def test_short_and_interrupted_reads_are_continued_to_the_whole_record(path: Path) -> None:
    """Bug report A25: 4,096 bytes, an interrupt, 4,096, 1,808."""
    with StoreFile.open(path, Scripted(4096, InterruptedError(), 4096, 1808)) as file:
        buffer = bytearray(b"\xa5" * 10_000)
        file.extent().read_into(0, buffer)
    assert buffer == RECORD


def test_the_end_of_the_file_inside_a_record_leaves_the_buffer_untouched(path: Path) -> None:
    """Bug report A25: 4,096 bytes, then nothing."""
    with StoreFile.open(path, Scripted(4096, 0)) as file:
        buffer = bytearray(b"\xa5" * 10_000)
        assert code_and_where(lambda: file.extent().read_into(0, buffer)) == ("store.file.short", str(path))
    assert buffer == b"\xa5" * 10_000


def test_memory_is_filled_whole_by_short_and_interrupted_reads(path: Path) -> None:
    """Bug report A25 where nothing is copied between: no byte of what was there before is left."""
    with StoreFile.open(path, Scripted(4096, InterruptedError(), 4096, 1808)) as file:
        buffer = bytearray(b"\xa5" * 10_000)
        file.extent().fill(0, memoryview(buffer))
    assert buffer == RECORD


@pytest.mark.parametrize(
    ("answers", "code"),
    [((4096, 0), "store.file.short"), ((0,), "store.file.short"), ((4096, OSError(5, "x")), "store.file.io")],
)
def test_memory_that_can_not_be_filled_whole_is_an_error(
    path: Path, answers: tuple[int | OSError, ...], code: str
) -> None:
    with StoreFile.open(path, Scripted(*answers)) as file:
        buffer = memoryview(bytearray(10_000))
        assert code_and_where(lambda: file.extent().fill(0, buffer)) == (code, str(path))


def test_memory_is_not_filled_from_outside_the_extent(path: Path) -> None:
    with StoreFile.open(path) as file:
        extent = file.extent(0, 100)
        for offset, size in ((1, 100), (-1, 1), (101, 0)):
            buffer = memoryview(bytearray(size))
            assert code_and_where(lambda o=offset, b=buffer: extent.fill(o, b)) == (
                "store.file.extent",
                str(path),
            )


def test_a_failing_read_is_an_error_with_the_systems_words(path: Path) -> None:
    failing = Scripted(4096, OSError(5, "Input/output error"))
    with StoreFile.open(path, failing) as file, pytest.raises(AdmissionError) as caught:
        file.extent().read(0, 10_000)
    assert caught.value.finding.code == "store.file.io"
    assert "4096 bytes, then Input/output error" in caught.value.finding.got


def test_a_read_that_returns_more_than_asked_is_refused(path: Path) -> None:
    class Generous(Filesystem):
        def pread(self, descriptor: int, size: int, offset: int) -> bytes:
            return super().pread(descriptor, size + 1, offset)

    with StoreFile.open(path, Generous()) as file:
        assert code_and_where(lambda: file.extent().read(0, 100)) == ("store.file.io", str(path))
        buffer = memoryview(bytearray(100))
        assert code_and_where(lambda: file.extent().fill(0, buffer)) == ("store.file.io", str(path))


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert code_and_where(lambda: StoreFile.open(pipe)) == ("store.file.open", str(pipe))


def test_a_pipe_descriptor_is_refused_and_stays_open() -> None:
    reader, writer = os.pipe()
    assert code_and_where(lambda: StoreFile.of_descriptor(reader, "pipe")) == ("store.file.open", "pipe")
    os.close(writer)
    os.close(reader)


def test_a_closed_descriptor_is_refused() -> None:
    assert code_and_where(lambda: StoreFile.of_descriptor(-1, "closed")) == ("store.file.open", "closed")


@pytest.mark.parametrize("name", ["absent", "."])
def test_what_is_not_a_file_is_refused(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    assert code_and_where(lambda: StoreFile.open(target)) == ("store.file.open", str(target))


@pytest.mark.parametrize(
    ("start", "size"),
    [(0, 10_001), (4097, 10_000 - 4096), (2**64 - 128, 1), (10_001, 0), (-1, 1), (0, 2**63), (0, -1)],
)
def test_an_extent_outside_the_file_is_refused(path: Path, start: int, size: int) -> None:
    with StoreFile.open(path) as file:
        assert code_and_where(lambda: file.extent(start, size, "x")) == ("store.file.extent", "x")


@given(st.integers(-(2**65), 2**65), st.integers(-(2**65), 2**65))
@settings(max_examples=200, deadline=None)
def test_a_read_returns_the_exact_bytes_or_raises(
    tmp_path_factory: pytest.TempPathFactory, at: int, size: int
) -> None:
    target = tmp_path_factory.getbasetemp() / "record-for-reads"
    target.write_bytes(RECORD)
    with StoreFile.open(target) as file:
        extent = file.extent()
        if 0 <= at <= 10_000 and 0 <= size <= 10_000 - at:
            assert extent.read(at, size) == RECORD[at : at + size]
        else:
            assert code_and_where(lambda: extent.read(at, size))[0] == "store.file.extent"


def test_a_file_that_changes_while_it_is_judged_is_noticed(path: Path) -> None:
    with StoreFile.open(path) as file:
        file.check_unchanged()
        with path.open("ab") as more:
            more.write(b"x")
        assert code_and_where(file.check_unchanged) == ("store.file.changed", str(path))
