"""Reads a *header set*: the raw safetensors headers of a checkpoint, one JSON object a line, without payload.

Each line holds `shard`, `header` (the raw text) and, where known, `file_size`, `file_sha256`, `header_length_bytes`
and `header_sha256`. It stands in for shards that are not at hand, and the report says so.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.checkpoint.safetensors import LENGTH_BYTES, STAGE, Header, parse_header
from assay.impl.stores.checkpoint.shard_index import is_plain_file_name
from assay.impl.stores.files import read_bounded
from assay.impl.stores.strict_json import parse_json, require_object
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding

LINE: Final = declare(
    "header_set.line", Authority.FORM, "A line names its shard by a plain file name and holds the raw header as text.",
    source="assay: header sets", cause="a line cut short or written by another tool",
)  # fmt: skip
AGREEMENT: Final = declare(
    "header_set.agreement", Authority.RULE,
    "The lengths, digests and counts that a line states are those of the header that it holds.",
    source="assay: header sets", cause="a header edited after the line was written",
)  # fmt: skip
DUPLICATE: Final = declare(
    "header_set.duplicate", Authority.RULE, "A header set holds each shard once.",
    source="assay: header sets", cause="two sets joined into one file",
)  # fmt: skip

HEADER_SET_NAME: Final = "safetensors-headers.partial.jsonl"
SIZE_LIMIT_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class HeaderSet:
    """The headers of a set.

    Attributes:
        headers: by file name.
        raw: file name -> raw header bytes.
        file_sha256: file name -> stated digest of the whole shard, where stated.
        file_bytes: file name -> stated size of the whole shard, where stated.
    """

    headers: dict[str, Header]
    raw: dict[str, bytes]
    file_sha256: dict[str, str]
    file_bytes: dict[str, int]


def read_header_set(path: Path) -> tuple[HeaderSet | None, list[Finding]]:
    """Reads and judges a header set; None when nothing of it can be read."""
    found = HeaderSet({}, {}, {}, {})
    findings: list[Finding] = []
    try:
        for where, line in _lines(path):
            try:
                entry = require_object(parse_json(line, stage=STAGE, where=where), stage=STAGE, where=where)
            except AdmissionError as error:
                at = error.finding.where.replace(f"{where}:1:", f"{where}:", 1)  # a line has one line
                findings.append(replace(error.finding, where=at))
                continue
            _read_line(entry, where, found, findings)
    except AdmissionError as error:
        return None, [*findings, error.finding]
    if not found.headers:
        return None, findings
    return found, findings


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    data = read_bounded(path, SIZE_LIMIT_BYTES, stage=STAGE, where=path.name)
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            yield f"{path.name}:{number}", line


def _read_line(entry: dict[str, Any], where: str, found: HeaderSet, findings: list[Finding]) -> None:
    """Adds one line to `found`."""
    shard, text = entry.get("shard"), entry.get("header")
    if not isinstance(shard, str) or not is_plain_file_name(shard) or not isinstance(text, str):
        findings.append(
            Finding.of(LINE, STAGE, where, expected="a plain shard name and header text", got=sorted(entry))
        )
        return
    if shard in found.headers:
        findings.append(Finding.of(DUPLICATE, STAGE, where, expected="each shard once", got=f"{shard} again"))
        return
    raw = text.encode("utf-8")
    size = entry.get("file_size")
    start = LENGTH_BYTES + len(raw)
    payload = size - start if type(size) is int and size >= start else None
    if type(size) is int and payload is None:
        findings.append(
            Finding.of(AGREEMENT, STAGE, f"{shard}: file_size", expected=f"at least {start} bytes", got=size)
        )
    header, faults = parse_header(raw, file=shard, payload_bytes=payload)
    findings += faults
    if header is None:
        return
    actual = {
        "header_length_bytes": len(raw),
        "header_sha256": hashlib.sha256(raw).hexdigest(),
        "data_start": header.data_start,
        "tensor_count": len(header.tensors),
    }
    findings += [
        Finding.of(
            AGREEMENT,
            STAGE,
            f"{shard}: {key}",
            expected=f"{entry[key]}, as the line states",
            got=f"{value} in the header text that it holds",
        )
        for key, value in actual.items()
        if key in entry and entry[key] != value
    ]
    found.headers[shard] = header
    found.raw[shard] = raw
    if isinstance(entry.get("file_sha256"), str):
        found.file_sha256[shard] = entry["file_sha256"]
    if type(size) is int:
        found.file_bytes[shard] = size
