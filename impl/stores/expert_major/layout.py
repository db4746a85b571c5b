"""The bytes of ExpertMajor v2: header, layer and component descriptors, and where every record lies.

Layout: header (256) | layer descriptors (224 each) | zeros up to the data offset | layers, each on a 4096 boundary.
A layer is its expert records one after another; a record is gate | up | down without padding.
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from assay.impl.stores.expert_major.blocks import Block, row_bytes
from assay.impl.stores.gguf.reader import align_up

MAGIC: Final = b"DS4EXPV2"
HEADER_BYTES: Final = 256
LAYER_BYTES: Final = 224
PAGE: Final = 4096
MAX_LAYERS: Final = 79
MAX_LAYER_ID: Final = 127
MAX_EXPERTS: Final = 512
ROLES: Final = ("gate", "up", "down")
NO_DIGEST: Final = bytes(32)

_HEADER = struct.Struct("<8s6I8Q32s32sII32s56s")
_LAYER = struct.Struct("<IIQQQ")
_COMPONENT = struct.Struct("<4I5Q")
_MANIFEST_DIGEST = slice(168, 200)


class Storage(IntEnum):
    """How components are stored."""

    GGML = 0
    MLX_AFFINE4 = 1


@dataclass(frozen=True, slots=True)
class Header:
    """The header, field by field, in file order."""

    magic: bytes
    version: int
    header_bytes: int
    family: int
    experts_used: int
    layer_count: int
    expert_count: int
    source_tensor_count: int
    descriptor_count: int
    descriptor_bytes: int
    descriptor_offset: int
    data_offset: int
    data_bytes: int
    store_bytes: int
    source_bytes: int
    source_sha256: bytes
    payload_sha256: bytes
    storage: int
    group_size: int
    manifest_sha256: bytes
    reserved: bytes


@dataclass(frozen=True, slots=True)
class Component:
    """One role of the records of a layer.

    Attributes:
        role: 0 gate, 1 up, 2 down.
        type_id: logical GGML type.
        rank: always 3.
        block_elements: values in one physical block.
        dimensions: row width, rows, experts.
        expert_bytes: bytes of this role in one record.
        record_offset: where the role starts in the record.
    """

    role: int
    type_id: int
    rank: int
    block_elements: int
    dimensions: tuple[int, int, int]
    expert_bytes: int
    record_offset: int


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: where its records lie and what they hold."""

    layer_id: int
    expert_count: int
    record_bytes: int
    data_offset: int
    data_bytes: int
    components: tuple[Component, Component, Component]
    reserved: bytes = bytes(24)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Header and layers of one store."""

    header: Header
    layers: tuple[Layer, ...]

    @property
    def record_bytes(self) -> int:
        """Bytes of all records, without the padding between layers."""
        return sum(layer.expert_count * layer.record_bytes for layer in self.layers)

    @property
    def data_bytes(self) -> int:
        """Bytes of the payload."""
        return self.header.store_bytes - self.header.data_offset


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What a writer wants in one layer: for each role the block, row width and number of rows."""

    layer_id: int
    roles: tuple[tuple[Block, int, int], tuple[Block, int, int], tuple[Block, int, int]]


@dataclass(frozen=True, slots=True)
class Source:
    """What a store says of the file or checkpoint that it was made from."""

    tensor_count: int
    size_bytes: int
    sha256: bytes


def plan_manifest(
    family: int,
    storage: Storage,
    *,
    experts: int,
    used: int,
    layers: Sequence[LayerShape],
    source: Source,
) -> Manifest:
    """Returns the canonical manifest of a store: every offset decided, both digests still zero.

    Raises:
        ContractError: codec.blocks.cover, when the blocks don't cover a row exactly.
    """
    data_offset = align_up(HEADER_BYTES + LAYER_BYTES * len(layers), PAGE)
    planned, end = [], data_offset
    for shape in layers:
        start = align_up(end, PAGE)
        layer = _plan_layer(shape, experts, start)
        planned.append(layer)
        end = start + layer.data_bytes
    header = Header(
        magic=MAGIC,
        version=2,
        header_bytes=HEADER_BYTES,
        family=family,
        experts_used=used,
        layer_count=len(layers),
        expert_count=experts,
        source_tensor_count=source.tensor_count,
        descriptor_count=len(layers),
        descriptor_bytes=LAYER_BYTES * len(layers),
        descriptor_offset=HEADER_BYTES,
        data_offset=data_offset,
        data_bytes=end - data_offset,
        store_bytes=end,
        source_bytes=source.size_bytes,
        source_sha256=source.sha256,
        payload_sha256=NO_DIGEST,
        storage=storage,
        group_size=64 if storage is Storage.MLX_AFFINE4 else 0,
        manifest_sha256=NO_DIGEST,
        reserved=bytes(56),
    )
    return Manifest(header, tuple(planned))


def sign(manifest: Manifest, payload_sha256: bytes) -> Manifest:
    """Returns the manifest with the payload digest set and the manifest digest computed."""
    header = replace(manifest.header, payload_sha256=payload_sha256, manifest_sha256=NO_DIGEST)
    unsigned = Manifest(header, manifest.layers)
    return Manifest(
        replace(header, manifest_sha256=manifest_digest(pack_manifest(unsigned))), manifest.layers
    )


def manifest_digest(table: bytes) -> bytes:
    """Returns the SHA-256 of header and descriptors with the digest's own field zeroed."""
    cleared = bytearray(table)
    cleared[_MANIFEST_DIGEST] = NO_DIGEST
    return hashlib.sha256(cleared).digest()


def pack_manifest(manifest: Manifest) -> bytes:
    """Returns the bytes of header and descriptors."""
    header = manifest.header
    fields = [getattr(header, name) for name in Header.__slots__]
    return _HEADER.pack(*fields) + b"".join(_pack_layer(layer) for layer in manifest.layers)


def unpack_header(data: bytes) -> Header:
    """Returns the 256 header bytes as fields; nothing is judged."""
    return Header(*_HEADER.unpack(data))


def unpack_layers(data: bytes) -> tuple[Layer, ...]:
    """Returns descriptors of 224 bytes each as fields; nothing is judged."""
    return tuple(
        _unpack_layer(data[start : start + LAYER_BYTES]) for start in range(0, len(data), LAYER_BYTES)
    )


def _plan_layer(shape: LayerShape, experts: int, start: int) -> Layer:
    components, offset = [], 0
    for role, (block, width, rows) in enumerate(shape.roles):
        size = row_bytes(width, block, f"layer {shape.layer_id} {ROLES[role]}") * rows
        components.append(
            Component(role, block.type_id, 3, block.elements, (width, rows, experts), size, offset)
        )
        offset += size
    gate, up, down = components
    return Layer(shape.layer_id, experts, offset, start, offset * experts, (gate, up, down))


def _pack_layer(layer: Layer) -> bytes:
    head = _LAYER.pack(
        layer.layer_id, layer.expert_count, layer.record_bytes, layer.data_offset, layer.data_bytes
    )
    parts = [
        _COMPONENT.pack(
            one.role,
            one.type_id,
            one.rank,
            one.block_elements,
            *one.dimensions,
            one.expert_bytes,
            one.record_offset,
        )
        for one in layer.components
    ]
    return head + b"".join(parts) + layer.reserved


def _unpack_layer(data: bytes) -> Layer:
    layer_id, experts, record_bytes, start, size = _LAYER.unpack_from(data, 0)
    gate, up, down = (
        _unpack_component(data, _LAYER.size + _COMPONENT.size * role) for role in range(len(ROLES))
    )
    return Layer(layer_id, experts, record_bytes, start, size, (gate, up, down), data[200:224])


def _unpack_component(data: bytes, offset: int) -> Component:
    role, type_id, rank, elements, width, rows, experts, size, start = _COMPONENT.unpack_from(data, offset)
    return Component(role, type_id, rank, elements, (width, rows, experts), size, start)
