"""Writes checkpoints: shards of streamed or sparse tensors, their index, and a manifest of their digests.

A sparse file holds the real header and a hole in the place of the payload, so that 360 GB of checkpoint fit on a small
disk and everything that admission reads is real.
"""

import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Final

from assay.impl.stores.checkpoint.header_set import HEADER_SET_NAME, read_header_set
from assay.impl.stores.checkpoint.payload import MANIFEST_NAME
from assay.impl.stores.checkpoint.safetensors import DTYPE_BITS, LENGTH_BYTES
from assay.impl.stores.checkpoint.shard_index import INDEX_NAME
from assay.spec.errors import AdmissionError

Fill = Callable[["PlannedTensor"], Iterable[bytes] | None]
"""Yields the little-endian payload of a tensor in pieces of any size; None leaves a hole."""

MANIFEST_SCHEMA: Final = "assay.checkpoint-manifest/1"
_ALIGNMENT: Final = 8


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """A tensor to be written."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of the payload."""
        return prod(self.shape) * DTYPE_BITS[self.dtype] // 8


def write_checkpoint(
    folder: Path,
    shards: Sequence[Sequence[PlannedTensor]],
    *,
    files: Mapping[str, bytes],
    fill: Fill | None = None,
) -> None:
    """Writes a checkpoint directory, shard by shard, in bounded memory.

    Args:
        folder: made if absent; files of the same names are replaced, each atomically.
        shards: the tensors of each shard, in the order of their payload.
        files: further files by name, such as `config.json`.
        fill: payload of each tensor; without it, and for those that it answers with None, a hole of zeros.

    Raises:
        ValueError: when `fill` yields another number of bytes than a tensor has.
    """
    folder.mkdir(parents=True, exist_ok=True)
    owners: dict[str, str] = {}
    manifest: dict[str, dict[str, Any]] = {}
    for number, tensors in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        digest = write_safetensors(folder / name, tensors, fill=fill)
        manifest[name] = {"size_bytes": (folder / name).stat().st_size, "sha256": digest}
        owners |= dict.fromkeys((tensor.name for tensor in tensors), name)
    total = sum(tensor.size_bytes for tensors in shards for tensor in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(owners.items()))}
    written = {
        INDEX_NAME: _json_bytes(index),
        MANIFEST_NAME: _json_bytes({"schema": MANIFEST_SCHEMA, "shards": manifest}),
        **files,
    }
    for name, data in written.items():
        draft = folder / f"{name}.tmp"
        draft.write_bytes(data)
        draft.replace(folder / name)


def write_safetensors(
    path: Path, tensors: Sequence[PlannedTensor], *, fill: Fill | None = None
) -> str | None:
    """Writes one file; returns its SHA-256, or None if it has holes (their digest would cost reading them)."""
    fields: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    cursor = 0
    for tensor in tensors:
        end = cursor + tensor.size_bytes
        fields[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [cursor, end],
        }
        cursor = end
    header = json.dumps(fields, separators=(",", ":")).encode("utf-8")
    header += b" " * (-len(header) % _ALIGNMENT)
    draft = path.with_name(f"{path.name}.tmp")
    digest = hashlib.sha256()
    has_holes = False
    with draft.open("wb") as file:
        for part in (struct.pack("<Q", len(header)), header):
            file.write(part)
            digest.update(part)
        for tensor in tensors:
            pieces = fill(tensor) if fill is not None else None
            has_holes = has_holes or pieces is None
            _write_pieces(file, tensor, pieces, digest.update)
        file.truncate(LENGTH_BYTES + len(header) + cursor)
    draft.replace(path)
    return None if has_holes else digest.hexdigest()


def write_sparse_checkpoint(description: Path, folder: Path) -> None:
    """Makes the shards of a described checkpoint as sparse files, and links the rest of its description.

    Args:
        description: directory with a header set whose lines state the size of each shard.
        folder: made if absent.

    Raises:
        AdmissionError: when the header set can't be read or does not state the sizes.
    """
    found, faults = read_header_set(description / HEADER_SET_NAME)
    if found is None or faults:
        raise AdmissionError(faults[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in found.raw.items():
        with (folder / name).open("wb") as file:
            file.write(struct.pack("<Q", len(raw)) + raw)
            file.truncate(found.file_bytes[name])
    for entry in description.iterdir():
        if ".partial." not in entry.name:
            (folder / entry.name).symlink_to(entry.resolve())


def _write_pieces(
    file: BinaryIO, tensor: PlannedTensor, pieces: Iterable[bytes] | None, update: Callable[[bytes], None]
) -> None:
    if pieces is None:
        file.seek(tensor.size_bytes, os.SEEK_CUR)
        return
    written = 0
    for piece in pieces:
        file.write(piece)
        update(piece)
        written += len(piece)
    if written != tensor.size_bytes:
        raise ValueError(f"{tensor.name}: {tensor.size_bytes} bytes expected of its fill, got {written}")


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
