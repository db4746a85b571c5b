"""Judges one file of a checkpoint on its own: a config, an index, a safetensors file or a header set."""

from pathlib import Path
from typing import Final

from assay.impl.stores.checkpoint import judge_config_area, refuse_private
from assay.impl.stores.config_fields import nearest_profile
from assay.impl.stores.files import file_digest
from assay.impl.stores.header_set import read_header_set
from assay.impl.stores.inventory import Inventory, gather_inventory
from assay.impl.stores.safetensors import Header, read_header
from assay.impl.stores.shard_index import read_index
from assay.impl.stores.strict_json import read_json_object
from assay.spec.errors import Finding
from assay.spec.judgement import Judgement, JudgeOptions

_PAYLOAD: Final = "payload: values and digests of the stored tensors"


def judge_config_file(path: Path, options: JudgeOptions) -> Judgement:
    """Judges a config on its own: every field, and the hash that follows from it."""
    judgement = Judgement("config")
    config = read_json_object(path, stage="config", where="config.json")
    contract = nearest_profile(config)
    judgement.facts["profile"] = contract.identity.profile_id
    if refuse_private(judgement, contract, options):
        return judgement
    judge_config_area(judgement, config, contract)
    pins = contract.source_pins
    if pins is not None:
        digest, _ = file_digest(path, where="config.json")
        judgement.facts["sha256"] = digest
        judgement.facts["is_published_file"] = digest == pins.files["config.json"].sha256
    judgement.not_checked.append("index, headers, tokenizer: the config was judged alone")
    return judgement


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
