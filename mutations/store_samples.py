"""Small valid stores whose bytes are published: the ground from which batteries and tests mutate.

The published digests stand beside the rules that make the files, so that a writer which drifts is caught before any
mutation is judged.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from assay.impl.stores.expert_major.blocks import AFFINE4, GGML
from assay.impl.stores.expert_major.families import ExpertFamily, ExpertGeometry, private_expert_family
from assay.impl.stores.expert_major.layout import Layer, Manifest, Source, Storage, plan_manifest
from assay.impl.stores.expert_major.repack import repack
from assay.impl.stores.extents import SYSTEM, Filesystem
from assay.impl.stores.gguf.reader import Entry
from assay.impl.stores.gguf.values import ValueType, scalar
from assay.impl.stores.gguf.writer import Planned, plan_gguf, write_gguf
from assay.impl.stores.ple_rows.layout import PleGeometry, RowCodec, RowTable
from assay.impl.stores.ple_rows.tables import HASH_ID
from assay.impl.stores.ple_rows.writer import write_ple_store
from assay.impl.stores.publication import Draft

GOLDEN_SOURCE: Final = {
    "deepseek4": "d059e0a1572cc1ebdab0c01e7efc720d8660d294d9836180c5393c5880b1ccc3",
    "qwen35moe": "645d00e4774324c1ee37129690094c9e7fac1c391c661aadb1d131914eaf9be8",
}
GOLDEN_NATIVE: Final = {
    "deepseek4": "89f8818ca36e6cf8db88eb1ba54cfd310e60acec58e67aba23468fe0d056f33e",
    "qwen35moe": "ba1ebc3860538b0f088848f5e76e680c4d4aa05084399487c1e36691269c0ce8",
}
GOLDEN_BYTES: Final = {
    "deepseek4": (498_432, 504_192, 503_808),
    "glm-dsa": (625_984, 632_768, 632_320),
    "qwen35moe": (444_672, 451_968, 451_584),
}
"""Bytes of source, native file and store of each published architecture."""
GOLDEN_PLE_PAYLOAD: Final = "cd3b3573e630bfa2e391e0d6c3f1f110308626a7a3cc5e913259b4f46b22b144"
GOLDEN_PLE_MANIFEST: Final = "82e77d85cb6ed954688aaea50c25096e510bf4f3ec3c37c63f2f875a8f2f3d2f"

_TYPES: Final = {
    "deepseek4": {0: (16, 16, 10), 1: (12, 12, 12)},
    "glm-dsa": {3: (10, 10, 10), 4: (13, 13, 14)},
    "qwen35moe": {0: (17, 17, 18), 1: (18, 18, 23)},
}

GOLDEN_PLE: Final = PleGeometry(
    RowTable(
        family=4,
        profile="qwen4exp-base-v1",
        hash_id=HASH_ID,
        rows=100,
        width=8,
        row_alignment=4,
        primes=(5,) * 13 + (11, 11, 13),
        offsets=(*range(0, 65, 5), 65, 76, 87),
    ),
    RowCodec("fixture-raw-u8-nonprod", 1, 1, 8),
    rows_per_page=8,
    page_alignment=4096,
)
"""Geometry of the published row store."""

SMALL_FAMILY: Final = private_expert_family(0x80000002, "assay-sample-v1", ExpertGeometry(3, 4, 2, 128, 64))
"""A private family small enough to rewrite for every mutation."""


def canonical_gguf(target: Path, architecture: str) -> None:
    """Writes the published source file of a routed family."""
    layers = _TYPES[architecture]
    entries = [
        Entry("general.architecture", scalar(ValueType.STRING, architecture)),
        Entry("general.alignment", scalar(ValueType.UINT32, 32)),
        *(
            Entry(f"{architecture}.{key}", scalar(ValueType.UINT32, number))
            for key, number in _counts(architecture)
        ),
    ]
    tensors = [Planned("token_embd.weight", (4,), 0)]
    fills: list[Sequence[int] | bytes] = [bytes(range(16))]
    for layer, types in layers.items():
        for role, (name, type_id) in enumerate(zip(("gate", "up", "down"), types, strict=True)):
            tensors.append(Planned(f"blk.{layer}.ffn_{name}_exps.weight", (256, 256, 3), type_id))
            size = GGML[type_id].bytes * 256
            fills.append(b"".join(sample_bytes(layer, role, expert, size) for expert in range(3)))
    plan = plan_gguf(entries, tensors)

    def fill(draft: Draft, index: int, start: int) -> None:
        draft.write(start, bytes(fills[index]))

    write_gguf(target, plan, fill)


def native_gguf(folder: Path, architecture: str) -> tuple[Path, Path]:
    """Writes the published source and native file of a routed family into a folder and returns both paths."""
    source, target = folder / f"{architecture}.gguf", folder / f"{architecture}.native.gguf"
    canonical_gguf(source, architecture)
    repack(source, target)
    return source, target


def golden_ple(target: Path, system: Filesystem = SYSTEM) -> None:
    """Writes the published row store."""
    write_ple_store(target, GOLDEN_PLE, golden_rows, system=system)


def golden_rows(first: int, count: int) -> bytes:
    """Returns rows of the published row store: byte k of row r is 17 r + 29 k, modulo 256."""
    return bytes((17 * row + 29 * k) & 255 for row in range(first, first + count) for k in range(8))


def small_manifest(family: ExpertFamily = SMALL_FAMILY) -> Manifest:
    """Returns the unsigned manifest of the small private store: 3 layers, 4 experts, affine 4-bit."""
    geometry = family.geometry
    if geometry is None:
        raise ValueError("a family without an exact geometry has no one manifest")
    return plan_manifest(
        family.id,
        Storage.MLX_AFFINE4,
        experts=geometry.experts,
        used=geometry.used,
        layers=geometry.shapes(AFFINE4),
        source=Source(40, 123_456, bytes(range(32))),
    )


def small_component(layer: Layer, role: int, expert: int) -> bytes:
    """Returns the bytes of one component of the small private store."""
    return sample_bytes(layer.layer_id, role, expert, layer.components[role].expert_bytes)


def sample_bytes(layer: int, role: int, expert: int, size: int) -> bytes:
    """Returns the published pattern: byte i is 71 layer + 23 role + 7 expert + i, modulo 251."""
    start = (layer * 71 + role * 23 + expert * 7) % 251
    cycle = bytes(range(251))
    return (cycle[start:] + cycle * (size // 251 + 1))[:size]


def _counts(architecture: str) -> list[tuple[str, int]]:
    is_glm = architecture == "glm-dsa"
    counts = [("block_count", 5 if is_glm else 2), ("expert_count", 3), ("expert_used_count", 2)]
    return counts + ([("leading_dense_block_count", 3), ("nextn_predict_layers", 1)] if is_glm else [])
