"""ExpertMajor v2: published files of families 1 to 3, family 4 at its exact geometry, records, refusals."""

import contextlib
import hashlib
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.impl.stores.expert_major.blocks import AFFINE4, AFFINE4_WIDE, BF16, F32, GGML
from assay.impl.stores.expert_major.families import (
    PUBLIC,
    QWEN4EXP,
    ExpertFamily,
    ExpertGeometry,
    private_expert_family,
)
from assay.impl.stores.expert_major.layout import (
    Layer,
    LayerShape,
    Manifest,
    Source,
    Storage,
    manifest_digest,
    pack_manifest,
    plan_manifest,
    sign,
)
from assay.impl.stores.expert_major.repack import repack
from assay.impl.stores.expert_major.rules import ExpectedSource
from assay.impl.stores.expert_major.store import ExpertStore, RecordDigests, judge_expert_store
from assay.impl.stores.expert_major.writer import write_expert_store
from assay.impl.stores.extents import Filesystem, StoreFile
from assay.impl.stores.gguf.reader import Entry, read_gguf
from assay.impl.stores.gguf.values import ValueType, scalar
from assay.impl.stores.gguf.writer import Planned, plan_gguf, write_gguf
from assay.mutations.expert_store import sample
from assay.mutations.store_memory import memory_extent
from assay.mutations.store_samples import (
    SMALL_FAMILY,
    canonical_gguf,
    native_gguf,
    sample_bytes,
    small_component,
    small_manifest,
)
from assay.spec.errors import AssayError, ContractError

SOURCE = Source(
    1658, 359_999_963_128, bytes.fromhex("a639efc7a5147b04200e870d7e320335527f4361a8327b137feca2683b1dc434")
)


def refusal(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(AssayError) as caught:
        call()
    return caught.value.finding.code, caught.value.finding.where


def family4(**changes: object) -> Manifest:
    manifest = plan_manifest(
        4, Storage.MLX_AFFINE4, experts=512, used=10, layers=QWEN4EXP.geometry.shapes(AFFINE4), source=SOURCE
    )
    return replace(manifest, header=replace(manifest.header, **changes))


def with_component(manifest: Manifest, slot: int, role: int, **changes: object) -> Manifest:
    layers = list(manifest.layers)
    parts = list(layers[slot].components)
    parts[role] = replace(parts[role], **changes)
    layers[slot] = replace(layers[slot], components=tuple(parts))
    return replace(manifest, layers=tuple(layers))


def sparse_findings(
    manifest: Manifest, family: ExpertFamily, tmp_path: Path, *, signed: bool = True
) -> list[tuple[str, str]]:
    """Writes header and descriptors before a hole of the declared size and judges the store."""
    table = bytearray(pack_manifest(manifest))
    if signed:
        table[168:200] = manifest_digest(bytes(table))
    target = tmp_path / "store"
    target.write_bytes(table)
    os.truncate(target, 67_947_737_088)
    with StoreFile.open(target) as file:
        _, findings = judge_expert_store(file.extent(), family)
    return [(one.code, one.where) for one in findings]


@pytest.mark.parametrize(
    ("architecture", "source", "native", "sizes"),
    [
        ("deepseek4", "d059e0a1572cc1ebdab0c01e7efc720d8660d294d9836180c5393c5880b1ccc3", "89f8818ca36e6cf8db88eb1ba54cfd310e60acec58e67aba23468fe0d056f33e", (498_432, 504_192, 503_808)),
        ("glm-dsa", None, None, (625_984, 632_768, 632_320)),
        ("qwen35moe", "645d00e4774324c1ee37129690094c9e7fac1c391c661aadb1d131914eaf9be8", "ba1ebc3860538b0f088848f5e76e680c4d4aa05084399487c1e36691269c0ce8", (444_672, 451_968, 451_584)),
    ],
)  # fmt: skip
def test_published_files_are_reproduced_bit_for_bit(
    architecture: str, source: str | None, native: str | None, sizes: tuple[int, int, int], tmp_path: Path
) -> None:
    paths = native_gguf(tmp_path, architecture)
    data = [path.read_bytes() for path in paths]
    with StoreFile.open(paths[1]) as file:
        store = read_gguf(file.extent()).tensors[-1]
    assert (len(data[0]), len(data[1]), store.bytes) == sizes
    for one, digest in zip(data, (source, native), strict=True):
        assert digest in {None, hashlib.sha256(one).hexdigest()}


def test_family_4_has_its_published_sizes() -> None:
    manifest = family4()
    assert manifest.header.data_offset == 12_288
    assert manifest.header.store_bytes == 67_947_737_088
    assert [one.expert_bytes for one in manifest.layers[0].components] == [921_600] * 3
    assert [one.record_offset for one in manifest.layers[0].components] == [0, 921_600, 1_843_200]
    assert manifest.layers[47].data_offset == 12_288 + 47 * 1_415_577_600


def test_family_4_at_its_true_size_is_written_and_opened_without_its_payload(tmp_path: Path) -> None:
    target = tmp_path / "store"
    write_expert_store(target, family4(), QWEN4EXP, None)
    assert target.stat().st_size == 67_947_737_088
    assert target.stat().st_blocks * 512 < 1 << 20
    with StoreFile.open(target) as file:
        store = ExpertStore.open(
            file.extent(), QWEN4EXP, ExpectedSource(1658, 359_999_963_128, SOURCE.sha256)
        )
        assert store.locate(47, 511, 2) == (67_947_737_088 - 921_600, 921_600)
        assert store.read_record(3, 4).data == bytes(2_764_800)
        assert refusal(lambda: store.read_record(0, 512)) == ("expert-store.place", "layer 0 expert")
        assert refusal(lambda: store.layer(48)) == ("expert-store.place", "layer")
        assert refusal(lambda: store.locate(0, 0, 3)) == ("expert-store.place", "role")
        record = store.read_record(0, 0)
        for role in (-1, 3):
            assert refusal(lambda role=role: record.component(role)) == ("expert-store.place", "role")


def roles_exchanged(manifest: Manifest) -> Manifest:
    first = manifest.layers[0]
    gate, up, down = first.components
    return replace(manifest, layers=(replace(first, components=(up, gate, down)), *manifest.layers[1:]))


def ids_exchanged(manifest: Manifest) -> Manifest:
    one, other, *rest = manifest.layers
    return replace(manifest, layers=(replace(one, layer_id=1), replace(other, layer_id=0), *rest))


HIDDEN_2304 = {"dimensions": (2304, 640, 512), "expert_bytes": 2304 // 64 * 36 * 640}
DOWN_2304 = {"dimensions": (640, 2304, 512), "expert_bytes": 10 * 36 * 2304}


@pytest.mark.parametrize(
    ("change", "code", "where"),
    [
        (lambda m: replace(m, header=replace(m.header, layer_count=47)), "layers", "layer_count"),
        (lambda m: replace(m, header=replace(m.header, expert_count=511)), "experts", "expert_count"),
        (lambda m: replace(m, header=replace(m.header, experts_used=9)), "experts-used", "experts_used"),
        (ids_exchanged, "layer.id", "layers[0].layer_id"),
        (lambda m: replace(m, header=replace(m.header, storage=0)), "storage", "storage"),
        (lambda m: with_component(m, 0, 0, **HIDDEN_2304), "layer.geometry", "layers[0].gate.dimensions"),
        (lambda m: with_component(m, 0, 1, **HIDDEN_2304), "layer.geometry", "layers[0].up.dimensions"),
        (lambda m: with_component(m, 0, 2, **DOWN_2304), "layer.geometry", "layers[0].down.dimensions"),
        (roles_exchanged, "component.role", "layers[0].gate.role"),
        (lambda m: with_component(m, 0, 0, block_elements=256), "component.block", "layers[0].gate.block_elements"),
        (lambda m: with_component(m, 0, 0, dimensions=(2**64 - 64, 640, 512)), "component.bytes", "layers[0].gate.expert_bytes"),
        (lambda m: with_component(m, 0, 0, record_offset=36), "component.offset", "layers[0].gate.record_offset"),
        (lambda m: with_component(m, 0, 0, expert_bytes=921_636), "component.bytes", "layers[0].gate.expert_bytes"),
        (lambda m: replace(m, header=replace(m.header, family=3)), "family", "family"),
        (lambda m: replace(m, header=replace(m.header, version=3)), "version", "version"),
    ],
)  # fmt: skip
def test_family_4_refuses_each_published_negative(
    change: Callable[[Manifest], Manifest], code: str, where: str, tmp_path: Path
) -> None:
    assert sparse_findings(family4(), QWEN4EXP, tmp_path) == []
    assert (f"expert-store.{code}", where) in sparse_findings(change(family4()), QWEN4EXP, tmp_path)


def test_a_broken_manifest_digest_is_the_only_finding(tmp_path: Path) -> None:
    signed = sign(family4(), bytes(32))
    broken = bytes([signed.header.manifest_sha256[0] ^ 0x80]) + signed.header.manifest_sha256[1:]
    manifest = replace(signed, header=replace(signed.header, manifest_sha256=broken))
    assert sparse_findings(manifest, QWEN4EXP, tmp_path, signed=False) == [
        ("expert-store.manifest-digest", "manifest_sha256")
    ]


def test_a_descriptor_byte_changed_without_a_new_digest_is_refused() -> None:
    data = bytearray(sample())
    data[256 + 9] ^= 0x80
    _, findings = judge_expert_store(memory_extent(bytes(data)), SMALL_FAMILY)
    assert ("expert-store.manifest-digest", "manifest_sha256") in [(one.code, one.where) for one in findings]


def test_a_store_shortened_by_a_page_is_refused() -> None:
    _, findings = judge_expert_store(memory_extent(sample()[:-4096]), SMALL_FAMILY)
    assert [(one.code, one.where) for one in findings] == [("expert-store.data", "store_bytes")]


@pytest.mark.parametrize("family", [1, 2, 3, 4])
def test_a_store_is_refused_as_any_other_family(family: int) -> None:
    _, findings = judge_expert_store(memory_extent(sample()), PUBLIC[family])
    assert ("expert-store.family", "family") in [(one.code, one.where) for one in findings]


def test_family_3_states_wide_blocks_and_family_4_narrow_ones() -> None:
    """Converter negatives: family 4 with block 256, family 3 with block 64; both have the same bytes."""
    assert AFFINE4.bytes * 4 == AFFINE4_WIDE.bytes
    for number, right, wrong in ((3, AFFINE4_WIDE, AFFINE4), (4, AFFINE4, AFFINE4_WIDE)):
        assert PUBLIC[number].affine_block == right != wrong


def test_a_256_value_block_can_not_cover_the_640_wide_row() -> None:
    shapes = QWEN4EXP.geometry.shapes(GGML[12])
    assert refusal(
        lambda: plan_manifest(4, Storage.GGML, experts=512, used=10, layers=shapes, source=SOURCE)
    ) == ("codec.blocks.cover", "layer 0 down")


@pytest.mark.parametrize("block", [F32, BF16], ids=["F32", "BF16"])
def test_private_families_keep_plain_values(block: object, tmp_path: Path) -> None:
    geometry = ExpertGeometry(2, 3, 1, 8, 4)
    family = private_expert_family(0x80000003, "assay-plain-v1", geometry)
    manifest = plan_manifest(
        family.id,
        Storage.GGML,
        experts=3,
        used=1,
        layers=geometry.shapes(block),
        source=Source(9, 9, bytes(32)),
    )
    write_expert_store(tmp_path / "store", manifest, family, small_component)
    with StoreFile.open(tmp_path / "store") as file:
        record = ExpertStore.open(file.extent(), family).read_record(1, 2)
    size = 8 * 4 * block.bytes
    assert [bytes(record.component(role)) for role in range(3)] == [
        sample_bytes(1, role, 2, size) for role in range(3)
    ]


@pytest.mark.parametrize("number", [0, 4, 2**31 - 1, 2**32, 2.0**31, True])
def test_a_private_family_has_a_private_id(number: int) -> None:
    with pytest.raises(ContractError) as caught:
        private_expert_family(number, "x", None)
    assert (caught.value.finding.code, caught.value.finding.where) == (
        "expert-store.private-family",
        "family",
    )


def small(path: Path) -> RecordDigests:
    digests = write_expert_store(path, small_manifest(), SMALL_FAMILY, small_component)
    assert digests is not None
    return digests


def test_a_record_carries_weights_scales_and_biases_of_its_own_expert(tmp_path: Path) -> None:
    """Bug report A24: expert e has scale e + 1; expert 9 must come with 10, wherever it is put."""
    geometry = ExpertGeometry(1, 12, 2, 64, 64)
    family = private_expert_family(0x80000004, "assay-scales-v1", geometry)

    def component(layer: object, role: int, expert: int) -> bytes:
        scale = struct.pack("<f", expert + 1)[2:]
        return (bytes(32) + scale + bytes(2)) * 64

    manifest = plan_manifest(
        family.id,
        Storage.MLX_AFFINE4,
        experts=12,
        used=2,
        layers=geometry.shapes(AFFINE4),
        source=Source(9, 9, bytes(32)),
    )
    write_expert_store(tmp_path / "store", manifest, family, component)
    with StoreFile.open(tmp_path / "store") as file:
        store = ExpertStore.open(file.extent(), family)
        for record in store.read_records([(0, expert) for expert in (1, 2, 3, 9)]):
            (scale,) = struct.unpack("<f", bytes(2) + bytes(record.component(2)[32:34]))
            assert scale == record.expert + 1


def test_a_record_in_hand_does_not_change_when_others_are_read(tmp_path: Path) -> None:
    """Bug report A23, store side: no buffer is handed out twice."""
    small(tmp_path / "store")
    with StoreFile.open(tmp_path / "store") as file:
        store = ExpertStore.open(file.extent(), SMALL_FAMILY)
        held = list(store.read_records([(layer, expert) for layer in range(3) for expert in range(4)]))
    for record in held:
        for role in range(3):
            wanted = sample_bytes(record.layer_id, role, record.expert, 4608)
            assert record.component(role) == wanted


@pytest.mark.parametrize("threads", [1, 3])
def test_records_come_in_the_order_asked_for(threads: int, tmp_path: Path) -> None:
    small(tmp_path / "store")
    places = [(2, 3), (0, 0), (1, 2), (0, 0), (2, 1)] * 4
    with StoreFile.open(tmp_path / "store") as file:
        store = ExpertStore.open(file.extent(), SMALL_FAMILY)
        got = [(one.layer_id, one.expert) for one in store.read_records(places, threads)]
    assert got == places


@pytest.mark.parametrize("threads", [1, 3])
def test_a_record_that_does_not_exist_is_refused_in_its_turn(threads: int, tmp_path: Path) -> None:
    small(tmp_path / "store")
    with StoreFile.open(tmp_path / "store") as file:
        records = ExpertStore.open(file.extent(), SMALL_FAMILY).read_records([(0, 0), (0, 9)], threads)
        assert next(records).expert == 0
        assert refusal(lambda: next(records)) == ("expert-store.place", "layer 0 expert")


@pytest.mark.parametrize("places", [None, 3, [3], [(1,)], [(0, 0, 0)], ["ab"], [None]], ids=repr)
def test_what_is_no_pair_of_layer_and_expert_is_refused(places: object) -> None:
    store = ExpertStore.open(memory_extent(sample()), SMALL_FAMILY)
    assert refusal(lambda: list(store.read_records(places))) == ("expert-store.place", "places")


@pytest.mark.parametrize("threads", [0, -1, 1.5, None])
def test_a_number_of_threads_is_at_least_one(threads: object) -> None:
    store = ExpertStore.open(memory_extent(sample()), SMALL_FAMILY)
    assert refusal(lambda: list(store.read_records([(0, 0)], threads))) == ("store.bound", "threads")
    assert refusal(lambda: store.verify_all(threads)) == ("store.bound", "threads")


def test_the_disk_is_told_of_records_before_they_are_read(tmp_path: Path) -> None:
    small(tmp_path / "store")
    told: list[tuple[int, int]] = []

    class Told(Filesystem):
        def will_need(self, descriptor: int, offset: int, size: int) -> None:
            del descriptor
            told.append((offset, size))

        def pread(self, descriptor: int, size: int, offset: int) -> bytes:
            assert size < 13_824 or (offset, size) in told
            return super().pread(descriptor, size, offset)

    with StoreFile.open(tmp_path / "store", Told()) as file:
        store = ExpertStore.open(file.extent(), SMALL_FAMILY)
        places = [(2, 1), (0, 3), (1, 0)]
        assert len(list(store.read_records(places))) == 3
        assert told == [store.locate_record(*place) for place in places]


def test_a_record_is_labelled_unverified_without_digests_and_verified_with_them(tmp_path: Path) -> None:
    digests = small(tmp_path / "store")
    with StoreFile.open(tmp_path / "store") as file:
        store = ExpertStore.open(file.extent(), SMALL_FAMILY)
        assert not store.read_record(0, 1).is_verified
        assert store.with_digests(digests).read_record(0, 1).is_verified


def test_a_damaged_record_is_refused_with_digests_and_passes_without(tmp_path: Path) -> None:
    digests = small(tmp_path / "store")
    data = bytearray((tmp_path / "store").read_bytes())
    data[4096 + 13_824 + 5] ^= 1  # layer 0, expert 1
    store = ExpertStore.open(memory_extent(bytes(data)), SMALL_FAMILY)
    assert not store.read_record(0, 1).is_verified
    checked = store.with_digests(digests)
    checked.read_record(0, 0)
    assert refusal(lambda: checked.read_record(0, 1)) == ("expert-store.record-digest", "layer 0 expert 1")
    assert refusal(lambda: list(checked.read_records([(0, 0), (0, 1)]))) == (
        "expert-store.record-digest",
        "layer 0 expert 1",
    )


def test_record_digests_of_another_store_are_refused(tmp_path: Path) -> None:
    digests = small(tmp_path / "store")
    store = ExpertStore.open(memory_extent(sample()), SMALL_FAMILY)
    for other in (
        replace(digests, payload_sha256=bytes(32)),
        replace(digests, manifest_sha256=bytes(32)),
        replace(digests, layers=digests.layers[:2]),
    ):
        assert refusal(lambda other=other: store.with_digests(other)) == (
            "expert-store.record-digests.binding",
            "memory",
        )


def test_verifying_derives_the_digests_that_building_derived(tmp_path: Path) -> None:
    digests = small(tmp_path / "store")
    with StoreFile.open(tmp_path / "store") as file:
        seen: list[tuple[int, int]] = []
        found = ExpertStore.open(file.extent(), SMALL_FAMILY).verify_all(
            progress=lambda *done: seen.append(done)
        )
    assert found.digests == digests
    assert seen[-1] == (len(sample()) - 4096, len(sample()) - 4096)


def test_verifying_without_record_digests_finds_what_verifying_with_them_finds(tmp_path: Path) -> None:
    small(tmp_path / "store")
    right = (tmp_path / "store").read_bytes()
    found = ExpertStore.open(memory_extent(right), SMALL_FAMILY).verify_all(derive=False)
    assert (found.findings, found.digests) == ((), None)
    wrong = bytearray(right)
    wrong[-1] ^= 1
    found = ExpertStore.open(memory_extent(bytes(wrong)), SMALL_FAMILY).verify_all(derive=False)
    assert [(one.code, one.where) for one in found.findings] == [
        ("expert-store.payload-digest", "payload_sha256")
    ]


def test_verifying_a_damaged_store_derives_nothing() -> None:
    data = bytearray(sample())
    data[-1] ^= 1
    found = ExpertStore.open(memory_extent(bytes(data)), SMALL_FAMILY).verify_all()
    assert found.digests is None
    assert [(one.code, one.where) for one in found.findings] == [
        ("expert-store.payload-digest", "payload_sha256")
    ]


def test_a_gap_larger_than_a_page_passes_open_and_fails_the_verifier(tmp_path: Path) -> None:
    """The reader accepts layers further apart; only publication asks for the canonical place."""
    manifest = small_manifest()
    last = manifest.layers[2]
    moved = replace(last, data_offset=last.data_offset + 4096)
    size = manifest.header.store_bytes + 4096
    header = replace(manifest.header, store_bytes=size, data_bytes=manifest.header.data_bytes + 4096)
    payload = bytearray(size)
    payload[4096 : len(sample())] = sample()[4096:]
    signed = sign(Manifest(header, (*manifest.layers[:2], moved)), hashlib.sha256(payload[4096:]).digest())
    payload[: 256 + 3 * 224] = pack_manifest(signed)
    store = ExpertStore.open(memory_extent(bytes(payload)), SMALL_FAMILY)
    found = store.verify_all().findings
    assert ("expert-store.layer.canonical", "layers[2].data_offset") in [
        (one.code, one.where) for one in found
    ]


def test_a_source_that_hands_over_another_size_is_refused(tmp_path: Path) -> None:
    assert refusal(
        lambda: write_expert_store(tmp_path / "store", small_manifest(), SMALL_FAMILY, lambda *_: b"short")
    ) == ("expert-store.supply", "layer 0 gate expert 0")
    assert list(tmp_path.iterdir()) == []


HANDED_OVER = {
    "list": lambda size: [0] * size,
    "text": lambda size: "x" * size,
    "None": lambda _: None,
    "strided": lambda size: memoryview(bytes(2 * size))[::2],
    "too large": lambda size: bytes(size + 1),
}


@pytest.mark.parametrize("kind", HANDED_OVER)
def test_what_is_no_contiguous_buffer_is_no_component(kind: str, tmp_path: Path) -> None:
    def component(layer: Layer, role: int, expert: int) -> object:
        return HANDED_OVER[kind](layer.components[role].expert_bytes)

    assert refusal(
        lambda: write_expert_store(tmp_path / "store", small_manifest(), SMALL_FAMILY, component)
    ) == (
        "expert-store.supply",
        "layer 0 gate expert 0",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "code", "where"),
    [
        ({"experts_used": 9}, "expert-store.experts-used", "experts_used"),
        ({"source_tensor_count": 3}, "expert-store.source", "source_tensor_count"),
        ({"source_bytes": 0}, "expert-store.source", "source_bytes"),
        ({"source_bytes": -1}, "expert-store.plan", "manifest"),
        ({"source_bytes": 2**64}, "expert-store.plan", "manifest"),
        ({"source_tensor_count": 40.5}, "expert-store.plan", "manifest"),
        ({"family": 4}, "expert-store.family", "family"),
    ],
)
def test_a_plan_that_could_not_be_opened_is_refused_before_anything_is_made(
    changes: dict[str, object], code: str, where: str, tmp_path: Path
) -> None:
    def component(*_: object) -> bytes:
        raise AssertionError("asked for a component")

    manifest = small_manifest()
    planned = replace(manifest, header=replace(manifest.header, **changes))
    assert refusal(lambda: write_expert_store(tmp_path / "store", planned, SMALL_FAMILY, component)) == (
        code,
        where,
    )
    assert list(tmp_path.iterdir()) == []


def test_layer_ids_of_family_2_may_start_late_and_must_rise() -> None:
    block = GGML[10]
    roles = ((block, 256, 256),) * 3
    for ids, findings in (([3, 4], []), ([4, 3], ["layers[1].layer_id"]), ([3, 128], ["layers[1].layer_id"])):
        manifest = plan_manifest(
            2,
            Storage.GGML,
            experts=3,
            used=2,
            layers=[LayerShape(one, roles) for one in ids],
            source=Source(9, 9, bytes(32)),
        )
        data = pack_manifest(sign(manifest, bytes(32))).ljust(manifest.header.store_bytes, b"\0")
        _, found = judge_expert_store(memory_extent(data), PUBLIC[2])
        assert [(one.code, one.where) for one in found] == [
            ("expert-store.layer.id", where) for where in findings
        ]


@pytest.mark.parametrize(
    ("tensor", "code", "where"),
    [
        ("blk.1.ffn_up_exps.weight", "repack.routed", "blk.1.ffn_up_exps.weight"),
        ("general.architecture", "repack.architecture", "general.architecture"),
    ],
)
def test_an_incomplete_or_foreign_source_is_not_repacked(
    tensor: str, code: str, where: str, tmp_path: Path
) -> None:
    source = tmp_path / "source.gguf"
    canonical_gguf(source, "deepseek4")
    data = source.read_bytes()
    other = tensor.replace("up", "xx") if tensor.startswith("blk") else ""
    if other:
        data = data.replace(tensor.encode(), other.encode())
    else:
        data = data.replace(b"deepseek4", b"qwen4exp4", 1)
    source.write_bytes(data)
    assert refusal(lambda: repack(source, tmp_path / "native.gguf")) == (code, where)
    assert not (tmp_path / "native.gguf").exists()


def test_a_repack_does_not_replace_a_file_unasked(tmp_path: Path) -> None:
    source, native = native_gguf(tmp_path, "deepseek4")
    assert refusal(lambda: repack(source, native)) == ("repack.target", str(native))
    assert refusal(lambda: repack(source, source, replace=True)) == ("repack.target", str(source))


def source_with(
    target: Path, changes: dict[str, object], routed: dict[str, tuple[int, ...]] | None = None
) -> None:
    """A canonical source of family 1 with some counts or shapes changed; a None drops the key."""
    counts = {"block_count": 1, "expert_count": 2, "expert_used_count": 1} | changes
    entries = [Entry("general.architecture", scalar(ValueType.STRING, "deepseek4"))]
    for key, value in counts.items():
        if isinstance(value, int):
            entries.append(Entry(f"deepseek4.{key}", scalar(ValueType.UINT32, value)))
        elif value is not None:
            entries.append(Entry(f"deepseek4.{key}", value))
    shapes = dict.fromkeys(("gate", "up", "down"), (256, 256, 2)) | (routed or {})
    tensors = [Planned(f"blk.0.ffn_{name}_exps.weight", dims, 10) for name, dims in shapes.items()]
    tensors.append(Planned("output.weight", (4,), 0))
    write_gguf(target, plan_gguf(entries, tensors), lambda *_: None)


@pytest.mark.parametrize(
    ("changes", "routed", "code", "where"),
    [
        ({"block_count": None}, None, "repack.metadata", "deepseek4.block_count"),
        ({"block_count": (1 << 32) - 1}, None, "repack.metadata", "deepseek4.block_count"),
        ({"block_count": 80}, None, "repack.metadata", "deepseek4.block_count"),
        ({"block_count": 79}, None, "repack.routed", "blk.1.ffn_gate_exps.weight"),
        ({"expert_count": 0}, None, "repack.metadata", "deepseek4.expert_count"),
        ({"expert_count": 513}, None, "repack.metadata", "deepseek4.expert_count"),
        (
            {"expert_used_count": scalar(ValueType.UINT64, 1)},
            None,
            "repack.metadata",
            "deepseek4.expert_used_count",
        ),
        ({"expert_count": 3}, None, "repack.routed", "blk.0.ffn_gate_exps.weight.dim[2]"),
        ({}, {"up": (256, 512)}, "repack.routed", "blk.0.ffn_up_exps.weight.rank"),
        ({"block_count": 2}, None, "repack.routed", "blk.1.ffn_gate_exps.weight"),
        ({"expert_used_count": 3}, None, "expert-store.experts-used", "experts_used"),
        ({}, {"down": (256, 512, 2)}, "expert-store.layer.relation", "layers[0].down"),
    ],
)
def test_a_source_that_contradicts_itself_is_not_repacked(
    changes: dict[str, object],
    routed: dict[str, tuple[int, ...]] | None,
    code: str,
    where: str,
    tmp_path: Path,
) -> None:
    source_with(tmp_path / "source.gguf", {}, None)
    repack(tmp_path / "source.gguf", tmp_path / "right.gguf")
    (tmp_path / "source.gguf").unlink()
    source_with(tmp_path / "source.gguf", changes, routed)
    assert refusal(lambda: repack(tmp_path / "source.gguf", tmp_path / "native.gguf")) == (code, where)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["right.gguf", "source.gguf"]


def findings_of(manifest: Manifest, family: ExpertFamily) -> list[tuple[str, str]]:
    """Signs a manifest, puts zeros behind it and judges the store."""
    size = min(manifest.header.store_bytes, 1 << 20)
    data = pack_manifest(sign(manifest, bytes(32))).ljust(size, b"\0")
    return [(one.code, one.where) for one in judge_expert_store(memory_extent(data), family)[1]]


def test_a_row_that_blocks_do_not_cover_is_found_in_the_descriptor() -> None:
    changed = with_component(small_manifest(), 1, 2, dimensions=(96, 128, 4))
    assert ("expert-store.component.cover", "layers[1].down.dimensions[0]") in findings_of(
        changed, SMALL_FAMILY
    )


def test_a_layer_that_ends_behind_the_store_is_found() -> None:
    manifest = small_manifest()
    last = manifest.layers[2]
    moved = replace(
        manifest, layers=(*manifest.layers[:2], replace(last, data_offset=last.data_offset + 4096))
    )
    found = findings_of(moved, SMALL_FAMILY)
    assert ("expert-store.layer.end", "layers[2].data_bytes") in found
    assert ("expert-store.coverage", "store_bytes") in found


def test_bytes_behind_the_last_layer_are_found() -> None:
    manifest = small_manifest()
    header = replace(
        manifest.header,
        store_bytes=manifest.header.store_bytes + 4096,
        data_bytes=manifest.header.data_bytes + 4096,
    )
    assert findings_of(replace(manifest, header=header), SMALL_FAMILY) == [
        ("expert-store.coverage", "store_bytes")
    ]


def test_a_record_of_absurd_size_is_neither_read_nor_verified_whole(tmp_path: Path) -> None:
    geometry = ExpertGeometry(1, 1, 1, 1 << 14, 1 << 13)
    family = private_expert_family(0x80000007, "assay-large-v1", geometry)
    manifest = plan_manifest(
        family.id,
        Storage.GGML,
        experts=1,
        used=1,
        layers=geometry.shapes(F32),
        source=Source(9, 9, bytes(32)),
    )
    write_expert_store(tmp_path / "store", manifest, family, None)
    with StoreFile.open(tmp_path / "store") as file:
        store = ExpertStore.open(file.extent(), family)
        assert refusal(lambda: store.read_record(0, 0)) == ("expert-store.record-size", "layer 0")
        assert refusal(lambda: store.verify_all(threads=1)) == (
            "expert-store.record-size",
            str(tmp_path / "store"),
        )


def test_a_routed_type_that_the_family_does_not_admit_is_not_repacked(tmp_path: Path) -> None:
    source = tmp_path / "source.gguf"
    entries = [Entry("general.architecture", scalar(ValueType.STRING, "deepseek4"))] + [
        Entry(f"deepseek4.{key}", scalar(ValueType.UINT32, value))
        for key, value in (("block_count", 1), ("expert_count", 2), ("expert_used_count", 1))
    ]
    tensors = [Planned(f"blk.0.ffn_{role}_exps.weight", (256, 256, 2), 30) for role in ("gate", "up", "down")]
    write_gguf(source, plan_gguf(entries, [*tensors, Planned("output.weight", (4,), 0)]), lambda *_: None)
    assert refusal(lambda: repack(source, tmp_path / "native.gguf")) == (
        "codec.type.known",
        "blk.0.ffn_gate_exps.weight",
    )


@given(
    places=st.lists(st.tuples(st.integers(8, 900), st.integers(0, 255)), min_size=1, max_size=3),
    number=st.sampled_from([None, 0, 80, 513, (1 << 32) - 1]),
    key=st.sampled_from(["block_count", "expert_count", "expert_used_count", "leading_dense_block_count"]),
)
@settings(max_examples=60)
def test_a_damaged_directory_is_refused_or_repacked_and_nothing_else(
    places: list[tuple[int, int]], number: int | None, key: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each ends: a stated count that is too large is refused before anything is as large as it."""
    folder = tmp_path_factory.mktemp("damaged")
    canonical_gguf(folder / "source.gguf", "glm-dsa")
    data = bytearray((folder / "source.gguf").read_bytes())
    if number is None:
        for offset, value in places:
            data[offset] = value
    else:
        stated = data.index(f"glm-dsa.{key}".encode()) + len(f"glm-dsa.{key}") + 4
        data[stated : stated + 4] = number.to_bytes(4, "little")
    (folder / "source.gguf").write_bytes(data)
    with contextlib.suppress(AssayError):
        repack(folder / "source.gguf", folder / "native.gguf")
    assert {path.name for path in folder.iterdir()} <= {"source.gguf", "native.gguf"}
    shutil.rmtree(folder)
