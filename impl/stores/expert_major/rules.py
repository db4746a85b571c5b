"""What must hold in the manifest of an ExpertMajor v2 store, every disagreement at its own clause.

The order is the reader's: header, digest, components, relations, geometry, layer extents, coverage. Findings are
collected; only a header that doesn't say where the descriptors are ends the judgement early.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from assay.impl.stores.expert_major.families import ExpertFamily
from assay.impl.stores.expert_major.layout import (
    HEADER_BYTES,
    LAYER_BYTES,
    MAGIC,
    MAX_EXPERTS,
    MAX_LAYER_ID,
    MAX_LAYERS,
    PAGE,
    ROLES,
    Component,
    Header,
    Layer,
    Manifest,
    Storage,
    manifest_digest,
)
from assay.impl.stores.gguf.reader import align_up
from assay.spec.clauses import Authority, declare
from assay.spec.errors import Finding

_SOURCE = "ExpertMajor v2 layout; AFN-002"
STAGE: Final = "expert-store"


def _clause(name: str, meaning: str, cause: str, authority: Authority = Authority.RULE) -> str:
    return declare(f"expert-store.{name}", authority, meaning, source=_SOURCE, cause=cause)


_PIN, _FORM = Authority.PIN, Authority.FORM

SIZE: Final = _clause("size", "A store holds at least its header.", "a truncated file", _FORM)
MAGIC_CLAUSE: Final = _clause("magic", "A store starts with DS4EXPV2.", "another kind of file", _FORM)
VERSION: Final = _clause("version", "The container version is 2.", "a store of another version", _PIN)
HEADER: Final = _clause("header-bytes", "The header has 256 bytes.", "a damaged header", _PIN)
FAMILY: Final = _clause(
    "family", "The family is the one the caller expects.", "a store of another model family", _PIN
)
LAYERS: Final = _clause(
    "layers", "A store has 1 to 79 layers, and exactly those of its family.", "a wrong geometry", _PIN
)
EXPERTS: Final = _clause(
    "experts", "A layer has 1 to 512 experts, and exactly those of its family.", "a wrong geometry", _PIN
)
USED: Final = _clause(
    "experts-used", "Between one and all experts are used for a token, exactly as the family says.",
    "a wrong geometry", _PIN,
)  # fmt: skip
DESCRIPTORS: Final = _clause(
    "descriptors", "One descriptor of 224 bytes a layer follows the header.", "a damaged header"
)
DATA: Final = _clause(
    "data", "The payload starts on a page after the descriptors and ends the store.", "a truncated store"
)
SOURCE_FIELDS: Final = _clause(
    "source", "The source has more than three tensors a layer and isn't empty.", "a damaged header"
)
STORAGE: Final = _clause(
    "storage", "Storage format and group size are a pair that the family allows.", "a wrong storage", _PIN
)
RESERVED: Final = _clause("reserved", "Reserved bytes are zero.", "bytes of a newer version", _FORM)
MANIFEST_DIGEST: Final = _clause(
    "manifest-digest", "The manifest digest is that of header and descriptors.", "a damaged manifest"
)
ROLE: Final = _clause("component.role", "Roles are gate, up, down in this order.", "swapped roles", _FORM)
RANK: Final = _clause("component.rank", "A component has rank 3.", "a damaged descriptor", _FORM)
TYPE: Final = _clause(
    "component.type", "The type is one that family and storage allow.", "a wrong codec", _PIN
)
BLOCK: Final = _clause(
    "component.block", "The block is that of the type in this family.", "a descriptor of another family", _PIN
)
COVER: Final = _clause(
    "component.cover", "Whole blocks cover each row.", "a 256-value block on a 640-wide row"
)
DIMENSIONS: Final = _clause(
    "component.dimensions", "Width and rows are not zero and the third dimension is the number of experts.",
    "a damaged descriptor",
)  # fmt: skip
BYTES: Final = _clause(
    "component.bytes", "The bytes of a component follow from its dimensions.", "a damaged descriptor"
)
RECORD_OFFSET: Final = _clause(
    "component.offset", "Roles lie one after another in a record.", "a damaged descriptor"
)
RELATION: Final = _clause(
    "layer.relation", "Gate and up are alike and down is their transpose.", "roles of different layers"
)
GEOMETRY: Final = _clause(
    "layer.geometry", "Dimensions are exactly those of the family.", "another model of the family", _PIN
)
LAYER_ID: Final = _clause(
    "layer.id", "Layer ids rise, stay below 128 and equal their slot where the family says so.",
    "layers out of order",
)  # fmt: skip
LAYER_EXPERTS: Final = _clause(
    "layer.experts", "Every layer has the experts of the header.", "a damaged descriptor"
)
RECORD: Final = _clause("layer.record", "A record is the sum of its roles.", "a damaged descriptor")
LAYER_BYTES_CLAUSE: Final = _clause(
    "layer.bytes", "A layer is its records one after another.", "a damaged descriptor"
)
LAYER_START: Final = _clause(
    "layer.start",
    "A layer starts on a page, not before the end of the layer before it.",
    "overlapping layers",
)
LAYER_END: Final = _clause("layer.end", "A layer ends inside the store.", "a truncated store")
COVERAGE: Final = _clause("coverage", "The last layer ends the store.", "bytes behind the last layer")
IDENTITY: Final = _clause(
    "identity", "The store was made from the source that its artifact or plan names.", "a stale store", _PIN
)


@dataclass(frozen=True, slots=True)
class ExpectedSource:
    """What an artifact or plan says of a store; fields left None are not compared."""

    tensor_count: int | None = None
    size_bytes: int | None = None
    sha256: bytes | None = None
    payload_sha256: bytes | None = None


def judge_header(header: Header, family: ExpertFamily, extent_bytes: int) -> list[Finding]:
    """Returns what is wrong with a header.

    Args:
        header: the fields.
        family: the family that the caller expects.
        extent_bytes: bytes of the extent that the store lies in.
    """
    return list(_header(header, family, extent_bytes))


def is_walkable(header: Header, extent_bytes: int) -> bool:
    """Says whether the descriptors can be read: they exist, are few enough, and lie inside the extent."""
    return (
        header.magic == MAGIC
        and 1 <= header.layer_count <= MAX_LAYERS
        and HEADER_BYTES + LAYER_BYTES * header.layer_count <= extent_bytes
    )


def judge_manifest(
    manifest: Manifest, table: bytes, family: ExpertFamily, expected: ExpectedSource | None = None
) -> list[Finding]:
    """Returns what is wrong with digest, descriptors and identity.

    Args:
        manifest: header and layers.
        table: their bytes.
        family: the family that the caller expects.
        expected: what artifact or plan says of the source.
    """
    findings = []
    digest = manifest_digest(table)
    if digest != manifest.header.manifest_sha256:
        findings.append(
            _finding(MANIFEST_DIGEST, "manifest_sha256", digest.hex(), manifest.header.manifest_sha256.hex())
        )
    for slot, layer in enumerate(manifest.layers):
        findings += _components(slot, layer, manifest.header, family)
        findings += _relations(slot, layer, family)
    findings += _extents(manifest, family)
    findings += _identity(manifest.header, expected or ExpectedSource())
    return findings


def _header(header: Header, family: ExpertFamily, extent_bytes: int) -> Iterator[Finding]:
    if header.magic != MAGIC:
        yield _finding(MAGIC_CLAUSE, "magic", MAGIC, header.magic)
        return
    exact = family.geometry
    for code, where, expected, got in (
        (VERSION, "version", 2, header.version),
        (HEADER, "header_bytes", HEADER_BYTES, header.header_bytes),
        (FAMILY, "family", family.id, header.family),
        (DESCRIPTORS, "descriptor_count", header.layer_count, header.descriptor_count),
        (DESCRIPTORS, "descriptor_bytes", LAYER_BYTES * header.layer_count, header.descriptor_bytes),
        (DESCRIPTORS, "descriptor_offset", HEADER_BYTES, header.descriptor_offset),
        (DATA, "store_bytes", extent_bytes, header.store_bytes),
        (DATA, "data_bytes", header.store_bytes - header.data_offset, header.data_bytes),
    ):
        if expected != got:
            yield _finding(code, where, expected, got)
    counts = (
        (LAYERS, "layer_count", exact and exact.layers, MAX_LAYERS, header.layer_count),
        (EXPERTS, "expert_count", exact and exact.experts, MAX_EXPERTS, header.expert_count),
        (USED, "experts_used", exact and exact.used, header.expert_count, header.experts_used),
    )
    for code, where, fixed, most, got in counts:
        if fixed is not None and got != fixed:
            yield _finding(code, where, fixed, got)
        elif not 1 <= got <= most:
            yield _finding(code, where, f"1..{most}", got)
    least = HEADER_BYTES + LAYER_BYTES * header.layer_count
    if header.data_offset % PAGE or header.data_offset < least:
        yield _finding(DATA, "data_offset", f"a multiple of {PAGE}, at least {least}", header.data_offset)
    if header.source_tensor_count <= 3 * header.layer_count:
        yield _finding(
            SOURCE_FIELDS,
            "source_tensor_count",
            f"more than {3 * header.layer_count}",
            header.source_tensor_count,
        )
    if not header.source_bytes:
        yield _finding(SOURCE_FIELDS, "source_bytes", "at least 1", 0)
    pairs = sorted((int(one), 64 if one is Storage.MLX_AFFINE4 else 0) for one in family.storages)
    if (header.storage, header.group_size) not in pairs:
        yield _finding(
            STORAGE,
            "storage",
            " or ".join(f"format {one} with group {group}" for one, group in pairs),
            f"format {header.storage} with group {header.group_size}",
        )
    yield from _zero(header.reserved, "reserved")


def _components(slot: int, layer: Layer, header: Header, family: ExpertFamily) -> Iterator[Finding]:
    offset = 0
    for index, one in enumerate(layer.components):
        where = f"layers[{slot}].{ROLES[index]}"
        if one.role != index:
            yield _finding(ROLE, f"{where}.role", index, one.role)
        if one.rank != 3:
            yield _finding(RANK, f"{where}.rank", 3, one.rank)
        yield from _coding(where, one, header, family)
        width, rows, experts = one.dimensions
        if not width or not rows:
            yield _finding(DIMENSIONS, f"{where}.dimensions", "no zero", list(one.dimensions))
        if experts != header.expert_count:
            yield _finding(DIMENSIONS, f"{where}.dimensions[2]", header.expert_count, experts)
        if one.record_offset != offset:
            yield _finding(RECORD_OFFSET, f"{where}.record_offset", offset, one.record_offset)
        offset += one.expert_bytes


def _coding(where: str, one: Component, header: Header, family: ExpertFamily) -> Iterator[Finding]:
    width, rows, _ = one.dimensions
    block = family.block(one.type_id, header.storage)
    if block is None:
        allowed = [kind for kind in range(64) if family.block(kind, header.storage)]
        yield _finding(TYPE, f"{where}.type", f"one of {allowed}", one.type_id)
        return
    if one.block_elements != block.elements:
        yield _finding(BLOCK, f"{where}.block_elements", block.elements, one.block_elements)
    if width % block.elements:
        yield _finding(
            COVER,
            f"{where}.dimensions[0]",
            f"a multiple of {block.elements}",
            f"{width}, which leaves {width % block.elements}",
        )
        return
    size = width // block.elements * block.bytes * rows
    if size >= 1 << 64:
        yield _finding(BYTES, f"{where}.expert_bytes", "a product below 2^64", size)
    elif one.expert_bytes != size:
        yield _finding(BYTES, f"{where}.expert_bytes", size, one.expert_bytes)


def _relations(slot: int, layer: Layer, family: ExpertFamily) -> Iterator[Finding]:
    gate, up, down = layer.components
    where = f"layers[{slot}]"
    if (gate.type_id, gate.dimensions) != (up.type_id, up.dimensions):
        yield _finding(
            RELATION,
            f"{where}.up",
            f"type {gate.type_id} {list(gate.dimensions)} as gate",
            f"type {up.type_id} {list(up.dimensions)}",
        )
    if down.dimensions[:2] != (gate.dimensions[1], gate.dimensions[0]):
        yield _finding(
            RELATION, f"{where}.down", [gate.dimensions[1], gate.dimensions[0]], list(down.dimensions[:2])
        )
    exact = family.geometry
    if exact is None:
        return
    wide, narrow = (exact.hidden, exact.width), (exact.width, exact.hidden)
    for one, name, pair in zip(layer.components, ROLES, (wide, wide, narrow), strict=True):
        if one.dimensions[:2] != pair:
            yield _finding(GEOMETRY, f"{where}.{name}.dimensions", list(pair), list(one.dimensions[:2]))


def _extents(manifest: Manifest, family: ExpertFamily) -> Iterator[Finding]:
    header = manifest.header
    end, last_id = header.data_offset, -1
    for slot, layer in enumerate(manifest.layers):
        where = f"layers[{slot}]"
        if family.layer_ids == "contiguous" and layer.layer_id != slot:
            yield _finding(LAYER_ID, f"{where}.layer_id", slot, layer.layer_id)
        elif not last_id < layer.layer_id <= MAX_LAYER_ID:
            yield _finding(LAYER_ID, f"{where}.layer_id", f"{last_id + 1}..{MAX_LAYER_ID}", layer.layer_id)
        last_id = max(last_id, layer.layer_id)
        record = sum(one.expert_bytes for one in layer.components)
        for code, name, expected, got in (
            (LAYER_EXPERTS, "expert_count", header.expert_count, layer.expert_count),
            (RECORD, "record_bytes", record, layer.record_bytes),
            (LAYER_BYTES_CLAUSE, "data_bytes", layer.record_bytes * header.expert_count, layer.data_bytes),
        ):
            if expected != got:
                yield _finding(code, f"{where}.{name}", expected, got)
        if layer.data_offset < end or layer.data_offset % PAGE:
            yield _finding(
                LAYER_START,
                f"{where}.data_offset",
                f"a multiple of {PAGE}, at least {end}",
                layer.data_offset,
            )
        end = layer.data_offset + layer.data_bytes
        if end > header.store_bytes:
            yield _finding(LAYER_END, f"{where}.data_bytes", f"an end up to {header.store_bytes}", end)
        yield from _zero(layer.reserved, f"{where}.reserved")
    if end != header.store_bytes:
        yield _finding(COVERAGE, "store_bytes", end, header.store_bytes)


def _identity(header: Header, expected: ExpectedSource) -> Iterator[Finding]:
    fields: tuple[tuple[str, int | bytes | None, int | bytes], ...] = (
        ("source_tensor_count", expected.tensor_count, header.source_tensor_count),
        ("source_bytes", expected.size_bytes, header.source_bytes),
        ("source_sha256", expected.sha256, header.source_sha256),
        ("payload_sha256", expected.payload_sha256, header.payload_sha256),
    )
    for name, wanted, got in fields:
        if wanted is not None and wanted != got:
            yield _finding(
                IDENTITY,
                name,
                wanted.hex() if isinstance(wanted, bytes) else wanted,
                got.hex() if isinstance(got, bytes) else got,
            )


def canonical_starts(manifest: Manifest) -> list[int]:
    """Returns where the layers of a canonical store start: each on the first page after the one before."""
    starts, end = [], align_up(HEADER_BYTES + LAYER_BYTES * len(manifest.layers), PAGE)
    for layer in manifest.layers:
        starts.append(align_up(end, PAGE))
        end = starts[-1] + layer.data_bytes
    return starts


def _zero(data: bytes, where: str) -> Iterator[Finding]:
    used = data.lstrip(b"\0")
    if used:
        yield _finding(RESERVED, where, "zeros", f"{used[0]:#04x} at byte {len(data) - len(used)}")


def _finding(code: str, where: str, expected: object, got: object) -> Finding:
    return Finding.of(code, STAGE, where, expected=expected, got=got)
