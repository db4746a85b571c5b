"""What a caller may hand to a store, and what is refused in one typed line before anything is read or written."""

import array
import hashlib
import mmap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from assay.impl.stores.arguments import bound, integer, readable, writable
from assay.impl.stores.expert_major.store import ExpertStore, Record
from assay.impl.stores.expert_major.writer import write_expert_store
from assay.impl.stores.extents import StoreFile
from assay.impl.stores.ple_rows.store import PleStore
from assay.mutations import expert_store, ple_store
from assay.mutations.store_memory import MemorySystem, memory_extent
from assay.mutations.store_samples import (
    GOLDEN_PLE,
    SMALL_FAMILY,
    golden_rows,
    small_component,
    small_manifest,
)
from assay.spec.errors import AssayError, ContractError

ROWS = 2
SIZE = ROWS * 8


def released() -> memoryview:
    view = memoryview(bytearray(SIZE))
    view.release()
    return view


UNUSABLE: dict[str, tuple[Callable[[], object], str]] = {
    "too small": (lambda: bytearray(SIZE - 1), f"{SIZE - 1} bytes"),
    "too large": (lambda: bytearray(SIZE + 1), f"{SIZE + 1} bytes"),
    "empty": (bytearray, "0 bytes"),
    "empty floats": (lambda: array.array("d"), "0 bytes"),
    "strided": (lambda: memoryview(bytearray(2 * SIZE))[::2], "a view with strides (2,)"),
    "backwards": (lambda: np.zeros(SIZE, np.uint8)[::-1], "a view with strides (-1,)"),
    "columns first": (lambda: np.zeros((ROWS, 8), np.uint8, order="F"), "a view with strides (1, 2)"),
    "a column": (lambda: np.zeros((SIZE, 2), np.uint8)[:, 0], "a view with strides (2,)"),
    "list": (lambda: [0] * SIZE, "list"),
    "text": (lambda: "x" * SIZE, f"str {'x' * SIZE!r}"),
    "number": (lambda: SIZE, f"int {SIZE}"),
    "released": (released, "memoryview"),
}
READ_ONLY: dict[str, tuple[Callable[[], object], str]] = {
    "bytes": (lambda: bytes(SIZE), "a read-only bytes"),
    "read-only view": (lambda: memoryview(bytearray(SIZE)).toreadonly(), "a read-only memoryview"),
    "read-only array": (lambda: np.frombuffer(bytes(SIZE), np.uint8), "a read-only ndarray"),
}
NO_NUMBERS = [1.0, 0.5, float("nan"), "1", b"1", None, True, False, np.float64(1), np.bool_(True), [1], 1j]


class Counting(MemorySystem):
    """Counts what is read."""


def rows_store() -> tuple[PleStore, MemorySystem]:
    system = Counting(ple_store.sample())
    store = PleStore.open(StoreFile(1, "memory", system).extent(), GOLDEN_PLE)
    return store, system


def refusal(call: Callable[[], object]) -> tuple[str, str, str]:
    with pytest.raises(ContractError) as caught:
        call()
    found = caught.value.finding
    return found.code, found.where, found.got


def line(call: Callable[[], object]) -> str:
    with pytest.raises(AssayError) as caught:
        call()
    return caught.value.finding.line


@pytest.mark.parametrize("name", [*UNUSABLE, *READ_ONLY])
def test_a_buffer_that_rows_can_not_go_into_is_refused_before_a_page_is_read(name: str) -> None:
    make, got = {**UNUSABLE, **READ_ONLY}[name]
    store, system = rows_store()
    before = system.bytes_read
    assert refusal(lambda: store.read_rows([1, 2], make())) == ("ple-store.buffer", "into", got)
    assert system.bytes_read == before


@pytest.mark.parametrize(
    "make",
    [
        lambda: bytearray(SIZE),
        lambda: memoryview(bytearray(SIZE + 4))[2:-2],
        lambda: mmap.mmap(-1, SIZE),
        lambda: array.array("f", [0.0] * (SIZE // 4)),
        lambda: np.zeros((ROWS, 4), np.uint16),
        lambda: np.zeros(SIZE // 4, ">f4"),
        lambda: np.zeros((4, ROWS, 8), np.uint8)[2],
    ],
)
def test_any_contiguous_writable_memory_of_the_right_bytes_is_filled(make: Callable[[], object]) -> None:
    buffer = make()
    rows_store()[0].read_rows([3, 99], buffer)
    assert memoryview(buffer).tobytes() == golden_rows(3, 1) + golden_rows(99, 1)


def test_no_rows_fit_into_an_empty_buffer() -> None:
    store, system = rows_store()
    before = system.bytes_read
    assert store.read_rows([], bytearray()) == b""
    assert system.bytes_read == before


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_what_is_no_integer_is_no_row_page_or_count(value: object) -> None:
    store, _ = rows_store()
    calls: dict[str, Callable[[], object]] = {
        "row": lambda: store.read_rows([0, value]),
        "page": lambda: store.verify_page(value),
        "pages": lambda: store.verify_pages(value, 2),
        "judged_before": lambda: store.verify_all(judged_before=value),
    }
    for where, call in calls.items():
        assert refusal(call)[:2] == ("ple-store.row", where)
    more: tuple[Callable[[], object], ...] = (
        lambda: store.locate_row(value),
        lambda: store.locate_in_page(value),
    )
    assert {refusal(call)[:2] for call in more} == {("ple-store.row", "row")}
    places: tuple[Callable[[], object], ...] = (
        lambda: store.locate_page(value),
        lambda: store.page_digest(value),
        lambda: store.check_page(value, bytes(4096)),
    )
    assert {refusal(call)[:2] for call in places} == {("ple-store.row", "page")}


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_what_is_no_integer_is_no_layer_expert_or_role(value: object) -> None:
    store = ExpertStore.open(memory_extent(expert_store.sample()), SMALL_FAMILY)
    calls: list[tuple[str, Callable[[], object]]] = [
        ("layer", lambda: store.layer(value)),
        ("layer", lambda: store.read_record(value, 0)),
        ("layer 0 expert", lambda: store.read_record(0, value)),
        ("layer 0 expert", lambda: store.locate_record(0, value)),
        ("layer 0 expert", lambda: store.record_digest(0, value)),
        ("layer 0 expert", lambda: store.check_record(0, value, b"")),
        ("role", lambda: store.locate(0, 0, value)),
        ("role", lambda: store.read_record(0, 0).component(value)),
    ]
    for where, call in calls:
        assert refusal(call)[:2] == ("expert-store.place", where)


def test_numbers_of_numpy_are_numbers() -> None:
    store, _ = rows_store()
    assert store.read_rows(np.array([7, 0], np.uint32)) == golden_rows(7, 1) + golden_rows(0, 1)
    assert integer(np.int64(5)) == 5


@pytest.mark.parametrize("rows", [None, 3, 2.5, object()], ids=["None", "3", "2.5", "object"])
def test_what_is_no_sequence_holds_no_rows(rows: object) -> None:
    assert refusal(lambda: rows_store()[0].read_rows(rows))[:2] == ("ple-store.row", "rows")


@pytest.mark.parametrize("where", ["table_budget", "cache_bytes"])
@pytest.mark.parametrize("value", [-1, 1.5, "1", None])
def test_a_budget_is_a_whole_number_of_bytes(where: str, value: object) -> None:
    extent = memory_extent(ple_store.sample())
    assert refusal(lambda: PleStore.open(extent, GOLDEN_PLE, **{where: value}))[:2] == ("store.bound", where)


@pytest.mark.parametrize("value", [0, -1, 1.5, None, True])
def test_threads_and_processes_are_counted_from_one(value: object) -> None:
    store, _ = rows_store()
    assert refusal(lambda: store.verify_pages(0, 1, value))[:2] == ("store.bound", "threads")
    assert refusal(lambda: store.verify_all(value))[:2] == ("store.bound", "threads")
    assert refusal(lambda: store.verify_all(jobs=value))[:2] == ("store.bound", "jobs")


def test_a_bound_is_reached_and_not_passed() -> None:
    assert bound(2, 2, "threads") == 2
    assert refusal(lambda: bound(1, 2, "threads")) == ("store.bound", "threads", "1")


def test_an_extent_fills_a_buffer_whole_or_refuses_it() -> None:
    extent = memory_extent(b"abcdef")
    buffer = bytearray(3)
    extent.read_into(2, buffer)
    assert buffer == b"cde"
    assert refusal(lambda: extent.read_into(0, b"abc"))[:2] == ("store.buffer", "target")
    assert refusal(lambda: extent.read_into(0, [1]))[:2] == ("store.buffer", "target")


@pytest.mark.parametrize("name", UNUSABLE)
def test_bytes_to_be_judged_come_as_one_contiguous_piece(name: str) -> None:
    make, got = UNUSABLE[name]
    assert refusal(lambda: readable(make(), SIZE, "data")) == ("store.buffer", "data", got)


def test_a_view_is_of_the_memory_that_was_handed_over() -> None:
    buffer = np.zeros(2, np.uint32)
    writable(buffer, 8, "into")[0:4] = b"\1\0\0\0"
    assert buffer.tolist() == [1, 0]


def test_a_record_that_someone_else_read_is_judged_in_its_own_bytes(tmp_path: Path) -> None:
    digests = write_expert_store(tmp_path / "store", small_manifest(), SMALL_FAMILY, small_component)
    assert digests is not None
    data = (tmp_path / "store").read_bytes()
    with StoreFile.open(tmp_path / "store") as file:
        plain = ExpertStore.open(file.extent(), SMALL_FAMILY)
        store = plain.with_digests(digests)
        offset, size = store.locate_record(1, 2)
        assert (offset, size) == (store.locate(1, 2, 0)[0], 3 * 4608)
        own = bytearray(data[offset : offset + size])
        assert plain.check_record(1, 2, own) is False
        assert plain.record_digest(1, 2) is None
        assert store.check_record(1, 2, own) is True
        own[5] ^= 1
        assert line(lambda: store.check_record(1, 2, own)).startswith(
            "expert-store.record-digest: layer 1 expert 2: "
        )
        assert (
            line(lambda: store.check_record(1, 2, own[:-1]))
            == "store.buffer: data: expected 13824 bytes, got 13823 bytes"
        )
        record = store.read_record(1, 2)
        assert isinstance(record, Record)
        assert record.data == data[offset : offset + size]


def test_the_digest_of_a_record_is_that_of_its_bytes(tmp_path: Path) -> None:
    digests = write_expert_store(tmp_path / "store", small_manifest(), SMALL_FAMILY, small_component)
    assert digests is not None
    data = (tmp_path / "store").read_bytes()
    with StoreFile.open(tmp_path / "store") as file:
        store = ExpertStore.open(file.extent(), SMALL_FAMILY).with_digests(digests)
        for layer, expert in ((0, 0), (2, 3)):
            offset, size = store.locate_record(layer, expert)
            wanted = hashlib.sha256(data[offset : offset + size]).digest()
            assert store.record_digest(layer, expert) == wanted


@pytest.mark.parametrize("budget", [0, 1 << 20])
def test_a_page_that_someone_else_read_is_judged_in_its_own_bytes(budget: int) -> None:
    data = bytes(8192) + ple_store.sample()
    store = PleStore.open(memory_extent(data, 8192), GOLDEN_PLE, table_budget=budget)
    offset, size = store.locate_page(12)
    assert (offset, size) == (8192 + 4096 + 12 * 4096, 4096)
    own = bytearray(data[offset : offset + size])
    store.check_page(12, own)
    page, start, length = store.locate_in_page(99)
    assert (page, own[start : start + length]) == (12, golden_rows(99, 1))
    own[start] ^= 1
    assert line(lambda: store.check_page(12, own)).startswith("ple-store.page.digest: pages[12]: ")
    right = data[offset : offset + size]
    assert (
        line(lambda: store.check_page(11, right))
        == "ple-store.page.header: pages[11].page_index: expected 11, got 12"
    )
    assert (
        line(lambda: store.check_page(12, own[:-1]))
        == "store.buffer: data: expected 4096 bytes, got 4095 bytes"
    )


def test_the_digest_of_a_page_is_that_of_its_bytes() -> None:
    store, _ = rows_store()
    data = ple_store.sample()
    offset, size = store.locate_page(3)
    assert store.page_digest(3) == hashlib.sha256(data[offset : offset + size]).digest()
    assert refusal(lambda: store.page_digest(13))[:2] == ("ple-store.row", "page")
