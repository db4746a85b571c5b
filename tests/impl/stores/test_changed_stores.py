"""Stores that change on disk after they were opened, and stores that several threads read at once.

What is returned was verified in the very bytes that are returned; everything else is one typed error, and the caller's
buffer is as it was.
"""

import os
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from assay.impl.stores.expert_major.store import ExpertStore
from assay.impl.stores.expert_major.writer import write_expert_store
from assay.impl.stores.extents import StoreFile
from assay.impl.stores.ple_rows.store import PleStore
from assay.impl.stores.ple_rows.writer import write_ple_store
from assay.mutations.store_samples import (
    GOLDEN_PLE,
    SMALL_FAMILY,
    golden_ple,
    sample_bytes,
    small_component,
    small_manifest,
)
from assay.spec.errors import AssayError

POISON = b"\xa5"
LAST = 12
FIRST_PAGE = 4096


def row(number: int) -> bytes:
    return bytes([(17 * number + 29 * k) & 255 for k in range(8)])


def refusal(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(AssayError) as caught:
        call()
    assert "\n" not in caught.value.finding.line
    return caught.value.finding.code, caught.value.finding.where


def write_at(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def other_rows(path: Path) -> bytes:
    """The bytes of a valid store of the same geometry with other rows."""
    target = path.with_name("other")
    write_ple_store(target, GOLDEN_PLE, lambda _, count: bytes(8 * count))
    data = target.read_bytes()
    target.unlink()
    return data


CHANGES: dict[str, tuple[Callable[[Path], None], set[str]]] = {
    "emptied": (lambda path: os.truncate(path, 0), {"store.file.short"}),
    "cut inside the page": (lambda path: os.truncate(path, FIRST_PAGE + 4096 * LAST + 100), {"store.file.short"}),
    "cut and grown again": (
        lambda path: (os.truncate(path, FIRST_PAGE), os.truncate(path, 57_344))[0],
        {"ple-store.page.header"},
    ),
    "a row changed": (lambda path: write_at(path, FIRST_PAGE + 4096 * LAST + 70, b"\xff"), {"ple-store.page.digest"}),
    "a tail changed": (lambda path: write_at(path, FIRST_PAGE + 4096 * LAST + 4095, b"\1"), {"ple-store.page.digest"}),
    "a header changed": (lambda path: write_at(path, FIRST_PAGE + 4096 * LAST + 36, b"\7"), {"ple-store.page.header"}),
    "another page copied over": (
        lambda path: write_at(path, FIRST_PAGE + 4096 * LAST, path.read_bytes()[FIRST_PAGE : FIRST_PAGE + 4096]),
        {"ple-store.page.header"},
    ),
    "another store written over": (
        lambda path: write_at(path, 0, other_rows(path)),
        {"ple-store.page.digest", "ple-store.table-changed"},
    ),
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    golden_ple(tmp_path / "rows")
    return tmp_path / "rows"


@pytest.mark.parametrize("budget", [0, 1 << 20], ids=["table on disk", "table in memory"])
@pytest.mark.parametrize("cache", [0, 1 << 20], ids=["no cache", "cache"])
@pytest.mark.parametrize("name", CHANGES)
def test_rows_of_a_store_that_changed_are_refused_with_the_buffer_untouched(
    name: str, cache: int, budget: int, path: Path
) -> None:
    change, codes = CHANGES[name]
    with StoreFile.open(path) as file:
        store = PleStore.open(file.extent(), GOLDEN_PLE, table_budget=budget, cache_bytes=cache)
        before = store.read_rows([0, 1])
        change(path)
        buffer = bytearray(POISON * 16)
        for _ in range(2):  # the second time nothing that was refused may have been kept
            assert refusal(lambda: store.read_rows([0, 99], buffer))[0] in codes
            assert buffer == POISON * 16
        if cache:
            assert store.read_rows([0, 1]) == before == row(0) + row(1)


@pytest.mark.parametrize("name", CHANGES)
def test_a_verification_notices_every_change(name: str, path: Path) -> None:
    with StoreFile.open(path) as file:
        store = PleStore.open(file.extent(), GOLDEN_PLE, table_budget=0)
        CHANGES[name][0](path)
        try:
            findings = {one.code for one in store.verify_pages(0, 13)}
        except AssayError as error:
            findings = {error.finding.code}
        assert findings & CHANGES[name][1]
        with pytest.raises(AssayError) as caught:
            store.verify_all()
        assert caught.value.finding.code in {
            "store.file.changed",
            "store.file.short",
            "ple-store.table-changed",
        }


def test_a_store_that_was_replaced_is_read_as_it_was(path: Path) -> None:
    with StoreFile.open(path) as file:
        store = PleStore.open(file.extent(), GOLDEN_PLE)
        write_ple_store(path, GOLDEN_PLE, lambda _, count: bytes(8 * count))
        assert store.read_rows([99]) == row(99)
        assert store.verify_all().findings == ()


def test_a_store_whose_file_was_closed_is_no_store(path: Path) -> None:
    with StoreFile.open(path) as file:
        store = PleStore.open(file.extent(), GOLDEN_PLE)
    buffer = bytearray(POISON * 8)
    assert refusal(lambda: store.read_rows([1], buffer)) == ("store.file.io", str(path))
    assert buffer == POISON * 8


def batches(seed: int, count: int) -> Iterator[list[int]]:
    chosen = random.Random(seed)  # noqa: S311 - repeatable input
    for _ in range(count):
        yield [chosen.randrange(100) for _ in range(chosen.randrange(1, 9))]


@pytest.mark.parametrize("cache", [0, 4096, 3 * 4096, 1 << 20])
@pytest.mark.parametrize("budget", [0, 1 << 20])
def test_threads_that_read_at_once_get_their_own_rows(cache: int, budget: int, path: Path) -> None:
    start = threading.Barrier(4)

    def read(seed: int) -> int:
        start.wait()
        wrong = 0
        for rows in batches(seed, 60):
            buffer = bytearray(8 * len(rows))
            wanted = b"".join(row(number) for number in rows)
            wrong += store.read_rows(rows, buffer) != wanted or buffer != wanted
            wrong += len(store._cache) * 4096 > cache
        return wrong

    with StoreFile.open(path) as file, ThreadPoolExecutor(4) as pool:
        store = PleStore.open(file.extent(), GOLDEN_PLE, cache_bytes=cache, table_budget=budget)
        assert sum(pool.map(read, range(4))) == 0


def test_a_bad_page_fails_only_those_who_ask_for_it(path: Path) -> None:
    write_at(path, FIRST_PAGE + 4096 * LAST + 70, b"\xff")

    def read(seed: int) -> tuple[int, int]:
        good = bad = 0
        for rows in batches(seed, 60):
            try:
                good += store.read_rows(rows) == b"".join(row(number) for number in rows)
                assert max(rows) < 96
            except AssayError as error:
                bad += error.finding.code == "ple-store.page.digest"
                assert max(rows) >= 96
        return good, bad

    with StoreFile.open(path) as file, ThreadPoolExecutor(4) as pool:
        store = PleStore.open(file.extent(), GOLDEN_PLE, cache_bytes=3 * 4096)
        counts = list(pool.map(read, range(4)))
    assert all(good + bad == 60 and good and bad for good, bad in counts)


def test_the_cache_holds_no_more_bytes_than_it_may(path: Path) -> None:
    for cache, pages in ((0, 0), (4095, 0), (4096, 1), (5 * 4096 + 1, 5), (1 << 30, 13)):
        with StoreFile.open(path) as file:
            store = PleStore.open(file.extent(), GOLDEN_PLE, cache_bytes=cache)
            store.read_rows(range(100))
            store.read_rows(range(100))
            assert len(store._cache) == pages
            assert sum(map(len, store._cache.values())) == 4096 * pages


EXPERT_CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "emptied": (lambda path: os.truncate(path, 0), "store.file.short"),
    "cut inside the record": (lambda path: os.truncate(path, path.stat().st_size - 1), "store.file.short"),
    "a byte changed": (lambda path: write_at(path, path.stat().st_size - 1, b"\xee"), "expert-store.record-digest"),
    "cut and grown again": (
        lambda path: (os.truncate(path, 4096), os.truncate(path, 176_128))[0],
        "expert-store.record-digest",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPERT_CHANGES)
def test_a_record_of_a_store_that_changed_is_refused(name: str, tmp_path: Path) -> None:
    digests = write_expert_store(tmp_path / "store", small_manifest(), SMALL_FAMILY, small_component)
    assert digests is not None
    change, code = EXPERT_CHANGES[name]
    with StoreFile.open(tmp_path / "store") as file:
        store = ExpertStore.open(file.extent(), SMALL_FAMILY).with_digests(digests)
        kept = store.read_record(2, 3)
        change(tmp_path / "store")
        assert refusal(lambda: store.read_record(2, 3))[0] == code
        assert refusal(lambda: list(store.read_records([(2, 3)])))[0] == code
        assert kept.component(2) == sample_bytes(2, 2, 3, 4608)
        with pytest.raises(AssayError) as caught:
            store.verify_all()
        assert caught.value.finding.code in {"store.file.short", "store.file.changed"}


def test_threads_that_read_records_at_once_get_their_own(tmp_path: Path) -> None:
    digests = write_expert_store(tmp_path / "store", small_manifest(), SMALL_FAMILY, small_component)
    assert digests is not None

    def read(seed: int) -> int:
        chosen = random.Random(seed)  # noqa: S311 - repeatable input
        places = [(chosen.randrange(3), chosen.randrange(4)) for _ in range(40)]
        wrong = 0
        for (layer, expert), record in zip(places, store.read_records(places, 2), strict=True):
            wrong += record.component(1) != sample_bytes(layer, 1, expert, 4608)
        return wrong

    with StoreFile.open(tmp_path / "store") as file, ThreadPoolExecutor(4) as pool:
        store = ExpertStore.open(file.extent(), SMALL_FAMILY).with_digests(digests)
        assert sum(pool.map(read, range(4))) == 0
