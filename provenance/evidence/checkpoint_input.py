"""Which checkpoint a gate judged: digests of its small files and headers, and whether that is the pinned one.

Evidence names what it looked at, so that a judgement of some other folder is never taken for one of the published
description. Payload is not read: a header says which bytes lie where, and the small files say the rest.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from assay.spec.contract.source_pins import SourcePins
from assay.spec.documents.evidence import CheckpointInput
from assay.spec.profiles import load_profile
from assay.spec.rules.upstream import TensorRow, inventory_digest
from assay.spec.rules.upstream_files import HEADERS

PROFILE: Final = "qwen4exp"
_MAX_FILE_BYTES: Final = 1 << 26
_CONFIG: Final = "config.json"


def describe_checkpoint(directory: Path) -> CheckpointInput:
    """Returns what lies in `directory`, as far as gates judge it; what can't be read is left out."""
    pins = pinned_files()
    files = {
        name: digest
        for name in sorted({*(pins.files if pins else ()), HEADERS})
        if (digest := _digest(directory / name)) is not None
    }
    total, rows = hashlib.sha256(), _Rows()
    for name, header in _headers(directory):
        total.update(f"{name}\0{hashlib.sha256(header).hexdigest()}\n".encode())
        rows.add(name, header)
    return CheckpointInput(
        files=files,
        headers=total.hexdigest() if rows.count else None,
        inventory=rows.digest(),
    )


def pinned_files() -> SourcePins | None:
    """Returns what upstream published, by digest."""
    return load_profile(PROFILE).source_pins


def departures(found: CheckpointInput, pins: SourcePins) -> list[str]:
    """Returns the names of what differs from the published description; without config.json nothing is it."""
    wrong = [
        name
        for name, digest in found.files.items()
        if name in pins.files and digest != pins.files[name].sha256
    ]
    if _CONFIG not in found.files:
        wrong.insert(0, f"{_CONFIG} (absent)")
    if found.headers is not None and found.inventory != pins.inventory_sha256:
        wrong.append("safetensors headers")
    return wrong


class _Rows:
    """Collects the tensors of all headers; one that is no header makes the inventory unknown."""

    def __init__(self) -> None:
        self.count = 0
        self._rows: list[TensorRow] | None = []

    def add(self, shard: str, header: bytes) -> None:
        self.count += 1
        try:
            entries: dict[str, Any] = json.loads(header)
            rows = [
                (
                    name,
                    str(one["dtype"]),
                    tuple(map(int, one["shape"])),
                    shard,
                    *map(int, one["data_offsets"]),
                )
                for name, one in entries.items()
                if name != "__metadata__"
            ]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._rows = None
            return
        if self._rows is not None:
            self._rows += rows  # type: ignore[arg-type]

    def digest(self) -> str | None:
        try:
            return inventory_digest(self._rows) if self._rows else None
        except (ValueError, TypeError):
            return None


def _headers(directory: Path) -> Iterator[tuple[str, bytes]]:
    """Yields shard names and the JSON of their headers: of the shards that are here, else of the header set."""
    shards = sorted(directory.glob("*.safetensors"))
    for path in shards:
        try:
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                yield path.name, file.read(length) if length <= _MAX_FILE_BYTES else b""
        except OSError:
            continue
    if shards:
        return
    try:
        with (directory / HEADERS).open("rb") as lines:
            while line := lines.readline(_MAX_FILE_BYTES):
                record = json.loads(line)
                yield str(record["shard"]), str(record["header"]).encode()
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return


def _digest(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > _MAX_FILE_BYTES:
            return None
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
