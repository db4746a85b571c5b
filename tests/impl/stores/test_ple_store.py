"""PLE rows v1: the published store, exact batches, verified pages, refusals, and the table at its true size."""

import os
import struct
import tempfile
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from assay.impl.stores.expert_major.blocks import BF16, Block
from assay.impl.stores.extents import Filesystem, StoreFile
from assay.impl.stores.ple_rows.layout import PleGeometry, RowCodec
from assay.impl.stores.ple_rows.processes import PageRange, judge_range
from assay.impl.stores.ple_rows.store import PleStore, judge_ple_store
from assay.impl.stores.ple_rows.tables import QWEN4EXP_ROWS, STRUCTURAL, paged, raw_codec
from assay.impl.stores.ple_rows.writer import write_ple_store
from assay.mutations.ple_store import other_store, page_of, sample, with_page
from assay.mutations.store_memory import MemorySystem, memory_extent
from assay.mutations.store_samples import GOLDEN_PLE, golden_ple
from assay.spec.errors import AdmissionError, AssayError, ContractError


def row(number: int) -> bytes:
    """The published rule, written again: byte k of row r is (17 r + 29 k) & 255."""
    return bytes([(17 * number + 29 * k) & 255 for k in range(8)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    golden_ple(tmp_path / "rows")
    return tmp_path / "rows"


def refusal(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(AssayError) as caught:
        call()
    return caught.value.finding.code, caught.value.finding.where


def opened(data: bytes, **options: int) -> PleStore:
    return PleStore.open(memory_extent(data), GOLDEN_PLE, **options)


def test_the_published_store_is_reproduced_bit_for_bit(path: Path) -> None:
    data = path.read_bytes()
    assert len(data) == 57_344
    assert data[344:376].hex() == "cd3b3573e630bfa2e391e0d6c3f1f110308626a7a3cc5e913259b4f46b22b144"
    assert data[376:408].hex() == "82e77d85cb6ed954688aaea50c25096e510bf4f3ec3c37c63f2f875a8f2f3d2f"
    assert struct.unpack_from("<7Q", data, 160) == (13, 4096, 512, 416, 4096, 53_248, 57_344)


def test_opening_reads_the_manifest_and_no_payload() -> None:
    system = MemorySystem(sample())
    extent = StoreFile(1, "memory", system).extent()
    PleStore.open(extent, GOLDEN_PLE)
    assert system.bytes_read == 4096


@given(
    st.lists(st.integers(0, 99), max_size=40),
    st.sampled_from([0, 4096, 3 * 4096, 1 << 20]),
    st.sampled_from([0, 1 << 20]),
)
@settings(max_examples=80, deadline=None)
def test_a_batch_gives_each_row_in_the_order_asked_for(rows: list[int], cache: int, budget: int) -> None:
    store = opened(sample(), cache_bytes=cache, table_budget=budget)
    for _ in range(2):
        assert store.read_rows(rows) == b"".join(row(number) for number in rows)


def test_duplicates_and_neighbours_cost_one_read_of_their_pages() -> None:
    reads: list[tuple[int, int]] = []

    class Counting(MemorySystem):
        def pread(self, descriptor: int, size: int, offset: int) -> bytes:
            reads.append((offset, size))
            return super().pread(descriptor, size, offset)

    store = PleStore.open(StoreFile(1, "memory", Counting(sample())).extent(), GOLDEN_PLE)
    reads.clear()
    store.read_rows([17, 0, 7, 8, 17, 3, 99])
    assert reads == [(4096, 3 * 4096), (4096 + 12 * 4096, 4096)]


def test_pages_verified_once_are_not_read_again_while_the_cache_holds_them() -> None:
    system = MemorySystem(sample())
    store = PleStore.open(StoreFile(1, "memory", system).extent(), GOLDEN_PLE, cache_bytes=2 * 4096)
    store.read_rows([0, 8])
    before = system.bytes_read
    store.read_rows([7, 15, 0])
    assert system.bytes_read == before
    store.read_rows([16])  # pushes out one of the two
    store.read_rows([0, 8])
    assert system.bytes_read == before + 2 * 4096


class CacheMachine(RuleBasedStateMachine):
    """Whatever is asked in whatever order, rows are right and the cache stays in its bound."""

    def __init__(self) -> None:
        super().__init__()
        self.store = opened(sample(), cache_bytes=3 * 4096)

    @rule(rows=st.lists(st.integers(0, 99), min_size=1, max_size=9))
    def read(self, rows: list[int]) -> None:
        assert self.store.read_rows(rows) == b"".join(row(number) for number in rows)

    @rule(number=st.sampled_from([-1, 100, 2**64]))
    def refuse(self, number: int) -> None:
        assert refusal(lambda: self.store.read_rows([1, number])) == ("ple-store.row", "row")

    @invariant()
    def stays_bounded(self) -> None:
        assert len(self.store._cache) <= 3


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)


@pytest.mark.parametrize("number", [-1, 100, 2**63])
def test_a_row_outside_the_table_is_refused(number: int) -> None:
    store = opened(sample())
    assert refusal(lambda: store.read_rows([0, number])) == ("ple-store.row", "row")
    assert refusal(lambda: store.locate_row(number)) == ("ple-store.row", "row")


def test_a_row_is_located_by_arithmetic() -> None:
    store = PleStore.open(memory_extent(bytes(8192) + sample(), 8192), GOLDEN_PLE)
    assert store.locate_row(99) == (12, 3, 8192 + 4096 + 12 * 4096)


def test_a_buffer_of_another_size_is_refused_and_untouched() -> None:
    buffer = bytearray(b"\xa5" * 17)
    assert refusal(lambda: opened(sample()).read_rows([1, 2], buffer)) == ("ple-store.buffer", "into")
    assert buffer == b"\xa5" * 17


def damaged_row() -> bytes:
    page = page_of(sample(), 1)
    return page[:70] + bytes([page[70] ^ 1]) + page[71:]


def test_a_flipped_payload_byte_passes_open_and_fails_every_read_with_the_buffer_untouched() -> None:
    store = opened(with_page(sample(), 1, damaged_row(), "none"))
    buffer = bytearray(b"\xa5" * 16)
    assert refusal(lambda: store.read_rows([0, 9], buffer)) == ("ple-store.page.digest", "pages[1]")
    assert buffer == b"\xa5" * 16
    assert refusal(lambda: store.verify_page(1)) == ("ple-store.page.digest", "pages[1]")
    store.verify_page(0)
    found = store.verify_all().findings
    assert [(one.code, one.where) for one in found] == [
        ("ple-store.page.digest", "pages[1]"),
        ("ple-store.payload-digest", "payload_sha256"),
    ]


def test_only_the_whole_payload_digest_notices_a_page_signed_again() -> None:
    store = opened(with_page(sample(), 1, damaged_row(), "manifest"))
    store.verify_page(1)
    found = store.verify_all().findings
    assert [(one.code, one.where) for one in found] == [("ple-store.payload-digest", "payload_sha256")]


def test_a_page_of_another_store_is_refused_by_its_header() -> None:
    store = opened(with_page(sample(), 1, page_of(other_store(), 1), "all"))
    assert refusal(lambda: store.read_rows([9])) == ("ple-store.page.header", "pages[1].group_size")


def test_a_file_shortened_after_open_fails_the_read(path: Path) -> None:
    with StoreFile.open(path) as file:
        store = PleStore.open(file.extent(), GOLDEN_PLE)
        os.truncate(path, 4096 * 13)
        assert refusal(lambda: store.read_rows([99])) == ("store.file.short", str(path))


def test_a_digest_table_changed_after_open_is_not_trusted(path: Path) -> None:
    with StoreFile.open(path) as file:
        store = PleStore.open(file.extent(), GOLDEN_PLE, table_budget=0)
        with path.open("r+b") as other:
            other.seek(512)
            other.write(bytes(32))
        assert refusal(lambda: store.read_rows([0])) == ("ple-store.table-changed", "pages[0]")


def large_table() -> tuple[bytes, PleGeometry]:
    """A store of 300 pages, whose digest table has three sealed parts."""
    table = replace(GOLDEN_PLE.table, rows=300, primes=(300,), offsets=(0,))
    geometry = PleGeometry(table, GOLDEN_PLE.codec, 1, 4096)
    with tempfile.TemporaryDirectory() as folder:
        write_ple_store(
            Path(folder) / "rows", geometry, lambda first, count: bytes([first % 256] * 8 * count)
        )
        return (Path(folder) / "rows").read_bytes(), geometry


def test_a_table_on_disk_has_the_digests_of_one_in_memory() -> None:
    data, geometry = large_table()
    stores = [PleStore.open(memory_extent(data), geometry, table_budget=budget) for budget in (0, 1 << 20)]
    assert stores[0].table_memory_bytes == 3 * 32
    assert stores[1].table_memory_bytes == 300 * 32
    for first, count in ((0, 300), (0, 1), (127, 2), (128, 1), (255, 45), (299, 1), (5, 0)):
        wanted = data[512 + 32 * first : 512 + 32 * (first + count)]
        assert [one._digests.entries(first, count) for one in stores] == [wanted, wanted]
    assert [one.page_digest(200) for one in stores] == [data[512 + 6400 : 512 + 6432]] * 2


@pytest.mark.parametrize(
    ("changed", "asked", "named"), [(130, (0, 300), 128), (130, (129, 2), 129), (299, (256, 10), 256)]
)
def test_a_changed_part_of_a_table_on_disk_is_named_by_its_first_page(
    changed: int, asked: tuple[int, int], named: int
) -> None:
    data, geometry = large_table()
    system = MemorySystem(data)
    store = PleStore.open(StoreFile(1, "memory", system).extent(), geometry, table_budget=0)
    system.data = data[: 512 + 32 * changed] + bytes(1) + data[512 + 32 * changed + 1 :]
    assert refusal(lambda: store.verify_pages(asked[0], sum(asked))) == (
        "ple-store.table-changed",
        f"pages[{named}]",
    )


def test_verifying_reads_each_part_of_a_table_on_disk_once_a_run() -> None:
    data, geometry = large_table()
    system = MemorySystem(data)
    store = PleStore.open(StoreFile(1, "memory", system).extent(), geometry, table_budget=0)
    before = system.bytes_read
    assert store.verify_pages(0, 300, 1) == []
    assert system.bytes_read - before == 300 * 4096 + 300 * 32


class TwoFaced(Filesystem):
    """Returns right bytes for a page once and other bytes ever after: a check of one read must not bless another."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        data = super().pread(descriptor, size, offset)
        if offset in self.seen and offset >= 4096:
            return data[:70] + b"\xff" * 8 + data[78:]
        self.seen.add(offset)
        return data


def test_rows_come_from_the_very_bytes_that_were_verified(path: Path) -> None:
    with StoreFile.open(path, TwoFaced()) as file:
        store = PleStore.open(file.extent(), GOLDEN_PLE)
        assert store.read_rows([1]) == row(1)
        assert refusal(lambda: store.read_rows([1])) == ("ple-store.page.digest", "pages[0]")


@pytest.mark.parametrize(
    ("change", "code", "where"),
    [
        ({"codec": RowCodec("another", 1, 1, 8)}, "ple-store.codec.match", "codec_id"),
        ({"codec": replace(GOLDEN_PLE.codec, group_size=2)}, "ple-store.codec.match", "group_size"),
        ({"codec": replace(GOLDEN_PLE.codec, row_bytes=16)}, "ple-store.codec.match", "row_bytes"),
        ({"codec": replace(GOLDEN_PLE.codec, version=2)}, "ple-store.codec.match", "codec_version"),
        ({"rows_per_page": 9}, "ple-store.pages", "rows_per_page"),
        ({"page_alignment": 8192}, "ple-store.pages", "page_alignment"),
        ({"table": replace(GOLDEN_PLE.table, width=9)}, "ple-store.table", "width"),
        ({"table": replace(GOLDEN_PLE.table, row_alignment=2)}, "ple-store.table", "row_alignment"),
        ({"table": replace(GOLDEN_PLE.table, family=5)}, "ple-store.family", "family"),
        ({"table": replace(GOLDEN_PLE.table, profile="x")}, "ple-store.profile", "profile"),
        ({"table": replace(GOLDEN_PLE.table, hash_id="x")}, "ple-store.hash-id", "hash_id"),
    ],
)  # fmt: skip
def test_a_caller_with_another_geometry_is_told_which_field_differs(
    change: dict[str, object], code: str, where: str
) -> None:
    _, findings = judge_ple_store(memory_extent(sample()), replace(GOLDEN_PLE, **change))
    assert (code, where) in [(one.code, one.where) for one in findings]


@pytest.mark.parametrize(
    ("geometry", "code", "where"),
    [
        (replace(GOLDEN_PLE, page_alignment=6000), "ple-store.page-alignment", "page_alignment"),
        (replace(GOLDEN_PLE, page_alignment=2048), "ple-store.page-alignment", "page_alignment"),
        (replace(GOLDEN_PLE, rows_per_page=0), "ple-store.extent", "rows_per_page"),
        (replace(GOLDEN_PLE, table=replace(GOLDEN_PLE.table, rows=2**64 - 1)), "ple-store.rows", "rows"),
        (replace(GOLDEN_PLE, table=replace(GOLDEN_PLE.table, rows=99)), "ple-store.rows", "rows"),
        (replace(GOLDEN_PLE, table=replace(GOLDEN_PLE.table, rows=104)), "ple-store.rows", "rows"),
        (replace(GOLDEN_PLE, table=replace(GOLDEN_PLE.table, row_alignment=3)), "ple-store.row-alignment", "row_alignment"),
        (replace(GOLDEN_PLE, table=replace(GOLDEN_PLE.table, primes=(0, *GOLDEN_PLE.table.primes[1:]))), "ple-store.heads", "primes[0]"),
        (replace(GOLDEN_PLE, codec=replace(GOLDEN_PLE.codec, id="")), "ple-store.codec", "codec.id"),
        (replace(GOLDEN_PLE, codec=replace(GOLDEN_PLE.codec, id="x" * 32)), "ple-store.codec", "codec.id"),
        (replace(GOLDEN_PLE, codec=replace(GOLDEN_PLE.codec, row_bytes=0)), "ple-store.codec", "codec.row_bytes"),
        (PleGeometry(QWEN4EXP_ROWS, RowCodec("x", 1, 1, 2**32 - 1), 1, 1 << 40), "ple-store.extent", "store_bytes"),
    ],
)  # fmt: skip
def test_an_unusable_geometry_is_refused_before_anything_is_written(
    geometry: PleGeometry, code: str, where: str, tmp_path: Path
) -> None:
    with pytest.raises(ContractError) as caught:
        write_ple_store(tmp_path / "rows", geometry, lambda _, count: bytes(count))
    assert (caught.value.finding.code, caught.value.finding.where) == (code, where)
    assert list(tmp_path.iterdir()) == []


def test_an_encoder_that_fails_at_row_17_keeps_the_old_target(path: Path) -> None:
    old = path.read_bytes()

    def encode(first: int, count: int) -> bytes:
        if first <= 17 < first + count:
            raise RuntimeError("row 17")
        return bytes(8 * count)

    with pytest.raises(RuntimeError, match="row 17"):
        write_ple_store(path, GOLDEN_PLE, encode)
    assert path.read_bytes() == old
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_an_encoder_that_hands_over_too_little_is_refused(tmp_path: Path) -> None:
    assert refusal(
        lambda: write_ple_store(tmp_path / "rows", GOLDEN_PLE, lambda _, count: bytes(8 * count - 1))
    ) == (
        "ple-store.supply",
        "rows 0..7",
    )


@pytest.mark.parametrize("rows", [[0] * 64, "x" * 64, None, memoryview(bytes(128))[::2]], ids=["list", "text", "None", "strided"])  # fmt: skip
def test_an_encoder_that_hands_over_no_contiguous_buffer_is_refused(rows: object, tmp_path: Path) -> None:
    assert refusal(lambda: write_ple_store(tmp_path / "rows", GOLDEN_PLE, lambda *_: rows)) == (
        "ple-store.supply",
        "rows 0..7",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("page", [-1, 13, 1.0, None])
def test_a_stand_in_has_pages_of_its_store(page: object, tmp_path: Path) -> None:
    assert refusal(
        lambda: write_ple_store(
            tmp_path / "rows", GOLDEN_PLE, lambda _, count: bytes(8 * count), only_pages=[page]
        )
    ) == ("ple-store.row", "only_pages")
    assert list(tmp_path.iterdir()) == []


def test_page_digests_resume_and_the_payload_digest_starts_anew() -> None:
    data = with_page(sample(), 1, damaged_row(), "none")
    found = opened(data).verify_all(judged_before=2)
    assert found.pages_judged == 11
    assert [(one.code, one.where) for one in found.findings] == [
        ("ple-store.page.digest", "pages[1]"),
        ("ple-store.payload-digest", "payload_sha256"),
    ]
    assert found.bad_pages == 1


@pytest.mark.parametrize("pages", [-1, 14])
def test_a_resumption_beyond_the_table_is_refused(pages: int) -> None:
    with pytest.raises(ContractError) as caught:
        opened(sample()).verify_all(judged_before=pages)
    assert (caught.value.finding.code, caught.value.finding.where) == ("ple-store.row", "judged_before")


@pytest.mark.parametrize(("first", "stop"), [(-3, 2), (0, 14), (5, 2)])
def test_a_range_of_pages_outside_the_table_is_refused(first: int, stop: int) -> None:
    with pytest.raises(ContractError) as caught:
        opened(sample()).verify_pages(first, stop)
    assert (caught.value.finding.code, caught.value.finding.where) == ("ple-store.row", "pages")


def test_a_row_codec_must_cover_the_row() -> None:
    """Bug report A31: a 160-wide row with group 64 is refused, with group 32 it is not."""
    assert refusal(lambda: raw_codec("affine", Block(12, "g64", 64, 36), 160))[0] == "codec.blocks.cover"
    assert raw_codec("affine", Block(12, "g32", 32, 20), 160).row_bytes == 100


def test_the_structural_fixture_has_its_published_sizes() -> None:
    assert (STRUCTURAL.page_stride, STRUCTURAL.payload_offset, STRUCTURAL.store_bytes) == (
        102_400_495_616,
        4096,
        102_400_499_712,
    )


def test_the_structural_fixture_opens_but_no_page_of_it_is_read_whole(tmp_path: Path) -> None:
    write_ple_store(tmp_path / "rows", STRUCTURAL, None)
    assert (tmp_path / "rows").stat().st_size == 102_400_499_712
    with StoreFile.open(tmp_path / "rows") as file:
        store = PleStore.open(file.extent(), STRUCTURAL)
        assert refusal(lambda: store.read_rows([0])) == ("ple-store.page.size", str(tmp_path / "rows"))
        assert refusal(store.verify_all) == ("ple-store.page.size", str(tmp_path / "rows"))


@pytest.mark.slow
def test_the_table_at_its_true_size_opens_and_reads_in_bounded_memory(tmp_path: Path) -> None:
    """320,001,536 rows in 64 KiB pages: a sparse stand-in with real first, middle and last pages."""
    geometry = paged(QWEN4EXP_ROWS, raw_codec("bf16", BF16, 160), 65536)
    last = geometry.page_count - 1
    pages = {0, last // 2, last}

    def encode(first: int, count: int) -> bytes:
        return b"".join(
            struct.pack("<Q", number).ljust(320, b"\x11") for number in range(first, first + count)
        )

    write_ple_store(tmp_path / "rows", geometry, encode, only_pages=pages)
    assert (tmp_path / "rows").stat().st_size == geometry.store_bytes > 102_400_000_000
    assert (tmp_path / "rows").stat().st_blocks * 512 < 64 << 20
    tracemalloc.start()
    with StoreFile.open(tmp_path / "rows") as file:
        store = PleStore.open(file.extent(), geometry, table_budget=0)
        rows = [320_001_535, 0, (last // 2) * geometry.rows_per_page + 5]
        got = store.read_rows(rows)
        assert [struct.unpack_from("<Q", got, 320 * place)[0] for place in range(3)] == rows
        hole = geometry.rows_per_page
        assert refusal(lambda: store.read_rows([hole])) == ("ple-store.page.header", "pages[1].magic")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 24 << 20


def test_pages_of_a_given_size_hold_as_many_rows_as_fit() -> None:
    codec = raw_codec("bf16", BF16, 160)
    assert [paged(QWEN4EXP_ROWS, codec, size).rows_per_page for size in (4096, 16384, 65536)] == [12, 51, 204]
    assert refusal(lambda: paged(QWEN4EXP_ROWS, codec, 256)) == ("ple-store.page.room", "page_bytes")


def test_an_error_names_the_row_bounds() -> None:
    with pytest.raises(ContractError) as caught:
        opened(sample()).read_rows([100])
    assert caught.value.finding.line == "ple-store.row: row: expected 0..99, got 100"


def test_verifying_a_range_of_pages_finds_only_its_own() -> None:
    data = with_page(sample(), 1, damaged_row(), "none")
    assert opened(data).verify_pages(2, 13) == []
    assert [one.where for one in opened(data).verify_pages(0, 2)] == ["pages[1]"]
    with pytest.raises(AdmissionError):
        opened(data[:-1])


@pytest.mark.slow
def test_processes_find_what_threads_find(path: Path) -> None:
    path.write_bytes(with_page(sample(), 1, damaged_row(), "none"))
    with StoreFile.open(path) as file:
        store = PleStore.open(file.extent(), GOLDEN_PLE)
        seen: list[tuple[int, int]] = []
        apart = store.verify_all(jobs=2, progress=lambda *done: seen.append(done))
        assert apart == store.verify_all(jobs=1)
        assert store.verify_pages(0, 3, jobs=2) == store.verify_pages(0, 3) == list(apart.findings[:1])
    assert [one.where for one in apart.findings] == ["pages[1]", "payload_sha256"]
    assert seen[-1] == (53_248, 53_248)


def test_a_process_refuses_a_file_that_is_no_longer_the_one(path: Path) -> None:
    with StoreFile.open(path) as file:
        pages = PageRange(str(path), file.identity, 4096, 0, bytes(32), GOLDEN_PLE)
        assert judge_range(pages).bad == 1
        with path.open("ab") as other:
            other.write(b"x")
        assert refusal(lambda: judge_range(pages)) == ("store.file.changed", str(path))
