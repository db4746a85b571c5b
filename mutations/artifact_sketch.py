"""A structural fixture that can be taken apart: entries, records, manifests and places, each free to be wrong.

The real writer can't write a wrong file, so the mutations have a renderer of their own. It shares no code with the
writer or the parser: offsets, encodings and digests are stated here once more, from the published tables.
"""

import hashlib
import os
import stat
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.artifact.descriptor import fixture_descriptor
from assay.impl.stores.artifact.structural import plan_structural
from assay.impl.stores.expert_major.layout import NO_DIGEST, pack_manifest, sign
from assay.impl.stores.extents import Extent, Filesystem, StoreFile
from assay.impl.stores.gguf.values import Value
from assay.impl.stores.ple_rows.layout import expected_header, pack_ple_header

EXPERT: Final = "ds4.expert_major.v2"
PLE: Final = "ds4.ple_rows.v1"
WIDTH_OF_TYPE: Final = {0: 4, 1: 2, 24: 1, 30: 2}
_PAGE: Final = 4096
_ALIGNMENT: Final = 32
_DESCRIPTOR: Final = 1 << 30
EXPERT_DIGEST: Final = slice(168, 200)
PLE_DIGEST: Final = slice(376, 408)


@dataclass(slots=True)
class Record:
    """One record of the tensor directory."""

    name: str
    dimensions: list[int]
    type_id: int
    offset: int = 0

    @property
    def size(self) -> int:
        """Bytes of the tensor."""
        size = WIDTH_OF_TYPE[self.type_id]
        for extent in self.dimensions:
            size *= extent
        return size


@dataclass(slots=True)
class Sketch:
    """A file before it is written.

    Attributes:
        entries: metadata as [key, value].
        records: the directory.
        expert: header and descriptors of the expert store.
        rows: header, digest table and padding of the row store.
        expert_at: where the expert store's bytes are written.
        rows_at: where the row store's bytes are written.
        file_bytes: length of the file.
        patches: bytes to write over the rest, by absolute offset.
        magic: first four bytes, as a number.
        version: format version.
        counts: tensor and metadata count, when they shall not be the true ones.
    """

    entries: list[tuple[str, Value]]
    records: list[Record]
    expert: bytearray
    rows: bytearray
    expert_at: int = 0
    rows_at: int = 0
    file_bytes: int = 0
    patches: dict[int, bytes] = field(default_factory=dict)
    magic: int = 0x46554747
    version: int = 3
    counts: tuple[int | None, int | None] = (None, None)

    def record(self, name: str) -> Record:
        """Returns the first record of a name."""
        return next(one for one in self.records if one.name == name)

    def entry(self, key: str) -> int:
        """Returns the place of an entry."""
        return next(place for place, (found, _) in enumerate(self.entries) if found == key)

    def set_entry(self, key: str, value: Value) -> None:
        """Replaces the value of an entry."""
        self.entries[self.entry(key)] = (key, value)

    def lay_out(self) -> None:
        """Gives every record its canonical offset, and the stores their places."""
        start = self.data_start
        end = start
        for one in self.records:
            step = _PAGE if one.name in {EXPERT, PLE} else _ALIGNMENT
            place = -(-end // step) * step
            one.offset = place - start
            if one.name == EXPERT:
                self.expert_at = place
            elif one.name == PLE:
                self.rows_at = place
            end = place + one.size
        self.file_bytes = -(-end // _ALIGNMENT) * _ALIGNMENT

    @property
    def data_start(self) -> int:
        """First byte of the tensor data."""
        directory = sum(len(one.name.encode()) + 24 + 8 * len(one.dimensions) for one in self.records)
        size = 24 + sum(len(_encoded(key, value)) for key, value in self.entries) + directory
        return -(-size // _ALIGNMENT) * _ALIGNMENT

    def head(self) -> bytes:
        """Returns everything from the magic to the data."""
        tensors, entries = self.counts
        parts = [
            struct.pack(
                "<IIQQ",
                self.magic,
                self.version,
                len(self.records) if tensors is None else tensors,
                len(self.entries) if entries is None else entries,
            )
        ]
        parts += [_encoded(key, value) for key, value in self.entries]
        for one in self.records:
            name = one.name.encode()
            parts.append(struct.pack("<Q", len(name)) + name)
            rank = len(one.dimensions)
            parts.append(struct.pack(f"<I{rank}QIQ", rank, *one.dimensions, one.type_id, one.offset))
        data = b"".join(parts)
        return data.ljust(-(-len(data) // _ALIGNMENT) * _ALIGNMENT, b"\0")

    def pieces(self) -> dict[int, bytes]:
        """Returns the bytes that are not a hole, by absolute offset; later ones lie over earlier ones."""
        found = {0: self.head()}
        for place, data in ((self.expert_at, self.expert), (self.rows_at, self.rows)):
            if place:  # a store that was removed or renamed has no place
                found[place] = bytes(data)
        return found | self.patches

    def sign_expert(self) -> None:
        """Makes the expert store's manifest digest right again."""
        self.expert[EXPERT_DIGEST] = bytes(32)
        self.expert[EXPERT_DIGEST] = hashlib.sha256(self.expert).digest()

    def sign_rows(self) -> None:
        """Makes the row store's manifest digest right again."""
        self.rows[PLE_DIGEST] = bytes(32)
        self.rows[PLE_DIGEST] = hashlib.sha256(self.rows).digest()

    def write(self, path: Path) -> None:
        """Writes the file, sparse."""
        with path.open("wb") as file:
            file.truncate(self.file_bytes)
            for offset, data in self.pieces().items():
                file.seek(offset)
                file.write(data[: max(0, self.file_bytes - offset)])

    def extent(self) -> Extent:
        """Returns the file without writing it."""
        return StoreFile(_DESCRIPTOR, "sketch.gguf", SparseSystem(self.pieces(), self.file_bytes)).extent()


class SparseSystem(Filesystem):
    """A file system with one regular file that is a few pieces in a hole; it is never opened for real."""

    def __init__(self, pieces: dict[int, bytes], size: int) -> None:
        self.pieces = pieces
        self.size = size

    def close(self, descriptor: int) -> None:
        """Does nothing: no descriptor is real."""

    def duplicate(self, descriptor: int) -> int:
        """Returns the descriptor: no descriptor is real."""
        return descriptor

    def status(self, descriptor: int) -> os.stat_result:
        """Returns the status of a regular file of this size."""
        del descriptor
        return os.stat_result((stat.S_IFREG | 0o644, 1, 1, 1, 0, 0, self.size, 0, 0, 0))

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        """Returns bytes of the pieces, and zeros between them."""
        del descriptor
        data = bytearray(max(0, min(size, self.size - offset)))
        for start, piece in self.pieces.items():
            begin, end = max(start, offset), min(start + len(piece), offset + len(data))
            if begin < end:
                data[begin - offset : end - offset] = piece[begin - start : end - start]
        return bytes(data)

    def will_need(self, descriptor: int, offset: int, size: int) -> None:
        """Does nothing: the bytes are here."""


def structural_sketch(change: Callable[[Sketch], None] | None = None) -> Sketch:
    """Returns the fixture, with a change of entries or records made before the file is laid out."""
    model = _fixture()
    sketch = Sketch(
        list(model.entries),
        [Record(one.name, list(one.dimensions), one.type_id) for one in model.records],
        bytearray(model.expert),
        bytearray(model.rows),
    )
    if change is not None:
        change(sketch)
    sketch.lay_out()
    return sketch


def put(buffer: bytearray, offset: int, form: str, *values: Any) -> None:
    """Writes little-endian values into a manifest."""
    struct.pack_into(f"<{form}", buffer, offset, *values)


@cache
def _fixture() -> Sketch:
    descriptor = fixture_descriptor()
    plan, manifest = plan_structural(descriptor)
    rows = bytearray(pack_ple_header(expected_header(descriptor.rows)).ljust(_PAGE, b"\0"))
    sketch = Sketch(
        [(key, value) for key, value in descriptor.entries.items()],
        [Record(one.name, list(one.dimensions), one.type_id) for one in plan.tensors],
        bytearray(pack_manifest(sign(manifest, NO_DIGEST))),
        rows,
    )
    sketch.sign_rows()
    return sketch


def _encoded(key: str, value: Value) -> bytes:
    name = key.encode()
    head = struct.pack("<Q", len(name)) + name + struct.pack("<I", value.type)
    if value.element is not None:
        head += struct.pack("<IQ", value.element, value.count)
    return head + value.data
