"""Judges one file of a checkpoint on its own: a config, an index, a safetensors file or a header set."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from assay.impl.stores.checkpoint.config_fields import nearest_profile, nearest_profile_by_tensors
from assay.impl.stores.checkpoint.contract_inventory import judge_inventory, judge_names
from assay.impl.stores.checkpoint.foreign import UNJUDGED
from assay.impl.stores.checkpoint.foreign_names import pattern_of
from assay.impl.stores.checkpoint.header_set import HeaderSet, read_header_set
from assay.impl.stores.checkpoint.inventory import Inventory, gather_inventory
from assay.impl.stores.checkpoint.judge import (
    judge_config_area,
    judge_header_digests,
    judge_index_metadata,
    judge_shard_names,
    judge_stated_digests,
    refuse_private,
)
from assay.impl.stores.checkpoint.published_files import is_respelled
from assay.impl.stores.checkpoint.safetensors import Header, read_header
from assay.impl.stores.checkpoint.shard_index import INDEX_NAME, TOTAL_SIZE, read_index
from assay.impl.stores.files import file_digest
from assay.impl.stores.strict_json import read_json_object
from assay.spec.clauses import Authority, declare
from assay.spec.contract import Contract, expand_tensors
from assay.spec.errors import Finding
from assay.spec.judgement import Judgement, JudgeOptions

OWNERS: Final = declare(
    "index.owners", Authority.PIN, "The index sends each tensor to the shard that published headers hold it in.",
    source="the file list of the pinned revision: the digest of the index", cause="an index of another split, or an edit",
    fix="validate the folder: its headers say who owns what",
)  # fmt: skip
_STRANGER: Final = "no tensor that belongs to a profile that is known here"
_PAYLOAD: Final = "payload: values and digests of the stored tensors"


def judge_config_file(path: Path, options: JudgeOptions) -> Judgement:
    """Judges a config on its own: every field, and the hash that follows from it."""
    judgement = Judgement("config")
    config = read_json_object(path, stage="config")
    contract = nearest_profile(config)
    judgement.facts["profile"] = contract.identity.profile_id
    if refuse_private(judgement, contract, options):
        return judgement
    judge_config_area(judgement, config, contract, file=path.name)
    pins = contract.source_pins
    if pins is not None:
        digest, _ = file_digest(path, where=path.name)
        judgement.facts["sha256"] = digest
        judgement.facts["is_published_file"] = digest == pins.files["config.json"].sha256
    judgement.not_checked.append("index, headers, tokenizer: the config was judged alone")
    return judgement


def judge_index_file(path: Path, options: JudgeOptions) -> Judgement:
    """Judges an index on its own: its form, its shards, its size, and its names against the roles of the profile."""
    judgement = Judgement("index")
    index, findings = read_index(path)
    judgement.not_checked.append("headers: the shards that the index names were not opened")
    if index is None:
        judgement.judged("index", findings)
        return judgement
    judgement.facts |= {
        "tensors": len(index.owners),
        "shards": len(index.files),
        "total_size": index.total_size,
    }
    contract = nearest_profile_by_tensors((name, None) for name in index.owners)
    if not _knows_any(index.owners, contract):
        judgement.judged("index", findings)
        judgement.judged("inventory", gaps=[_unjudged(_STRANGER)])
        return judgement
    judgement.facts["profile"] = contract.identity.profile_id
    if refuse_private(judgement, contract, options):
        return judgement
    pins = contract.source_pins
    if pins is not None and index.total_size not in {None, pins.source_bytes}:
        where = f"{path.name}: metadata.total_size"
        findings.append(
            Finding.of(TOTAL_SIZE, "index", where, expected=pins.source_bytes, got=index.total_size)
        )
    named = [*judge_shard_names(index.files, contract), *judge_index_metadata(index, path.name)]
    judgement.judged("index", [*findings, *named], _judge_owners(path, contract))
    judgement.judged("inventory", judge_names(index.owners, contract))
    return judgement


def judge_safetensors_file(path: Path, options: JudgeOptions) -> Judgement:
    """Judges the header or headers of one file, and its tensors against the roles of the profile that knows them."""
    judgement = Judgement("safetensors")
    headers: dict[str, Header]
    found: HeaderSet | None = None
    findings: list[Finding]
    if path.suffix == ".jsonl":
        found, findings = read_header_set(path)
        headers = found.headers if found is not None else {}
    else:
        header, findings = read_header(path)
        headers = {path.name: header} if header is not None else {}
    judgement.judged("headers", findings)
    judgement.not_checked.append(_PAYLOAD)
    if not headers:
        judgement.judged("inventory", gaps=[_unjudged("no header could be read")])
        return judgement
    inventory, doubles = gather_inventory(None, headers)
    judgement.facts |= facts_of(inventory, headers)
    contract = nearest_profile_by_tensors((row.name, row.shape) for row in inventory.rows)
    if not _knows_any([row.name for row in inventory.rows], contract):
        judgement.judged("inventory", doubles, [_unjudged(_STRANGER)])
        return judgement
    judgement.facts["profile"] = contract.identity.profile_id
    if refuse_private(judgement, contract, options):
        return judgement
    pinned = [*judge_header_digests(headers, contract), *judge_stated_digests(found, contract)]
    if pinned:
        judgement.judged("headers", pinned)
    pins = contract.source_pins
    is_complete = (
        pins is not None
        and len(headers) == pins.shard_count
        and not any(header.unread for header in headers.values())
    )
    if not is_complete:
        judgement.not_checked.append("totals and absent tensors: this is a part of a checkpoint")
    judgement.judged("inventory", [*doubles, *judge_inventory(inventory, contract, is_complete=is_complete)])
    return judgement


def _knows_any(names: Iterable[str], contract: Contract) -> bool:
    """Says whether a name is that of a role, in whatever layer, or of an excluded tensor."""
    known = {pattern_of(spec.name) for spec in expand_tensors(contract)}
    prefixes = (contract.exclusions.vision_prefix, contract.exclusions.mtp_prefix)
    return any(pattern_of(name) in known or name.startswith(prefixes) for name in names)


def _judge_owners(path: Path, contract: Contract) -> list[Finding]:
    """Returns the gap that an index alone leaves: only its digest, or the headers, tell which shard owns what."""
    pins = contract.source_pins
    pin = pins.files.get(INDEX_NAME) if pins is not None else None
    if pin is None:
        return []
    digest, _ = file_digest(path, where=path.name)
    if digest == pin.sha256 or is_respelled(read_json_object(path), pin.sha256):
        return []
    return [
        Finding.of(
            OWNERS, "index", f"{path.name}: weight_map", expected=f"the published file {pin.sha256}", got=digest,
            hint="with the headers beside it, each owner is judged; alone, it can't be",
        )
    ]  # fmt: skip


def _unjudged(got: str) -> Finding:
    return Finding.of(UNJUDGED, "inventory", "inventory", expected="something to judge", got=got)


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
