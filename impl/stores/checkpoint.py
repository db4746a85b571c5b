"""Judges a checkpoint directory: files, config, hash, index, headers, inventory, tokenizer, and payload when asked.

Every stage that can be judged is judged. A digest that differs stops nothing: the stages behind it say which field
differs. What is absent leaves the verdict open; what is wrong rejects.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.config_fields import (
    PRIVATE,
    is_other_family,
    judge_config,
    judge_family,
    nearest_profile,
    nearest_profile_by_tensors,
)
from assay.impl.stores.contract_inventory import judge_inventory
from assay.impl.stores.files import file_digest
from assay.impl.stores.foreign import UNJUDGED, judge_foreign, recognise
from assay.impl.stores.hash_derivation import judge_hash
from assay.impl.stores.header_set import HEADER_SET_NAME
from assay.impl.stores.inventory import Inventory, gather_inventory
from assay.impl.stores.layout import ABSENT_FILE, CONFIG_NAME, Layout, read_layout
from assay.impl.stores.tokenizer_ids import judge_declared_ids
from assay.spec.clauses import Authority, declare
from assay.spec.contract import Contract
from assay.spec.errors import AdmissionError, Finding
from assay.spec.judgement import Judgement, JudgeOptions

DIGEST: Final = declare(
    "files.digest", Authority.PIN, "A published file has its published SHA-256.",
    source="the file list of the pinned revision", cause="an edit, a re-save, or other line ends",
    fix="the findings of the later stages say which field differs; if none does, only the spelling does",
)  # fmt: skip
SIZE: Final = declare(
    "files.size", Authority.PIN, "A shard has its published size.", source="the file list of the pinned revision",
    cause="a truncated download, or a shard of another revision",
)  # fmt: skip
SHARD_NAMES: Final = declare(
    "index.shards", Authority.PIN, "The index names the published shards and no others.",
    source="the file list of the pinned revision", cause="a checkpoint that was split anew",
)  # fmt: skip

_SMALL_FILE_BYTES: Final = 64 << 20


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
    _judge_files(judgement, layout, contract)
    _judge_config(judgement, layout, contract)
    _judge_index(judgement, layout, contract)
    judgement.judged("headers", *layout.found("headers"))
    inventory = _judge_inventory(judgement, layout, contract)
    _judge_tokenizer(judgement, layout, contract)
    _judge_payload(judgement, layout, contract, options)
    judgement.facts |= inventory_facts(inventory, layout)
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


def judge_config_area(judgement: Judgement, config: dict[str, Any], contract: Contract) -> list[Finding]:
    """Judges the fields of a config and the hash that follows from them; returns the findings about fields."""
    family = judge_family(config, contract)
    if is_other_family(config, contract):
        judgement.judged("config", family)
        judgement.not_checked.append(
            "fields and hash: the profile says nothing about another family's config"
        )
        return family
    named = {finding.where for finding in family}
    fields = [*family, *(finding for finding in judge_config(config, contract) if finding.where not in named)]
    judgement.judged("config", fields)
    judgement.judged("hash", judge_hash(config, contract))
    return fields


def inventory_facts(inventory: Inventory, layout: Layout) -> dict[str, Any]:
    """Returns counts, bytes and the digest of the inventory, and where the headers came from."""
    facts: dict[str, Any] = {
        "tensors": len(inventory.rows),
        "shards": len(layout.headers),
        "payload_bytes": inventory.total_bytes,
        "inventory_sha256": inventory.digest,
    }
    if layout.header_set is not None:
        recorded = layout.header_set.recorded_digests
        facts["headers_from"] = HEADER_SET_NAME
        facts["header_digests_published"] = f"{recorded} of {len(layout.headers)}"
    return facts


def _judge_files(judgement: Judgement, layout: Layout, contract: Contract) -> None:
    pins = contract.source_pins
    if pins is None:
        judgement.not_checked.append("files: a private profile pins no file")
        return
    faults: list[Finding] = []
    gaps: list[Finding] = []
    for name, pin in pins.files.items():
        if name not in layout.names:
            gaps.append(
                Finding.of(
                    ABSENT_FILE, "files", name, expected=f"{pin.size_bytes} bytes", got="nothing there"
                )
            )
            continue
        try:
            size = (layout.folder / name).stat().st_size
            if size > _SMALL_FILE_BYTES:
                faults.append(Finding.of(SIZE, "files", name, expected=pin.size_bytes, got=size))
                continue
            digest, _ = file_digest(layout.folder / name, where=name)
        except OSError as error:
            gaps.append(
                Finding.of(ABSENT_FILE, "files", name, expected="a readable file", got=error.strerror)
            )
            continue
        except AdmissionError as error:
            faults.append(error.finding)
            continue
        if digest != pin.sha256:
            faults.append(Finding.of(DIGEST, "files", name, expected=pin.sha256, got=digest))
    judgement.judged("files", faults, gaps)


def _judge_config(judgement: Judgement, layout: Layout, contract: Contract) -> None:
    faults, gaps = layout.found("config")
    judgement.judged("config", faults, gaps)
    if layout.config is None:
        judgement.judged("hash", gaps=[_unjudged("hash", "config.json could not be read")])
        return
    fields = judge_config_area(judgement, layout.config, contract)
    _name_fields_in_digest_finding(judgement, fields)


def _name_fields_in_digest_finding(judgement: Judgement, fields: list[Finding]) -> None:
    """Makes the digest finding of config.json say which fields differ."""
    for number, finding in enumerate(judgement.faults):
        if finding.code == DIGEST and finding.where == CONFIG_NAME:
            names = ", ".join(field.where.removeprefix(f"{CONFIG_NAME}: ") for field in fields[:8])
            more = f" and {len(fields) - 8} more" if len(fields) > 8 else ""
            hint = (
                f"fields that differ: {names}{more}" if fields else "no field differs: only the spelling does"
            )
            judgement.faults[number] = replace(finding, hint=hint)


def judge_shard_names(files: Iterable[str], contract: Contract) -> list[Finding]:
    """Compares the names of the shards with the published ones, if the profile has any."""
    if contract.source_pins is None:
        return []
    pinned, named = {shard.name for shard in contract.source_pins.shards}, set(files)
    absent = [Finding.of(SHARD_NAMES, "index", name, expected="a shard of the index", got="not named")
              for name in sorted(pinned - named)]  # fmt: skip
    return absent + [Finding.of(SHARD_NAMES, "index", name, expected="no such shard", got="named by the index")
                     for name in sorted(named - pinned)]  # fmt: skip


def _judge_index(judgement: Judgement, layout: Layout, contract: Contract) -> None:
    faults, gaps = layout.found("index")
    if layout.index is not None:
        faults = [*faults, *judge_shard_names(layout.index.files, contract)]
    judgement.judged("index", faults, gaps)


def _judge_inventory(judgement: Judgement, layout: Layout, contract: Contract) -> Inventory:
    absent = {*layout.absent_shards, *layout.unread_shards}
    if not layout.headers:
        judgement.judged("inventory", gaps=[_unjudged("inventory", "no header could be read")])
        return Inventory(())
    inventory, faults = gather_inventory(layout.index, layout.headers, absent)
    if layout.index is None and len(layout.headers) > 1:
        judgement.not_checked.append("ownership: several shards and no index to say who owns what")
    faults += judge_inventory(inventory, contract, is_complete=layout.is_complete)
    faults += _judge_sizes(layout, contract)
    gaps = []
    if not layout.is_complete:
        gaps.append(
            _unjudged("inventory", f"{len(absent)} shards could not be read: totals and absences stay open")
        )
    judgement.judged("inventory", faults, gaps)
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
    judgement.not_checked.append("tokenizer behaviour: only declared ids and file digests are judged here")


def _judge_payload(judgement: Judgement, layout: Layout, contract: Contract, options: JudgeOptions) -> None:
    if not options.with_payload:
        judgement.not_checked.append("payload: digests of the shards (--payload checks them)")
        return
    from assay.impl.stores.payload import judge_payload

    payload = judge_payload(layout, contract, options)
    judgement.judged("payload", payload.faults, payload.gaps)
    judgement.facts["payload"] = payload.facts


def _unjudged(stage: str, why: str) -> Finding:
    return Finding.of(UNJUDGED, stage, stage, expected="something to judge", got=why)
