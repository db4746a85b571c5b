"""Reads the description of a published checkpoint into `UpstreamFacts`, for gates and batteries.

For trusted folders only: `assay validate` reads hostile ones through the bounded readers of `impl.stores`.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from assay.spec.rules.upstream import TensorRow, UpstreamFacts

HEADERS: Final = "safetensors-headers.partial.jsonl"
PADDING_TOKEN: Final = 248044
PADDING_ROW_TABLES: Final = {
    "embed_all_zero": "model.language_model.embed_tokens.weight",
    "lm_head_all_zero": "lm_head.weight",
}
_PART: Final = 1 << 20


def read_upstream(directory: Path) -> UpstreamFacts:
    """Returns what the folder holds of a published checkpoint; a file that is absent leaves its fact None."""
    tensors, header_bytes, header_sha256 = _headers(directory / HEADERS)
    index = _json(directory / "model.safetensors.index.json") or {}
    tokenizer = _json(directory / "tokenizer_config.json")
    added = None
    if tokenizer is not None:
        added = [
            (int(id_), token["content"], token["special"])
            for id_, token in sorted(tokenizer["added_tokens_decoder"].items(), key=lambda item: int(item[0]))
        ]
    vocabulary = _json(directory / "vocab.json")
    files = [path for path in sorted(directory.iterdir()) if path.is_file() and ".partial." not in path.name]
    return UpstreamFacts(
        config=_json(directory / "config.json"),
        generation_config=_json(directory / "generation_config.json"),
        tokenizer_config=tokenizer,
        weight_map=index.get("weight_map"),
        total_size=index.get("metadata", {}).get("total_size"),
        tensors=tensors,
        header_bytes=header_bytes,
        header_sha256=header_sha256,
        file_sha256={path.name: _sha256(path) for path in files if path.suffix != ".safetensors"},
        file_sizes={path.name: path.stat().st_size for path in files},
        base_tokens=None if vocabulary is None else len(vocabulary),
        added_tokens=added,
        all_zero_rows=_padding_rows(directory, index.get("weight_map", {}), tensors or []),
    )


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _headers(
    path: Path,
) -> tuple[list[TensorRow] | None, dict[str, int] | None, dict[str, str] | None]:
    """Returns the tensors, and the lengths and digests of the headers; the digests are computed, not the stated ones."""
    if not path.is_file():
        return None, None, None
    rows: list[TensorRow] = []
    sizes: dict[str, int] = {}
    digests: dict[str, str] = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            sizes[record["shard"]] = record["header_length_bytes"]
            digests[record["shard"]] = hashlib.sha256(record["header"].encode("utf-8")).hexdigest()
            for name, entry in json.loads(record["header"]).items():
                if name != "__metadata__":
                    begin, end = entry["data_offsets"]
                    rows.append((name, entry["dtype"], tuple(entry["shape"]), record["shard"], begin, end))
    return rows, sizes, digests


def _padding_rows(
    directory: Path, weight_map: dict[str, str], tensors: list[TensorRow]
) -> dict[str, bool] | None:
    """Reads one row of each vocabulary table, where the real shards are there; their headers name the place."""
    rows = {row[0]: row for row in tensors}
    found: dict[str, bool] = {}
    for fact, name in PADDING_ROW_TABLES.items():
        shard = directory / weight_map.get(name, "absent")
        if name not in rows or not shard.is_file():
            return None
        _, _, shape, _, begin, end = rows[name]
        row_bytes = (end - begin) // shape[0]
        with shard.open("rb") as file:
            header_bytes = int.from_bytes(file.read(8), "little")
            file.seek(8 + header_bytes + begin + PADDING_TOKEN * row_bytes)
            found[fact] = not any(file.read(row_bytes))
    return found


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(_PART):
            digest.update(part)
    return digest.hexdigest()
