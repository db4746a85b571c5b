"""What must hold in the manifest and the pages of a PLE store, every disagreement at its own clause.

A reader compares; it doesn't discover. The caller states one geometry and one codec, and each field that differs
is named.
"""

import hashlib
from typing import Final

from assay.impl.stores.extents import Extent
from assay.impl.stores.ple_rows.layout import (
    HEADER_BYTES,
    MANIFEST_DIGEST,
    NO_DIGEST,
    PAGE_HEADER,
    PAGE_HEADER_BYTES,
    STAGE,
    PleGeometry,
    PleHeader,
    expected_header,
)
from assay.spec.clauses import Authority, declare
from assay.spec.errors import Finding

_SOURCE = "PLE rows v1, reader semantics"


def _clause(name: str, meaning: str, cause: str, authority: Authority = Authority.PIN) -> str:
    return declare(f"ple-store.{name}", authority, meaning, source=_SOURCE, cause=cause)


SIZE: Final = _clause("size", "A store holds at least its header.", "a truncated file", Authority.FORM)
MAGIC: Final = _clause("magic", "A store starts with DS4PLEV1.", "another kind of file", Authority.FORM)
VERSION: Final = _clause("version", "Version 1 with a header of 512 bytes.", "a store of another version")
FAMILY: Final = _clause("family", "The family is the caller's.", "a store of another model family")
PROFILE: Final = _clause("profile", "The profile id is the caller's.", "a store of another profile")
HASH: Final = _clause("hash-id", "The hash id is the caller's.", "rows placed by another hash")
CODEC_MATCH: Final = _clause(
    "codec.match", "Codec id, version, group and row bytes are the caller's.", "rows in another encoding"
)
TABLE: Final = _clause(
    "table", "Rows, width and row alignment are the caller's.", "a table of another geometry"
)
PAGES: Final = _clause(
    "pages", "Rows a page, page alignment and page header are the caller's.", "another page geometry"
)
HEADS_MATCH: Final = _clause(
    "heads.match", "Head primes and offsets are the caller's; unused places are zero.", "another hash table"
)
RESERVED: Final = _clause("reserved", "Reserved bytes are zero.", "bytes of a newer version", Authority.FORM)
DERIVED: Final = _clause(
    "derived", "Counts and extents are those that the geometry gives.", "a damaged or truncated store",
    Authority.RULE,
)  # fmt: skip
STORE_ALIGNMENT: Final = _clause(
    "store-alignment",
    "A store starts on a page of its file.",
    "a store moved inside its file",
    Authority.RULE,
)
MANIFEST_DIGEST_CLAUSE: Final = _clause(
    "manifest-digest", "The manifest digest is that of header, digest table and padding.",
    "a damaged header or digest table", Authority.RULE,
)  # fmt: skip
PADDING: Final = _clause(
    "padding", "Between digest table and payload lie zeros.", "bytes hidden in the store", Authority.FORM
)
PAGE_HEADER_CLAUSE: Final = _clause(
    "page.header", "A page repeats its place and the geometry.",
    "a page of another place or another store", Authority.RULE,
)  # fmt: skip
PAGE_DIGEST: Final = _clause(
    "page.digest", "A page has the digest that the table states.", "a damaged page", Authority.RULE
)
PAGE_TAIL: Final = _clause(
    "page.tail", "A page is zero behind its last valid row.", "bytes hidden in a page", Authority.FORM
)
PAYLOAD_DIGEST: Final = _clause(
    "payload-digest", "The payload digest is that of all pages in order.",
    "pages that were exchanged and signed again", Authority.RULE,
)  # fmt: skip
PAGE_SIZE: Final = _clause(
    "page.size", "A page that is read whole has at most 64 MiB.",
    "a structural store that puts all rows in one page", Authority.FORM,
)  # fmt: skip
ROW: Final = _clause("row", "A row number is inside the table.", "a hash of another table", Authority.FORM)

_FIELDS: Final = {
    "version": VERSION, "header_bytes": VERSION, "family": FAMILY, "head_count": HEADS_MATCH,
    "profile": PROFILE, "hash_id": HASH, "codec_id": CODEC_MATCH, "codec_version": CODEC_MATCH,
    "group_size": CODEC_MATCH, "row_bytes": CODEC_MATCH, "rows_per_page": PAGES, "page_alignment": PAGES,
    "page_header_bytes": PAGES, "rows": TABLE, "width": TABLE, "row_alignment": TABLE, "primes": HEADS_MATCH,
    "offsets": HEADS_MATCH, "reserved": RESERVED, "page_count": DERIVED, "page_stride": DERIVED,
    "table_offset": DERIVED, "table_bytes": DERIVED, "payload_offset": DERIVED, "payload_bytes": DERIVED,
    "store_bytes": DERIVED,
}  # fmt: skip
"""Header field -> clause, in the order of the reader's checks."""

_PAGE_FIELDS: Final = (
    "magic", "version", "header_bytes", "page_index", "first_row", "valid_rows", "width", "row_bytes",
    "rows_per_page", "codec_version", "group_size", "family", "zero",
)  # fmt: skip


def judge_ple_header(header: PleHeader, geometry: PleGeometry, extent: Extent) -> list[Finding]:
    """Returns each header field that is not the one that the geometry asks for, and where the store doesn't fit."""
    wanted = expected_header(geometry)
    findings = []
    if extent.start % geometry.page_alignment:
        findings.append(
            _finding(
                STORE_ALIGNMENT, "store offset", f"a multiple of {geometry.page_alignment}", extent.start
            )
        )
    if header.magic != wanted.magic:
        findings.append(_finding(MAGIC, "magic", wanted.magic, header.magic))
        return findings
    for name, code in _FIELDS.items():
        expected, got = getattr(wanted, name), getattr(header, name)
        if isinstance(expected, tuple):
            findings += [
                _finding(code, f"{name}[{head}]", one, other)
                for head, (one, other) in enumerate(zip(expected, got, strict=True))
                if one != other
            ]
        elif expected != got:
            findings.append(_finding(code, name, _shown(expected), _shown(got)))
    if extent.size != geometry.store_bytes:
        findings.append(_finding(DERIVED, "extent", geometry.store_bytes, extent.size))
    return findings


def judge_page(page: bytes, index: int, geometry: PleGeometry, digest: bytes) -> list[Finding]:
    """Returns what is wrong with one whole page against its place, its geometry and its digest."""
    findings = []
    header = geometry.page_header(index)
    if page[:PAGE_HEADER_BYTES] != header:
        wanted, found = PAGE_HEADER.unpack(header), PAGE_HEADER.unpack(page[:PAGE_HEADER_BYTES])
        findings += [
            _finding(PAGE_HEADER_CLAUSE, f"pages[{index}].{name}", one, other)
            for name, one, other in zip(_PAGE_FIELDS, wanted, found, strict=True)
            if one != other
        ]
    got = hashlib.sha256(page).digest()
    if got != digest:
        findings.append(_finding(PAGE_DIGEST, f"pages[{index}]", digest.hex(), got.hex()))
    used = PAGE_HEADER_BYTES + geometry.valid_rows(index) * geometry.codec.row_bytes
    tail = page[used:].lstrip(b"\0")
    if tail:
        where = f"pages[{index}] byte {len(page) - len(tail)}"
        findings.append(_finding(PAGE_TAIL, where, "0x00", f"{tail[0]:#04x}"))
    return findings


def manifest_hash(head: bytes) -> "hashlib._Hash":
    """Returns the hash of the manifest after its header, to be fed with digest table and padding."""
    cleared = bytearray(head)
    cleared[MANIFEST_DIGEST] = NO_DIGEST
    return hashlib.sha256(cleared[:HEADER_BYTES])


def _shown(value: object) -> object:
    return value.rstrip(b"\0") if isinstance(value, bytes) and len(value) == 32 else value


def _finding(code: str, where: str, expected: object, got: object) -> Finding:
    return Finding.of(code, STAGE, where, expected=expected, got=got)
