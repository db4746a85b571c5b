"""Judges one file of a checkpoint on its own: a config, an index, a safetensors file or a header set."""

from pathlib import Path
from typing import Final

from assay.impl.stores.header_set import read_header_set
from assay.impl.stores.inventory import Inventory, gather_inventory
from assay.impl.stores.safetensors import Header, read_header
from assay.impl.stores.shard_index import read_index
from assay.spec.errors import Finding
from assay.spec.judgement import Judgement, JudgeOptions

_PAYLOAD: Final = "payload: values and digests of the stored tensors"


def judge_index_file(path: Path, options: JudgeOptions) -> Judgement:  # noqa: ARG001 - every judge takes both
    """Judges an index on its own: its form and its names."""
    judgement = Judgement("index")
    index, findings = read_index(path)
    judgement.judged("index", findings)
    if index is not None:
        judgement.facts |= {
            "tensors": len(index.owners),
            "shards": len(index.files),
            "total_size": index.total_size,
        }
    judgement.not_checked.append("headers: the shards that the index names were not opened")
    return judgement


def judge_safetensors_file(path: Path, options: JudgeOptions) -> Judgement:  # noqa: ARG001 - every judge takes both
    """Judges the header or headers of one file."""
    judgement = Judgement("safetensors")
    headers: dict[str, Header]
    findings: list[Finding]
    if path.suffix == ".jsonl":
        found, findings = read_header_set(path)
        headers = found.headers if found is not None else {}
    else:
        header, findings = read_header(path)
        headers = {path.name: header} if header is not None else {}
    judgement.judged("headers", findings)
    judgement.not_checked.append(_PAYLOAD)
    inventory, doubles = gather_inventory(None, headers)
    judgement.judged("inventory", doubles)
    judgement.facts |= facts_of(inventory, headers)
    return judgement


def facts_of(inventory: Inventory, headers: dict[str, Header]) -> dict[str, object]:
    """Returns counts, bytes by dtype and the digest of an inventory."""
    by_dtype: dict[str, int] = {}
    for row in inventory.rows:
        by_dtype[row.dtype] = by_dtype.get(row.dtype, 0) + row.end - row.begin
    return {
        "tensors": len(inventory.rows),
        "shards": len(headers),
        "payload_bytes": inventory.total_bytes,
        "bytes_by_dtype": by_dtype,
        "inventory_sha256": inventory.digest,
    }
