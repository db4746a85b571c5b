"""The published negative lists, each by its byte offset: nothing of the writers or their layout is used to damage.

A store is written, its bytes are changed where the published tables say the field lies, and signed again here, by the
published digest domains. Each must stop at its clause and its field, and nothing else may be said of it than follows.
"""

import hashlib
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.impl.stores.expert_major.blocks import AFFINE4
from assay.impl.stores.expert_major.families import QWEN4EXP
from assay.impl.stores.expert_major.layout import Source, Storage, plan_manifest
from assay.impl.stores.expert_major.store import judge_expert_store
from assay.impl.stores.expert_major.writer import write_expert_store
from assay.impl.stores.extents import StoreFile
from assay.impl.stores.ple_rows.store import PleStore, judge_ple_store
from assay.mutations.store_memory import memory_extent
from assay.mutations.store_samples import GOLDEN_PLE, golden_ple
from assay.spec.errors import AssayError

Change = Callable[[bytearray], None]
Found = list[tuple[str, str]]


def put(offset: int, form: str, value: float) -> Change:
    return lambda data: struct.pack_into(f"<{form}", data, offset, value)


def xor(offset: int, bits: int) -> Change:
    def change(data: bytearray) -> None:
        data[offset] ^= bits

    return change


def text(offset: int, value: bytes) -> Change:
    def change(data: bytearray) -> None:
        data[offset : offset + 32] = value.ljust(32, b"\0")

    return change


# --- PLE rows v1 ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("rows") / "rows"
    golden_ple(path)
    return path.read_bytes()


def sign_rows(data: bytearray) -> None:
    """Header with bytes 376..407 zeroed, then digest table and padding up to the payload at 4096."""
    cleared = data[:376] + bytes(32) + data[408:512]
    data[376:408] = hashlib.sha256(cleared + data[512:4096]).digest()


def rows_findings(data: bytes, start: int = 0, size: int | None = None) -> Found:
    _, found = judge_ple_store(memory_extent(data, start, size), GOLDEN_PLE)
    return [(one.code.removeprefix("ple-store."), one.where) for one in found]


HEADER: dict[str, tuple[Change, Found]] = {
    "version 2": (put(8, "I", 2), [("version", "version")]),
    "family 3": (put(16, "I", 3), [("family", "family")]),
    "profile byte": (xor(24, 1), [("profile", "profile")]),
    "hash byte": (xor(56, 1), [("hash-id", "hash_id")]),
    "hash id of version 2": (text(56, b"SplitMix64-Qwen4Exp-v2"), [("hash-id", "hash_id")]),
    "codec byte": (xor(88, 1), [("codec.match", "codec_id")]),
    "row bytes 2^32 - 1": (put(128, "I", 2**32 - 1), [("codec.match", "row_bytes")]),
    "page alignment 2048": (put(136, "I", 2048), [("pages", "page_alignment")]),
    "row count 99": (put(144, "Q", 99), [("table", "rows")]),
    "row count 104": (put(144, "Q", 104), [("table", "rows")]),
    "rows - 128": (put(144, "q", 100 - 128), [("table", "rows")]),
    "row width + 1": (put(152, "I", 9), [("table", "width")]),
    "row alignment 8": (put(156, "I", 8), [("table", "row_alignment")]),
    "page count 2^64 - 1": (put(160, "Q", 2**64 - 1), [("derived", "page_count")]),
    "page stride 2^64 - 1": (put(168, "Q", 2**64 - 1), [("derived", "page_stride")]),
    "page stride + 4096": (put(168, "Q", 8192), [("derived", "page_stride")]),
    "prime[1] = 0": (put(216 + 4, "I", 0), [("heads.match", "primes[1]")]),
    "prime[7] + 2": (put(216 + 28, "I", 7), [("heads.match", "primes[7]")]),
    "offset[7] + 1": (put(280 + 28, "I", 36), [("heads.match", "offsets[7]")]),
    "a reserved byte": (put(511, "B", 1), [("reserved", "reserved")]),
}


@pytest.mark.parametrize("name", HEADER)
def test_a_changed_header_that_is_signed_again_stops_at_its_field(name: str, rows: bytes) -> None:
    change, wanted = HEADER[name]
    data = bytearray(rows)
    change(data)
    sign_rows(data)
    assert rows_findings(bytes(data)) == wanted


@pytest.mark.parametrize("offset", [376, 512], ids=["manifest digest", "digest table"])
def test_a_bit_of_digest_or_table_that_is_not_signed_again_is_the_manifest_digest(
    offset: int, rows: bytes
) -> None:
    data = bytearray(rows)
    xor(offset, 0x40)(data)
    assert rows_findings(bytes(data)) == [("manifest-digest", "manifest_sha256")]


@pytest.mark.parametrize(
    ("start", "size", "wanted"),
    [
        (0, 57_344 + 1, [("derived", "extent")]),
        (1, 57_344, [("magic", "magic"), ("store-alignment", "store offset")]),
        (0, 57_344 - 4096, [("derived", "extent")]),
    ],
)
def test_an_extent_that_is_not_the_store_is_refused(
    start: int, size: int, wanted: Found, rows: bytes
) -> None:
    assert sorted(rows_findings(rows + b"\0", start, size)) == wanted


@pytest.mark.parametrize("by", [1, 32, 4097])
def test_a_store_that_starts_inside_a_page_is_refused(by: int, rows: bytes) -> None:
    assert rows_findings(bytes(by) + rows, by) == [("store-alignment", "store offset")]


def test_a_pipe_is_no_store(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(AssayError) as caught:
        StoreFile.open(tmp_path / "pipe")
    assert caught.value.finding.code == "store.file.open"


@pytest.mark.parametrize(
    ("page", "offset", "field"), [(3, 36, "width"), (1, 52, "group_size"), (12, 56, "family")]
)
def test_a_changed_page_header_with_every_digest_made_again_is_refused_when_read(
    page: int, offset: int, field: str, rows: bytes
) -> None:
    data = bytearray(rows)
    start = 4096 + 4096 * page
    xor(start + offset, 1)(data)
    data[512 + 32 * page : 544 + 32 * page] = hashlib.sha256(data[start : start + 4096]).digest()
    data[344:376] = hashlib.sha256(data[4096:]).digest()
    sign_rows(data)
    store = PleStore.open(memory_extent(bytes(data)), GOLDEN_PLE)
    for read in (lambda: store.verify_page(page), lambda: store.read_rows([8 * page])):
        with pytest.raises(AssayError) as caught:
            read()
        found = caught.value.finding
        assert (found.code, found.where) == ("ple-store.page.header", f"pages[{page}].{field}")
    found_all = [(one.code, one.where) for one in store.verify_all().findings]
    assert found_all == [("ple-store.page.header", f"pages[{page}].{field}")]


# --- ExpertMajor v2, family 4 at its true size ----------------------------------------------------


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The public family at its true size, sparse: header and descriptors before a hole."""
    path = tmp_path_factory.mktemp("experts") / "store"
    geometry = QWEN4EXP.geometry
    assert geometry is not None
    manifest = plan_manifest(
        4, Storage.MLX_AFFINE4, experts=512, used=10, layers=geometry.shapes(AFFINE4),
        source=Source(1658, 359_999_963_128, bytes(32)),
    )  # fmt: skip
    write_expert_store(path, manifest, QWEN4EXP, None)
    return path


DESCRIPTORS_END = 256 + 48 * 224


def experts_findings(path: Path, change: Change, *, signed: bool = True) -> Found:
    """Changes header and descriptors in place, judges, and puts them back."""
    with path.open("rb") as file:
        right = file.read(DESCRIPTORS_END)
    data = bytearray(right)
    change(data)
    if signed:
        layers = min(struct.unpack_from("<I", data, 24)[0], 48)
        table = data[: 256 + 224 * layers]
        data[168:200] = hashlib.sha256(table[:168] + bytes(32) + table[200:]).digest()
    try:
        with path.open("r+b") as file:
            file.write(data)
        with StoreFile.open(path) as file:
            _, found = judge_expert_store(file.extent(), QWEN4EXP)
    finally:
        with path.open("r+b") as file:
            file.write(right)
    return [(one.code.removeprefix("expert-store."), one.where) for one in found]


def component(layer: int, role: int) -> int:
    return 256 + 224 * layer + 32 + 56 * role


def exchanged(first: int, second: int, size: int) -> Change:
    def change(data: bytearray) -> None:
        one, other = data[first : first + size], data[second : second + size]
        data[first : first + size], data[second : second + size] = other, one

    return change


FAMILY_4: dict[str, tuple[Change, tuple[str, str]]] = {
    "version 3": (put(8, "I", 3), ("version", "version")),
    "family 3": (put(16, "I", 3), ("family", "family")),
    "used 9": (put(20, "I", 9), ("experts-used", "experts_used")),
    "layer count 47": (put(24, "I", 47), ("layers", "layer_count")),
    "expert count 511": (put(28, "I", 511), ("experts", "expert_count")),
    "storage 0": (put(160, "I", 0), ("storage", "storage")),
    "two layer ids exchanged": (exchanged(256, 256 + 224, 4), ("layer.id", "layers[0].layer_id")),
    "gate of hidden 2304": (put(component(0, 0) + 16, "Q", 2304), ("layer.geometry", "layers[0].gate.dimensions")),
    "up of hidden 2304": (put(component(0, 1) + 16, "Q", 2304), ("layer.geometry", "layers[0].up.dimensions")),
    "down of hidden 2304": (put(component(0, 2) + 24, "Q", 2304), ("layer.geometry", "layers[0].down.dimensions")),
    "gate of width 2496": (put(component(0, 0) + 16, "Q", 2496), ("layer.geometry", "layers[0].gate.dimensions")),
    "role order": (exchanged(component(0, 0), component(0, 1), 4), ("component.role", "layers[0].gate.role")),
    "block of 256": (put(component(0, 0) + 12, "I", 256), ("component.block", "layers[0].gate.block_elements")),
    "dim0 of 2^64 - 64": (put(component(0, 0) + 16, "Q", 2**64 - 64), ("component.bytes", "layers[0].gate.expert_bytes")),
    "record offset 36": (put(component(0, 0) + 48, "Q", 36), ("component.offset", "layers[0].gate.record_offset")),
    "component bytes + 36": (put(component(0, 0) + 40, "Q", 921_636), ("component.bytes", "layers[0].gate.expert_bytes")),
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILY_4)
def test_family_4_stops_at_each_published_change(name: str, experts: Path) -> None:
    change, wanted = FAMILY_4[name]
    assert wanted in experts_findings(experts, change)


def test_family_4_as_it_was_written_has_nothing_wrong(experts: Path) -> None:
    assert experts_findings(experts, lambda _: None) == []


@pytest.mark.parametrize(
    ("offset", "bits"), [(168, 0x80), (256 + 9, 0x80)], ids=["digest", "descriptor byte 9"]
)
def test_a_broken_manifest_digest_of_family_4_is_found(offset: int, bits: int, experts: Path) -> None:
    found = experts_findings(experts, xor(offset, bits), signed=False)
    assert ("manifest-digest", "manifest_sha256") in found


def test_family_4_shortened_by_a_page_is_refused(experts: Path) -> None:
    size = experts.stat().st_size
    with StoreFile.open(experts) as file:
        _, found = judge_expert_store(file.extent(0, size - 4096), QWEN4EXP)
    assert ("expert-store.data", "store_bytes") in [(one.code, one.where) for one in found]
