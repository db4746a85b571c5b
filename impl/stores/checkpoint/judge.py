"""Judges a checkpoint directory: files, config, hash, index, headers, inventory, tokenizer, and payload when asked.

Every stage that can be judged is judged. A digest that differs stops nothing: the stages behind it say which field
differs. What is absent leaves the verdict open; what is wrong rejects.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.checkpoint.config_fields import (
    PRIVATE,
    is_other_family,
    judge_config,
    judge_family,
    nearest_profile,
    nearest_profile_by_tensors,
)
from assay.impl.stores.checkpoint.contract_inventory import MISSING, judge_inventory
from assay.impl.stores.checkpoint.foreign import UNJUDGED, contradicted_marks, judge_foreign, recognise
from assay.impl.stores.checkpoint.hash_derivation import judge_hash
from assay.impl.stores.checkpoint.header_set import HEADER_SET_NAME, HeaderSet
from assay.impl.stores.checkpoint.inventory import ABSENT, Inventory, gather_inventory
from assay.impl.stores.checkpoint.layout import CONFIG_NAME, Layout, read_layout
from assay.impl.stores.checkpoint.published_files import SIZE, judge_files, mark_tokenizer, name_what_differs
from assay.impl.stores.checkpoint.safetensors import Header
from assay.impl.stores.checkpoint.shard_index import FORM, INDEX_NAME, ShardIndex
from assay.impl.stores.checkpoint.tokenizer_ids import judge_declared_ids
from assay.spec.clauses import Authority, declare
from assay.spec.contract import Contract
from assay.spec.errors import Finding
from assay.spec.judgement import Judgement, JudgeOptions

SHARD_NAMES: Final = declare(
    "index.shards", Authority.PIN, "The index names the published shards and no others.",
    source="the file list of the pinned revision", cause="a checkpoint that was split anew",
)  # fmt: skip
HEADER: Final = declare(
    "headers.digest", Authority.PIN, "A header whose digest was published has it, metadata and order of entries included.",
    source="published header digests of shards 1 and 127 to 131", cause="a shard that a tool wrote anew",
)  # fmt: skip
STATED: Final = declare(
    "header_set.file_digest", Authority.PIN, "The digest that a header set states for a shard is the published one.",
    source="the file list of the pinned revision", cause="headers of another revision, or an edited line",
)  # fmt: skip


def judge_checkpoint(folder: Path, options: JudgeOptions) -> Judgement:
    """Judges a directory against the profile that its config is nearest to.

    Raises:
        AdmissionError: `input.file.*`, when the folder itself can't be listed.
    """
    layout = read_layout(folder, jobs=options.jobs)
    judgement = Judgement("checkpoint")
    contract = _profile_of(layout)
    judgement.facts["profile"] = contract.identity.profile_id
    if refuse_private(judgement, contract, options):
        return judgement
    conversion = recognise(layout, contract)
    if conversion is not None:
        judge_foreign(judgement, layout, contract, conversion)
        return judgement
    judge_files(judgement, layout, contract)
    _judge_config(judgement, layout, contract)
    _judge_index(judgement, layout, contract)
    _judge_headers(judgement, layout, contract)
    inventory = _judge_inventory(judgement, layout, contract)
    _judge_tokenizer(judgement, layout, contract)
    mark_tokenizer(judgement)
    _judge_payload(judgement, layout, contract, options)
    name_what_differs(judgement, layout, contract)
    judgement.facts |= inventory_facts(inventory, layout, contract)
    return judgement


def _profile_of(layout: Layout) -> Contract:
    """Returns the profile that the config is nearest to; without a legible config, the one that the tensors are."""
    if layout.config is not None:
        return nearest_profile(layout.config)
    if layout.headers:
        return nearest_profile_by_tensors(
            (tensor.name, tensor.shape) for header in layout.headers.values() for tensor in header.tensors
        )
    return nearest_profile_by_tensors(
        (name, None) for name in (layout.index.owners if layout.index is not None else ())
    )


def refuse_private(judgement: Judgement, contract: Contract, options: JudgeOptions) -> bool:
    """Adds the refusal of a private profile on the public route; says whether it did."""
    if contract.visibility != "private":
        return False
    judgement.is_private = options.is_private
    if options.is_private:
        return False
    fault = Finding.of(
        PRIVATE, "profile", contract.identity.profile_id, expected="a public profile", got="a private one",
        hint="--private accepts it, and stamps the result `seam: private`",
    )  # fmt: skip
    judgement.judged("profile", [fault])
    judgement.not_checked.append("everything else: a private profile is not judged on the public route")
    return True


def judge_config_area(
    judgement: Judgement, config: dict[str, Any], contract: Contract, *, file: str = CONFIG_NAME
) -> None:
    """Judges the fields of a config and the hash that follows from them; `file` is the name that findings give it."""
    family = judge_family(config, contract, file=file)
    if is_other_family(config, contract):
        judgement.judged("config", family)
        judgement.not_checked.append(
            "fields and hash: the profile says nothing about another family's config"
        )
        return
    named = {finding.where for finding in family}
    fields = (one for one in judge_config(config, contract, file=file) if one.where not in named)
    judgement.judged("config", [*family, *fields])
    judgement.judged("hash", judge_hash(config, contract, file=file))


def inventory_facts(inventory: Inventory, layout: Layout, contract: Contract) -> dict[str, Any]:
    """Returns counts, bytes and the digest of the inventory, and where the headers came from."""
    facts: dict[str, Any] = {
        "tensors": len(inventory.rows),
        "shards": len(layout.headers),
        "payload_bytes": inventory.total_bytes,
        "inventory_sha256": inventory.digest,
    }
    if layout.header_set is not None:
        facts["headers_from"] = HEADER_SET_NAME
    if contract.source_pins is not None:
        published = contract.source_pins.header_sha256.keys() & layout.headers.keys()
        facts["header_digests_published"] = f"{len(published)} of {len(layout.headers)}"
    return facts


def _judge_config(judgement: Judgement, layout: Layout, contract: Contract) -> None:
    faults, gaps = layout.found("config")
    judgement.judged("config", faults, gaps)
    if layout.config is None:
        judgement.judged("hash", gaps=[_unjudged("hash", "config.json could not be read")])
        return
    judge_config_area(judgement, layout.config, contract)
    contradicted = contradicted_marks(layout, contract)
    if contradicted:
        judgement.judged("config", contradicted)


def judge_shard_names(files: Iterable[str], contract: Contract) -> list[Finding]:
    """Compares the names of the shards with the published ones, if the profile has any."""
    if contract.source_pins is None:
        return []
    pinned, named = {shard.name for shard in contract.source_pins.shards}, set(files)
    absent = [Finding.of(SHARD_NAMES, "index", name, expected="a shard of the index", got="not named")
              for name in sorted(pinned - named)]  # fmt: skip
    return absent + [Finding.of(SHARD_NAMES, "index", name, expected="no such shard", got="named by the index")
                     for name in sorted(named - pinned)]  # fmt: skip


def judge_header_digests(headers: Mapping[str, Header], contract: Contract) -> list[Finding]:
    """Compares the headers whose digests were published with those digests."""
    pins = contract.source_pins
    return [
        Finding.of(HEADER, "headers", name, expected=digest, got=headers[name].sha256)
        for name, digest in (pins.header_sha256.items() if pins is not None else ())
        if name in headers and headers[name].sha256 != digest
    ]


def judge_stated_digests(found: HeaderSet | None, contract: Contract) -> list[Finding]:
    """Compares the digests that a header set states for whole shards with the published ones."""
    if found is None or contract.source_pins is None:
        return []
    return [
        Finding.of(STATED, "headers", f"{shard.name}: file_sha256", expected=shard.sha256, got=stated)
        for shard in contract.source_pins.shards
        if (stated := found.file_sha256.get(shard.name, shard.sha256)) != shard.sha256
    ]


def judge_index_metadata(index: ShardIndex, name: str) -> list[Finding]:
    """Returns what an index says beside the total size; converters write more, upstream does not."""
    return [
        Finding.of(FORM, "index", f"{name}: metadata.{key}", expected="total_size only", got="another key")
        for key in index.other_metadata
    ]


def _judge_headers(judgement: Judgement, layout: Layout, contract: Contract) -> None:
    faults, gaps = layout.found("headers")
    pinned = [
        *judge_header_digests(layout.headers, contract),
        *judge_stated_digests(layout.header_set, contract),
    ]
    judgement.judged("headers", [*faults, *pinned], gaps)


def _judge_index(judgement: Judgement, layout: Layout, contract: Contract) -> None:
    faults, gaps = layout.found("index")
    if layout.index is not None:
        faults = [
            *faults,
            *judge_shard_names(layout.index.files, contract),
            *judge_index_metadata(layout.index, INDEX_NAME),
        ]
    judgement.judged("index", faults, gaps)


def _judge_inventory(judgement: Judgement, layout: Layout, contract: Contract) -> Inventory:
    absent = {*layout.absent_shards, *layout.unread_shards}
    if not layout.headers:
        judgement.judged("inventory", gaps=[_unjudged("inventory", "no header could be read")])
        return Inventory(())
    inventory, faults = gather_inventory(layout.index, layout.headers, absent)
    if layout.index is None and len(layout.headers) > 1:
        judgement.not_checked.append("ownership: several shards and no index to say who owns what")
    told = {finding.where for finding in faults if finding.code == ABSENT}
    faults += (
        finding
        for finding in judge_inventory(inventory, contract, is_complete=layout.is_complete)
        if not (finding.code == MISSING and finding.where in told)
    )
    faults += _judge_sizes(layout, contract)
    gaps = []
    if not layout.is_complete:
        entries = sum(len(header.unread) for header in layout.headers.values())
        got = f"{len(absent)} shards and {entries} entries could not be read: totals and absences stay open"
        gaps.append(_unjudged("inventory", got))
    of_index = [finding for finding in faults if finding.stage == "index"]
    if of_index:
        judgement.judged("index", of_index)
    judgement.judged("inventory", [finding for finding in faults if finding.stage != "index"], gaps)
    return inventory


def _judge_sizes(layout: Layout, contract: Contract) -> list[Finding]:
    """Compares the size of each shard with its pin; sizes come from the files or, stated, from the header set."""
    if contract.source_pins is None:
        return []
    pinned = {shard.name: shard.size_bytes for shard in contract.source_pins.shards}
    return [
        Finding.of(
            SIZE, "inventory", name, expected=pinned[name], got=header.data_start + header.payload_bytes
        )
        for name, header in layout.headers.items()
        if name in pinned
        and header.payload_bytes is not None
        and header.data_start + header.payload_bytes != pinned[name]
    ]


def _judge_tokenizer(judgement: Judgement, layout: Layout, contract: Contract) -> None:
    faults, absent = judge_declared_ids(layout.folder, layout.names, contract)
    if absent and contract.visibility == "private":
        judgement.not_checked += [
            f"tokenizer: {name} is absent, and a private profile pins no file" for name in absent
        ]
        absent = []
    gaps = [_unjudged("tokenizer", f"{name} is absent") for name in absent]
    if faults or gaps or contract.source_pins is not None:
        judgement.judged("tokenizer", faults, gaps)
    judgement.not_checked.append(
        "tokenizer behaviour: declared ids, file digests and the meaning of tokenizer.json are judged here"
    )


def _judge_payload(judgement: Judgement, layout: Layout, contract: Contract, options: JudgeOptions) -> None:
    if not options.with_payload:
        judgement.not_checked.append("payload: digests of the shards (--payload checks them)")
        return
    from assay.impl.stores.checkpoint.payload import judge_payload

    payload = judge_payload(layout, contract, options)
    judgement.judged("payload", payload.faults, payload.gaps)
    judgement.facts["payload"] = payload.facts


def _unjudged(stage: str, why: str) -> Finding:
    return Finding.of(UNJUDGED, stage, stage, expected="something to judge", got=why)
