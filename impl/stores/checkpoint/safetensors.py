"""Reads and judges the header of a safetensors file; the payload is never touched.

The file is an unsigned 64-bit little-endian header length, that many bytes of JSON (padded with spaces at its
end), and the payload. The spans of the tensors must partition the payload: no overlap, no hole, no byte that no
tensor owns. The order of the entries in the header means nothing.
"""

import hashlib
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.files import EMPTY, open_regular, read_exactly
from assay.impl.stores.strict_json import json_type, parse_json, require_object
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding

_FORMAT: Final = "safetensors format"


def _clause(name: str, meaning: str, cause: str, fix: str = "") -> str:
    return declare(f"safetensors.{name}", Authority.RULE, meaning, source=_FORMAT, cause=cause, fix=fix)


LENGTH: Final = _clause(
    "header.length", "The header length is at least 2, at most 100,000,000, and lies inside the file.",
    "not a safetensors file, or one cut short",
)  # fmt: skip
FORM: Final = _clause(
    "header.form", "The header is a JSON object that begins with its brace; only spaces pad its end.",
    "a file written by hand, or bytes of something else",
)  # fmt: skip
METADATA: Final = _clause(
    "metadata.form",
    "`__metadata__` maps text to text.",
    "a writer that stores numbers or nested values there",
)
NAME: Final = _clause(
    "tensor.name", "A tensor has a name, of printable text without control characters.", "damaged header"
)
ENTRY: Final = _clause(
    "tensor.form", "An entry holds exactly `dtype`, `shape` and `data_offsets`, of their types.",
    "damaged header, or a dialect with more fields",
)  # fmt: skip
DTYPE: Final = _clause("dtype.known", "The dtype is one that the format names.", "a newer or private dialect")
SHAPE: Final = _clause(
    "shape.product", "The product of the dimensions, in bits, stays below 2^63, computed without wrapping.",
    "a corrupted dimension",
)  # fmt: skip
ORDER: Final = _clause(
    "span.order", "A span's end is not before its begin, and both are unsigned.", "damaged offsets"
)
WIDTH: Final = _clause(
    "span.bytes", "Shape product times dtype width equals the length of the span.",
    "shape or dtype edited without rewriting the payload",
)  # fmt: skip
INSIDE: Final = _clause(
    "span.inside", "A span ends inside the payload.", "a truncated file or a damaged offset"
)
OVERLAP: Final = _clause("span.overlap", "No byte of the payload is owned by two tensors.", "damaged offsets")
HOLE: Final = _clause(
    "span.hole", "No byte between two tensors is unowned.", "a dropped tensor or a damaged offset"
)
TRAILING: Final = _clause(
    "span.trailing", "The payload ends where its last tensor ends.", "bytes appended, or a tensor dropped"
)

HEADER_LIMIT_BYTES: Final = 100_000_000
LENGTH_BYTES: Final = 8
DTYPE_BITS: Final[dict[str, int]] = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64,
    "U64": 64,
}  # fmt: skip
_PRODUCT_LIMIT_BITS: Final = (1 << 63) - 1
_UNSIGNED_LIMIT: Final = 1 << 64
STAGE: Final = "headers"


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One entry of a header; the span is in bytes from the start of the payload."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """What one header says.

    Attributes:
        file: name of the file, for findings and the inventory.
        tensors: the entries that could be read, in the order of the header.
        metadata: the `__metadata__` map.
        data_start: offset of the payload in the file, in bytes.
        payload_bytes: length of the payload, or None when only the header is at hand.
        sha256: digest of the header bytes, padding included, the length not.
        unread: names of the entries that could not be read.
    """

    file: str
    tensors: tuple[StoredTensor, ...]
    metadata: dict[str, str]
    data_start: int
    payload_bytes: int | None
    sha256: str
    unread: frozenset[str] = frozenset()


def read_header(path: Path) -> tuple[Header | None, list[Finding]]:
    """Reads the header of a file and judges it; None when it can't be read at all.

    At most 8 bytes plus the header are read, and no more is allocated than the file can hold.
    """
    try:
        raw, size = _header_bytes(path, path.name)
    except AdmissionError as error:
        return None, [error.finding]
    return parse_header(raw, file=path.name, payload_bytes=size - LENGTH_BYTES - len(raw))


def parse_header(raw: bytes, *, file: str, payload_bytes: int | None) -> tuple[Header | None, list[Finding]]:
    """Judges header bytes; returns what could be read and every finding.

    Args:
        raw: the header without its length, padding included.
        file: name of the file, the first part of every `where`.
        payload_bytes: length of the payload, or None when unknown; then the end of the payload is not judged.
    """
    if not raw.startswith(b"{"):
        return None, [_not_an_object(file, raw[:1])]
    try:
        fields = require_object(parse_json(raw, stage=STAGE, where=file), stage=STAGE, where=file)
    except AdmissionError as error:
        return None, [error.finding]
    findings: list[Finding] = []
    if raw.rstrip(b" ")[-1:] != b"}":
        findings.append(Finding.of(FORM, STAGE, file, expected="spaces after '}'", got="other white space"))
    metadata = _read_metadata(fields.pop("__metadata__", None), file, findings)
    tensors = tuple(
        tensor
        for name, entry in fields.items()
        if (tensor := _read_entry(name, entry, file, findings)) is not None
    )
    findings += judge_spans(
        tensors, file=file, payload_bytes=payload_bytes, complete=len(tensors) == len(fields)
    )
    unread = frozenset(fields.keys() - {tensor.name for tensor in tensors})
    digest = hashlib.sha256(raw).hexdigest()
    header = Header(file, tensors, metadata, LENGTH_BYTES + len(raw), payload_bytes, digest, unread)
    return header, findings


def judge_spans(
    tensors: Iterable[StoredTensor], *, file: str, payload_bytes: int | None, complete: bool = True
) -> list[Finding]:
    """Judges whether the spans partition the payload; all comparisons are of unwrapped integers.

    Args:
        tensors: entries in any order.
        file: first part of every `where`.
        payload_bytes: length of the payload, or None when unknown.
        complete: whether every entry could be read; otherwise unowned bytes are no news.
    """
    findings: list[Finding] = []
    cursor, owner = 0, "the start of the payload"
    for tensor in sorted(tensors, key=lambda one: (one.begin, one.end, one.name)):
        where = f"{file}: {tensor.name}"
        if payload_bytes is not None and tensor.end > payload_bytes:
            findings.append(
                Finding.of(
                    INSIDE, STAGE, where, expected=f"an end of at most {payload_bytes}", got=tensor.end
                )
            )
            continue
        if tensor.begin < cursor:
            findings.append(
                Finding.of(
                    OVERLAP, STAGE, where,
                    expected=f"a begin of at least {cursor}, the end of {owner}", got=f"[{tensor.begin}, {tensor.end})",
                )
            )  # fmt: skip
        elif tensor.begin > cursor and complete:
            findings.append(
                Finding.of(
                    HOLE, STAGE, where,
                    expected=f"a begin of {cursor}, the end of {owner}",
                    got=f"{tensor.begin}: a hole of {tensor.begin - cursor} bytes",
                )
            )  # fmt: skip
        if tensor.end > cursor:
            cursor, owner = tensor.end, tensor.name
    refused = any(finding.code == INSIDE for finding in findings)
    if payload_bytes is not None and cursor < payload_bytes and complete and not refused:
        findings.append(
            Finding.of(
                TRAILING, STAGE, file,
                expected=f"a payload of {cursor} bytes", got=f"{payload_bytes}: {payload_bytes - cursor} unowned bytes",
            )
        )  # fmt: skip
    return findings


def span_bytes(dtype: str, shape: Sequence[int]) -> int | None:
    """Returns the bytes that a tensor takes, or None when the product overflows or ends inside a byte."""
    bits = DTYPE_BITS[dtype]
    if 0 in shape:
        return 0
    for dimension in shape:
        bits *= dimension
        if bits > _PRODUCT_LIMIT_BITS:
            return None
    return bits // 8 if bits % 8 == 0 else None


def _header_bytes(path: Path, where: str) -> tuple[bytes, int]:
    """Returns the header bytes and the size of the file, after bounding the length by both limits."""
    with open_regular(path, stage=STAGE, where=where) as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            raise AdmissionError(
                Finding.of(EMPTY, STAGE, where, expected="a safetensors file", got="0 bytes")
            )
        if size < LENGTH_BYTES:
            raise AdmissionError(
                Finding.of(
                    LENGTH, STAGE, where, expected="8 bytes of header length", got=f"{size} bytes in all"
                )
            )
        (length,) = struct.unpack("<Q", read_exactly(file, LENGTH_BYTES, stage=STAGE, where=where))
        most = min(HEADER_LIMIT_BYTES, size - LENGTH_BYTES)
        if most < 2:
            raise AdmissionError(
                Finding.of(LENGTH, STAGE, where, expected="at least 10 bytes in all", got=f"{size} bytes")
            )
        if not 2 <= length <= most:
            raise AdmissionError(
                Finding.of(LENGTH, STAGE, where, expected=f"2 to {most} bytes of header", got=length)
            )
        first = read_exactly(file, 1, stage=STAGE, where=where)
        if first != b"{":  # said before up to 100 MB are read
            raise AdmissionError(_not_an_object(where, first))
        return first + read_exactly(file, length - 1, stage=STAGE, where=where), size


def _not_an_object(where: str, start: bytes) -> Finding:
    return Finding.of(FORM, STAGE, where, expected="'{' as first byte", got=repr(start))


def _read_metadata(value: Any, file: str, findings: list[Finding]) -> dict[str, str]:
    if value is None:
        return {}
    where = f"{file}: __metadata__"
    if not isinstance(value, dict):
        findings.append(Finding.of(METADATA, STAGE, where, expected="an object", got=json_type(value)))
        return {}
    wrong = {key: item for key, item in value.items() if not isinstance(item, str)}
    findings += [
        Finding.of(METADATA, STAGE, f"{where}.{key}", expected="text", got=json_type(item))
        for key, item in wrong.items()
    ]
    return {key: item for key, item in value.items() if key not in wrong}


def _read_entry(name: str, entry: Any, file: str, findings: list[Finding]) -> StoredTensor | None:
    """Returns the entry, or None after adding the findings that make it unusable."""
    where = f"{file}: {name}"
    before = len(findings)

    def wrong(code: str, field: str, expected: Any, got: Any) -> None:
        findings.append(Finding.of(code, STAGE, f"{where}{field}", expected=expected, got=got))

    if not name or not name.isprintable():
        wrong(NAME, "", "a printable name", name or "an empty one")
    if not isinstance(entry, dict):
        wrong(ENTRY, "", "an object", json_type(entry))
        return None
    keys = {"dtype", "shape", "data_offsets"}
    if entry.keys() != keys:
        wrong(ENTRY, "", f"the fields {', '.join(sorted(keys))}", ", ".join(sorted(entry)) or "none")
        return None
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str):
        wrong(ENTRY, ".dtype", "text", json_type(dtype))
    elif dtype not in DTYPE_BITS:
        wrong(DTYPE, ".dtype", f"one of {', '.join(sorted(DTYPE_BITS))}", dtype)
    if not _are_unsigned(shape):
        wrong(ENTRY, ".shape", "an array of unsigned integers", shape)
    if not _are_unsigned(offsets) or len(offsets) != 2:
        wrong(ENTRY, ".data_offsets", "two unsigned integers", offsets)
    elif offsets[0] > offsets[1]:
        wrong(ORDER, ".data_offsets", f"an end of at least {offsets[0]}", offsets[1])
    if len(findings) > before:
        return None
    needed = span_bytes(dtype, shape)
    begin, end = offsets
    if needed is None:
        wrong(SHAPE, ".shape", "a whole number of bytes below 2^60", f"{shape} of {dtype}")
        return None
    if needed != end - begin:
        wrong(WIDTH, "", f"{needed} bytes: {shape} of {dtype}", f"[{begin}, {end}): {end - begin} bytes")
    return StoredTensor(name, dtype, tuple(shape), begin, end)


def _are_unsigned(value: Any) -> bool:
    return isinstance(value, list) and all(
        type(item) is int and 0 <= item < _UNSIGNED_LIMIT for item in value
    )
