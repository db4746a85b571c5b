"""Bounded reader of GGUF v3: what the file declares, with checked arithmetic and no trust.

The reader walks the directory once through a small window. It never allocates what a number in the file asks
for: counts and lengths are first compared with the bytes that are left and with limits of its own. What it can't
make sense of ends the reading with one finding. What is merely wrong (duplicates, overlaps, odd alignment) is
kept and judged by `gguf_rules`, so that all of it is reported.
"""

import struct
from dataclasses import dataclass
from typing import Final, NoReturn

from assay.impl.stores.expert_major.blocks import GGML, Block
from assay.impl.stores.extents import Extent, fail
from assay.impl.stores.gguf.values import WIDTHS, Value, ValueType
from assay.spec.clauses import Authority, declare

_SOURCE = "GGUF v3 format; the admission facts of the artifact"


def _form(name: str, meaning: str, cause: str) -> str:
    return declare(f"gguf.{name}", Authority.FORM, meaning, source=_SOURCE, cause=cause)


MAGIC: Final = _form("magic", "The file starts with the four letters GGUF.", "another kind of file")
VERSION: Final = _form("version", "The format version is 3.", "a file of an older tool, or big-endian")
TRUNCATED: Final = _form(
    "truncated", "The file holds everything that its directory declares.", "a download that ended early"
)
COUNT: Final = _form(
    "count",
    "The counts of entries and tensors can fit into the file and stay below the limit.",
    "a damaged header",
)
KEY: Final = _form("metadata.key", "A metadata key is 1 to 65535 bytes of UTF-8.", "a damaged directory")
TYPE: Final = _form("metadata.type", "A metadata value has one of the 13 known types.", "a damaged directory")
NESTING: Final = _form("metadata.nesting", "Arrays nest at most 8 deep.", "a hostile or damaged directory")
ARRAY_LENGTH: Final = _form(
    "metadata.array-length", "An array is no longer than its bytes and the limit.", "a damaged directory"
)
SIZE: Final = _form(
    "metadata.size", "All metadata together stays below the limit.", "a hostile or damaged directory"
)
ALIGNMENT: Final = _form(
    "alignment", "general.alignment is a UINT32 power of two, or absent (32).", "a writer of its own mind"
)
TENSOR_NAME: Final = _form(
    "tensor.name", "A tensor name is 1 to 65535 bytes of UTF-8.", "a damaged directory"
)
RANK: Final = _form("tensor.rank", "A tensor has 1 to 8 dimensions.", "a damaged directory")
ELEMENTS: Final = _form(
    "tensor.elements", "The number of elements of a tensor stays below 2^64.", "dimensions that wrap"
)
OFFSET: Final = _form(
    "tensor.offset", "Data start, offset and size of a tensor stay below 2^63.", "an offset that wraps"
)

STAGE: Final = "gguf"
MAX_RANK: Final = 8
MINIMUM_BYTES: Final = 32
"""A header and its alignment: no file is shorter."""
MAX_NESTING: Final = 8
MAX_ARRAY: Final = 1 << 24
MAX_STEPS: Final = 1 << 21
"""Strings and inner arrays of one file: each is walked, so that their number bounds the time."""
MAX_METADATA_BYTES: Final = 1 << 26
MAX_NAME_BYTES: Final = 65535
DEFAULT_ALIGNMENT: Final = 32
_MINIMUM_ENTRY: Final = 8 + 1 + 4 + 1
_MINIMUM_TENSOR: Final = 8 + 1 + 4 + 8 + 4 + 8
_WINDOW: Final = 1 << 16
MAX_RECORDS: Final = 1 << 17
"""Metadata entries, and tensors: each becomes an object, so that their number bounds time and memory."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One metadata entry, in file order."""

    key: str
    value: Value


@dataclass(frozen=True, slots=True)
class Tensor:
    """One record of the tensor directory.

    Attributes:
        name: tensor name.
        dimensions: fastest first, as the file has them.
        type_id: GGML type number.
        offset: from the start of the data.
        bytes: size in bytes, or None for an unknown type or a row that isn't whole blocks.
    """

    name: str
    dimensions: tuple[int, ...]
    type_id: int
    offset: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Gguf:
    """What a GGUF file declares.

    Attributes:
        entries: metadata, in file order, duplicates kept.
        tensors: directory, in file order, duplicates kept.
        alignment: value of general.alignment, or 32.
        metadata_start: offset of the first metadata entry.
        directory_start: offset of the first tensor record, where the metadata ends.
        directory_end: first byte after the directory.
        data_start: offset of the tensor data: the end of the directory, aligned.
        file_bytes: length of the file.
    """

    entries: tuple[Entry, ...]
    tensors: tuple[Tensor, ...]
    alignment: int
    metadata_start: int
    directory_start: int
    directory_end: int
    data_start: int
    file_bytes: int

    def value(self, key: str) -> Value | None:
        """Returns the first value of a key, or None."""
        return next((entry.value for entry in self.entries if entry.key == key), None)

    def tensor(self, name: str) -> Tensor | None:
        """Returns the first tensor of a name, or None."""
        return next((tensor for tensor in self.tensors if tensor.name == name), None)


def read_gguf(extent: Extent, *, blocks: dict[int, Block] = GGML) -> Gguf:
    """Reads the directory of a GGUF v3 file; no tensor data is read.

    Args:
        extent: the whole file.
        blocks: block sizes by type number, for the size of each tensor.

    Raises:
        AdmissionError: gguf.<clause>, where the first thing stands that can't be read.
    """
    cursor = _Cursor(extent)
    magic = extent.read(0, min(4, extent.size))
    if magic != b"GGUF":
        _fail(MAGIC, "magic", "GGUF", magic)
    cursor.offset = 4
    version = cursor.u32("version")
    if version == 3 << 24:
        _fail(VERSION, "version", "3, little-endian", "3, big-endian")
    if version != 3:
        _fail(VERSION, "version", 3, version)
    if extent.size < MINIMUM_BYTES:
        _fail(TRUNCATED, "file length", f"at least {MINIMUM_BYTES}", extent.size)
    tensor_count = cursor.u64("tensor count")
    entry_count = cursor.u64("metadata count")
    _check_count(cursor, entry_count, _MINIMUM_ENTRY, "metadata count")
    _check_count(cursor, tensor_count, _MINIMUM_TENSOR, "tensor count")
    metadata_start = cursor.offset
    entries = tuple(_entry(cursor, index) for index in range(entry_count))
    directory_start = cursor.offset
    alignment = _alignment(entries)
    tensors = tuple(_tensor(cursor, index, blocks) for index in range(tensor_count))
    data_start = align_up(cursor.offset, alignment)
    if data_start > extent.size and tensors:
        _fail(TRUNCATED, "data start", f"at most {extent.size}", data_start)
    for tensor in tensors:
        _check_inside(tensor, data_start, extent.size)
    return Gguf(
        entries,
        tensors,
        alignment,
        metadata_start,
        directory_start,
        cursor.offset,
        data_start,
        extent.size,
    )


def align_up(value: int, alignment: int) -> int:
    """Returns the smallest multiple of `alignment` that is not below `value`."""
    return -(-value // alignment) * alignment


class _Cursor:
    """A read position in the directory, behind a window of fixed size."""

    def __init__(self, extent: Extent) -> None:
        self.extent = extent
        self.offset = 0
        self.steps = 0
        self._window = b""
        self._window_start = 0

    @property
    def left(self) -> int:
        return self.extent.size - self.offset

    def take(self, size: int, where: str) -> bytes:
        """Returns the next `size` bytes; the size was bounded by the caller or is checked against the file here."""
        if size > self.left:
            _fail(TRUNCATED, where, f"{size} bytes at {self.offset}", f"{self.left} left")
        begin = self.offset - self._window_start
        if begin < 0 or begin + size > len(self._window):
            self._window_start = self.offset
            self._window = self.extent.read(self.offset, min(max(size, _WINDOW), self.left))
            begin = 0
        self.offset += size
        return self._window[begin : begin + size]

    def u32(self, where: str) -> int:
        return int.from_bytes(self.take(4, where), "little")

    def u64(self, where: str) -> int:
        return int.from_bytes(self.take(8, where), "little")

    def name(self, code: str, where: str) -> str:
        """Returns a key or tensor name, which is short by the format's own rule."""
        size = self.u64(where)
        if not 1 <= size <= MAX_NAME_BYTES:
            _fail(code, where, f"1..{MAX_NAME_BYTES} bytes", f"{size} bytes")
        data = self.take(size, where)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            _fail(code, where, "UTF-8", data)


def _entry(cursor: _Cursor, index: int) -> Entry:
    key = cursor.name(KEY, f"metadata[{index}].key")
    kind = _kind(cursor, key)
    if kind is not ValueType.ARRAY:
        return Entry(key, Value(kind, None, 1, _payload(cursor, kind, 1, key)))
    element = _kind(cursor, key)
    count = cursor.u64(key)
    return Entry(key, Value(kind, element, count, _payload(cursor, element, count, key)))


def _payload(cursor: _Cursor, kind: ValueType, count: int, key: str) -> bytes:
    """Returns the bytes of `count` values, after checking that they can be there and are not too many."""
    start = cursor.offset
    _skip(cursor, kind, count, key, 1)
    size = cursor.offset - start
    cursor.offset = start
    return cursor.take(size, key)


def _skip(cursor: _Cursor, kind: ValueType, count: int, key: str, depth: int) -> None:
    width = WIDTHS.get(kind, 8 if kind is ValueType.STRING else 12)
    if count > MAX_ARRAY or count * width > cursor.left:
        _fail(ARRAY_LENGTH, key, f"at most {min(MAX_ARRAY, cursor.left // width)} elements", count)
    if kind not in WIDTHS:
        cursor.steps += count
        if cursor.steps > MAX_STEPS:
            _fail(ARRAY_LENGTH, key, f"at most {MAX_STEPS} strings and inner arrays in a file", cursor.steps)
    if kind in WIDTHS:
        cursor.offset += count * width
    elif kind is ValueType.STRING:
        for _ in range(count):
            size = cursor.u64(key)
            if size > cursor.left:
                _fail(TRUNCATED, key, f"a string of {size} bytes", f"{cursor.left} left")
            cursor.offset += size
    else:
        for _ in range(count):
            if depth >= MAX_NESTING:
                _fail(NESTING, key, f"at most {MAX_NESTING} levels", depth + 1)
            element = _kind(cursor, key)
            _skip(cursor, element, cursor.u64(key), key, depth + 1)
    if cursor.offset > MAX_METADATA_BYTES:
        _fail(SIZE, key, f"at most {MAX_METADATA_BYTES} bytes of metadata", cursor.offset)


def _kind(cursor: _Cursor, key: str) -> ValueType:
    code = cursor.u32(key)
    try:
        return ValueType(code)
    except ValueError:
        _fail(TYPE, key, "a type in 0..12", code)


def _tensor(cursor: _Cursor, index: int, blocks: dict[int, Block]) -> Tensor:
    name = cursor.name(TENSOR_NAME, f"tensors[{index}].name")
    rank = cursor.u32(f"{name}.rank")
    if not 1 <= rank <= MAX_RANK:
        _fail(RANK, f"{name}.rank", f"1..{MAX_RANK}", rank)
    dimensions = struct.unpack(f"<{rank}Q", cursor.take(8 * rank, f"{name}.dim"))
    type_id = cursor.u32(f"{name}.type")
    offset = cursor.u64(f"{name}.offset")
    elements = 1
    for one in dimensions:
        elements *= one
        if elements >= 1 << 64:
            _fail(ELEMENTS, f"{name}.dim", "fewer than 2^64 elements", list(dimensions))
    block = blocks.get(type_id)
    if block is None or dimensions[0] % block.elements:
        return Tensor(name, dimensions, type_id, offset, None)
    return Tensor(name, dimensions, type_id, offset, elements // block.elements * block.bytes)


def _check_inside(tensor: Tensor, data_start: int, file_bytes: int) -> None:
    size = tensor.bytes or 0
    where = f"{tensor.name}.offset"
    if data_start + tensor.offset + size >= 1 << 63:
        _fail(OFFSET, where, "an end below 2^63", tensor.offset)
    if tensor.offset + size > file_bytes - data_start:
        _fail(
            TRUNCATED,
            where,
            f"at most {max(0, file_bytes - data_start - size)} ({size} bytes of {file_bytes - data_start})",
            tensor.offset,
        )


def _alignment(entries: tuple[Entry, ...]) -> int:
    value = next((entry.value for entry in entries if entry.key == "general.alignment"), None)
    if value is None:
        return DEFAULT_ALIGNMENT
    number = value.python() if value.type is ValueType.UINT32 else 0
    if not isinstance(number, int) or number < 1 or number & (number - 1) or number > 1 << 30:
        _fail(ALIGNMENT, "general.alignment", "a UINT32 power of two up to 2^30", value.shown())
    return number


def _check_count(cursor: _Cursor, count: int, least: int, where: str) -> None:
    most = min(MAX_RECORDS, cursor.left // least)
    if count > most:
        _fail(COUNT, where, f"at most {most}", count)


def _fail(code: str, where: str, expected: object, got: object) -> NoReturn:
    fail(code, where, expected=expected, got=got, stage=STAGE)
