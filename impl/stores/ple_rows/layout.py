"""The bytes of PLE rows v1: header, page headers, and where every row lies.

Layout: header (512) | one SHA-256 a page | zeros up to the payload offset | pages of one fixed stride. A row is
found by arithmetic; there is no index of rows. Every extent is checked against 2^63 before anything is read.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from assay.impl.stores.arguments import integer
from assay.impl.stores.gguf.reader import align_up
from assay.spec.clauses import Authority, declare
from assay.spec.errors import ContractError, Finding

MAGIC: Final = b"DS4PLEV1"
PAGE_MAGIC: Final = b"DS4PLPG1"
HEADER_BYTES: Final = 512
PAGE_HEADER_BYTES: Final = 64
DIGEST_BYTES: Final = 32
MAX_HEADS: Final = 16
PRIVATE_FAMILIES: Final = range(0x80000000, 1 << 32)
MAX_EXTENT: Final = (1 << 63) - 1
NO_DIGEST: Final = bytes(32)
STAGE: Final = "ple-store"

HEADER: Final = struct.Struct("<8s4I32s32s32s6IQ2I7Q16I16I32s32s104s")
PAGE_HEADER: Final = struct.Struct("<8sIIQQ8I")
MANIFEST_DIGEST: Final = slice(376, 408)
_PLACE: Final = struct.Struct("<QQI")

_SOURCE = "PLE rows v1, geometry rules; AFN-003"


def _clause(name: str, meaning: str, cause: str) -> str:
    return declare(f"ple-store.{name}", Authority.RULE, meaning, source=_SOURCE, cause=cause)


CODEC: Final = _clause(
    "codec", "A codec has an id of 1 to 31 characters, a version, a group and row bytes, none zero.",
    "an unfinished codec descriptor",
)  # fmt: skip
ROWS: Final = _clause(
    "rows", "The rows are the head segments, aligned up to the row alignment.", "rows of another table"
)
HEADS: Final = _clause(
    "heads", "1 to 16 head segments follow each other, each as long as its prime, from row 0.",
    "primes or offsets of another table",
)  # fmt: skip
ROW_ALIGNMENT: Final = _clause("row-alignment", "The row alignment is a power of two.", "a damaged header")
NAMES: Final = _clause(
    "names", "Family, profile and hash id can be written, and a private profile is no public one's name.",
    "a private store under a public name",
)  # fmt: skip
_PUBLIC_PROFILES: Final = "qwen4exp"
PAGE_ALIGNMENT: Final = _clause(
    "page-alignment", "The page alignment is a power of two, at least 4096.", "a damaged header"
)
EXTENT: Final = _clause(
    "extent", "Page stride and all extents stay below 2^63 bytes.", "a geometry that wraps around"
)


@dataclass(frozen=True)
class RowCodec:
    """How one row is encoded, as the store names it.

    Attributes:
        id: 1 to 31 characters.
        version: version of the codec.
        group_size: values that share a scale; 1 without scales.
        row_bytes: bytes of one encoded row.
    """

    id: str
    version: int
    group_size: int
    row_bytes: int


@dataclass(frozen=True)
class RowTable:
    """Which rows exist, before anything is said of pages.

    Attributes:
        family: number of the model family.
        profile: profile id, up to 32 bytes.
        hash_id: id of the hash that makes row numbers, up to 32 bytes.
        rows: rows in the table, padding rows included.
        width: values in one row.
        row_alignment: rows are padded to a multiple of this.
        primes: rows of each head segment.
        offsets: first row of each head segment.
    """

    family: int
    profile: str
    hash_id: str
    rows: int
    width: int
    row_alignment: int
    primes: tuple[int, ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class PleGeometry:
    """Everything that fixes the bytes of a store except the rows themselves.

    Attributes:
        table: the rows.
        codec: their encoding.
        rows_per_page: rows in one page.
        page_alignment: pages start and end on multiples of this.
    """

    table: RowTable
    codec: RowCodec
    rows_per_page: int
    page_alignment: int

    @cached_property
    def page_count(self) -> int:
        """Number of pages."""
        return 1 + (self.table.rows - 1) // self.rows_per_page

    @cached_property
    def page_stride(self) -> int:
        """Bytes of one page."""
        return align_up(PAGE_HEADER_BYTES + self.rows_per_page * self.codec.row_bytes, self.page_alignment)

    @cached_property
    def table_bytes(self) -> int:
        """Bytes of the digest table."""
        return DIGEST_BYTES * self.page_count

    @cached_property
    def payload_offset(self) -> int:
        """Where the first page starts in the store."""
        return align_up(HEADER_BYTES + self.table_bytes, self.page_alignment)

    @cached_property
    def payload_bytes(self) -> int:
        """Bytes of all pages."""
        return self.page_count * self.page_stride

    @cached_property
    def store_bytes(self) -> int:
        """Bytes of the store."""
        return self.payload_offset + self.payload_bytes

    def valid_rows(self, page: int) -> int:
        """Returns how many rows a page holds; only the last one may hold fewer than the others."""
        return min(self.rows_per_page, self.table.rows - page * self.rows_per_page)

    def page_header(self, page: int) -> bytes:
        """Returns the 64 bytes that start a page."""
        codec = self.codec
        return PAGE_HEADER.pack(
            PAGE_MAGIC,
            1,
            PAGE_HEADER_BYTES,
            page,
            page * self.rows_per_page,
            self.valid_rows(page),
            self.table.width,
            codec.row_bytes,
            self.rows_per_page,
            codec.version,
            codec.group_size,
            self.table.family,
            0,
        )


class PageHeaders:
    """The 64 bytes that start each page, ready to be compared with: all but the place is the same everywhere."""

    def __init__(self, geometry: PleGeometry) -> None:
        first = geometry.page_header(0)
        self._head, self._rest = first[:16], first[36:]
        self._rows = geometry.table.rows
        self._rows_per_page = geometry.rows_per_page

    def match(self, data: bytes | memoryview, page: int) -> bool:
        """Says whether `data` starts with the header of a page."""
        first = page * self._rows_per_page
        valid = min(self._rows_per_page, self._rows - first)
        return data[:PAGE_HEADER_BYTES] == self._head + _PLACE.pack(page, first, valid) + self._rest


@dataclass(frozen=True, slots=True)
class PleHeader:
    """The header, field by field, in file order; the 16 primes and 16 offsets are tuples."""

    magic: bytes
    version: int
    header_bytes: int
    family: int
    head_count: int
    profile: bytes
    hash_id: bytes
    codec_id: bytes
    codec_version: int
    group_size: int
    row_bytes: int
    rows_per_page: int
    page_alignment: int
    page_header_bytes: int
    rows: int
    width: int
    row_alignment: int
    page_count: int
    page_stride: int
    table_offset: int
    table_bytes: int
    payload_offset: int
    payload_bytes: int
    store_bytes: int
    primes: tuple[int, ...]
    offsets: tuple[int, ...]
    payload_sha256: bytes
    manifest_sha256: bytes
    reserved: bytes


def unpack_ple_header(data: bytes) -> PleHeader:
    """Returns the 512 header bytes as fields; nothing is judged."""
    fields = HEADER.unpack(data)
    values: list[Any] = [*fields[:24], fields[24:40], fields[40:56], *fields[56:]]
    return PleHeader(*values)


def pack_ple_header(header: PleHeader) -> bytes:
    """Returns the 512 bytes of a header."""
    fields = [getattr(header, name) for name in PleHeader.__slots__]
    return HEADER.pack(*fields[:24], *header.primes, *header.offsets, *fields[26:])


def expected_header(geometry: PleGeometry) -> PleHeader:
    """Returns the header that a geometry asks for, with both digests zero."""
    table, codec = geometry.table, geometry.codec
    spare = (0,) * (MAX_HEADS - len(table.primes))
    return PleHeader(
        magic=MAGIC,
        version=1,
        header_bytes=HEADER_BYTES,
        family=table.family,
        head_count=len(table.primes),
        profile=_text(table.profile),
        hash_id=_text(table.hash_id),
        codec_id=_text(codec.id),
        codec_version=codec.version,
        group_size=codec.group_size,
        row_bytes=codec.row_bytes,
        rows_per_page=geometry.rows_per_page,
        page_alignment=geometry.page_alignment,
        page_header_bytes=PAGE_HEADER_BYTES,
        rows=table.rows,
        width=table.width,
        row_alignment=table.row_alignment,
        page_count=geometry.page_count,
        page_stride=geometry.page_stride,
        table_offset=HEADER_BYTES,
        table_bytes=geometry.table_bytes,
        payload_offset=geometry.payload_offset,
        payload_bytes=geometry.payload_bytes,
        store_bytes=geometry.store_bytes,
        primes=table.primes + spare,
        offsets=table.offsets + spare,
        payload_sha256=NO_DIGEST,
        manifest_sha256=NO_DIGEST,
        reserved=bytes(104),
    )


def judge_geometry(geometry: PleGeometry) -> list[Finding]:
    """Returns what makes a geometry unusable; every derived number is safe when nothing is found."""
    findings = list(_kinds(geometry))
    if findings:  # what isn't even a number can't be compared
        return findings
    findings += [*_codec(geometry.codec), *_table(geometry.table)]
    alignment = geometry.page_alignment
    if alignment < 4096 or alignment & (alignment - 1):
        findings.append(_finding(PAGE_ALIGNMENT, "page_alignment", "a power of two from 4096", alignment))
    if not 1 <= geometry.rows_per_page < 1 << 32:
        findings.append(_finding(EXTENT, "rows_per_page", "1..2^32 - 1", geometry.rows_per_page))
    if not findings and geometry.store_bytes > MAX_EXTENT:
        findings.append(_finding(EXTENT, "store_bytes", f"at most {MAX_EXTENT}", geometry.store_bytes))
    return findings


def check_geometry(geometry: PleGeometry) -> None:
    """Raises a ContractError with the first finding of `judge_geometry`."""
    findings = judge_geometry(geometry)
    if findings:
        raise ContractError(findings[0])


def _kinds(geometry: PleGeometry) -> Iterator[Finding]:
    """Yields each field that isn't of its kind: an integer, text, or a sequence of integers."""
    table, codec = geometry.table, geometry.codec
    for code, where, value in (
        (CODEC, "codec.version", codec.version),
        (CODEC, "codec.group_size", codec.group_size),
        (CODEC, "codec.row_bytes", codec.row_bytes),
        (NAMES, "family", table.family),
        (ROWS, "rows", table.rows),
        (ROWS, "width", table.width),
        (ROW_ALIGNMENT, "row_alignment", table.row_alignment),
        (EXTENT, "rows_per_page", geometry.rows_per_page),
        (PAGE_ALIGNMENT, "page_alignment", geometry.page_alignment),
    ):
        if integer(value) is None:
            yield _finding(code, where, "an integer", value)
    texts: tuple[tuple[str, str, object], ...] = (
        (CODEC, "codec.id", codec.id),
        (NAMES, "profile", table.profile),
        (NAMES, "hash_id", table.hash_id),
    )
    for code, where, text in texts:
        if not isinstance(text, str):
            yield _finding(code, where, "text", text)
    heads: tuple[tuple[str, object], ...] = (("primes", table.primes), ("offsets", table.offsets))
    for where, numbers in heads:
        if not isinstance(numbers, tuple) or any(integer(one) is None for one in numbers):
            yield _finding(HEADS, where, "a tuple of integers", numbers)


def _codec(codec: RowCodec) -> Iterator[Finding]:
    if not _is_name(codec.id, 31):
        yield _finding(CODEC, "codec.id", "1..31 printable ASCII characters", codec.id)
    for name, value in (
        ("version", codec.version),
        ("group_size", codec.group_size),
        ("row_bytes", codec.row_bytes),
    ):
        if not 1 <= value < 1 << 32:
            yield _finding(CODEC, f"codec.{name}", "1..2^32 - 1", value)


def _table(table: RowTable) -> Iterator[Finding]:
    if not 1 <= table.family < 1 << 32:
        yield _finding(NAMES, "family", "1..2^32 - 1", table.family)
    for name, value in (("profile", table.profile), ("hash_id", table.hash_id)):
        if not _is_name(value, 32):
            yield _finding(NAMES, name, "1..32 printable ASCII characters", value)
    if table.family in PRIVATE_FAMILIES and table.profile.casefold().startswith(_PUBLIC_PROFILES):
        yield _finding(NAMES, "profile", "a private name for a private family", table.profile)
    alignment = table.row_alignment
    is_power = alignment >= 1 and not alignment & (alignment - 1)
    if not is_power:
        yield _finding(ROW_ALIGNMENT, "row_alignment", "a power of two", alignment)
    if not 1 <= table.width < 1 << 32:
        yield _finding(ROWS, "width", "1..2^32 - 1", table.width)
    if not 1 <= len(table.primes) <= MAX_HEADS or len(table.primes) != len(table.offsets):
        yield _finding(HEADS, "heads", f"1..{MAX_HEADS}", f"{len(table.primes)} and {len(table.offsets)}")
        return
    end = 0
    for head, (prime, offset) in enumerate(zip(table.primes, table.offsets, strict=True)):
        if not 1 <= prime < 1 << 32:
            yield _finding(HEADS, f"primes[{head}]", "1..2^32 - 1", prime)
        if offset != end or offset >= 1 << 32:
            yield _finding(HEADS, f"offsets[{head}]", f"{end}, below 2^32", offset)
        end = offset + prime
    if is_power and table.rows != align_up(end, alignment):
        yield _finding(ROWS, "rows", f"{align_up(end, alignment)}, {end} aligned to {alignment}", table.rows)


def _is_name(text: str, longest: int) -> bool:
    return 1 <= len(text) <= longest and text.isascii() and text.isprintable()


def _text(value: str) -> bytes:
    """Returns text NUL-padded to 32 bytes.

    Raises:
        ContractError: ple.codec, when it doesn't fit.
    """
    data = value.encode("utf-8")
    if len(data) > 32:
        raise ContractError(_finding(CODEC, "text", "at most 32 bytes", f"{len(data)} bytes"))
    return data.ljust(32, b"\0")


def _finding(code: str, where: str, expected: object, got: object) -> Finding:
    return Finding.of(code, STAGE, where, expected=expected, got=got)
