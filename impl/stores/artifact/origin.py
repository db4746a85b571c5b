"""What an artifact is built from: a checkpoint directory, read once, with everything that speaks against building it.

The public profile can be planned (`dry_run`) but not built: no codec for it is qualified. Everything else is private.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.artifact.conversion import conversion_report
from assay.impl.stores.artifact.geometry import read_geometry, text_of
from assay.impl.stores.artifact.private import PrivateArtifact
from assay.impl.stores.artifact.source import MISSING, SourceMap, artifact_name, map_source
from assay.impl.stores.checkpoint.config_fields import judge_config, judge_family, nearest_profile
from assay.impl.stores.checkpoint.contract_inventory import judge_inventory
from assay.impl.stores.checkpoint.hash_derivation import judge_hash
from assay.impl.stores.checkpoint.inventory import Inventory, gather_inventory
from assay.impl.stores.checkpoint.layout import Layout, read_layout
from assay.impl.stores.expert_major.layout import ROLES
from assay.impl.stores.private_families import private_stores
from assay.spec.canonical import canonical_digest
from assay.spec.clauses import Authority, declare
from assay.spec.contract import Contract
from assay.spec.errors import AdmissionError, ContractError, Finding
from assay.spec.profiles import load_profile, profile_document
from assay.spec.rules.judge import judge_contract

PUBLIC: Final = "qwen4exp"
STAGE: Final = "build"
NO_CODEC: Final = declare(
    "build.no-codec",
    Authority.PROCESS,
    "The public profile is built only with a release-qualified codec for experts and rows, and none exists.",
    source="field notes AFN-002, AFN-003 and AFN-013",
    cause="the real checkpoint given to `assay build`",
    fix="--dry-run gives the conversion report; --structural gives the geometry without payload",
)
PRIVATE: Final = declare(
    "build.private",
    Authority.PROCESS,
    "Any other checkpoint becomes a private artifact, which is built and admitted through the private seam only.",
    source="field note AFN-013",
    cause="a miniature or another test geometry on the public route",
    fix="say --private; the result is stamped `seam: private`",
)


class BuildRefusedError(AdmissionError):
    """A source that can't be built from, with every reason."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__(findings[0])
        self.findings = tuple(findings)


@dataclass(frozen=True, slots=True)
class Origin:
    """A checkpoint directory that an artifact can be built from.

    Attributes:
        folder: the directory.
        layout: its files.
        config: its configuration.
        inventory: its tensors.
        mapping: where each of them goes.
        contract: the public contract, or None for a private geometry.
    """

    folder: Path
    layout: Layout
    config: Mapping[str, Any]
    inventory: Inventory
    mapping: SourceMap
    contract: Contract | None


def read_origin(folder: Path, *, needs_payload: bool = True, contract: Contract | None = None) -> Origin:
    """Reads a checkpoint's description and maps its tensors.

    Args:
        folder: the directory.
        needs_payload: whether the shards themselves must be there; headers alone do for a dry run.
        contract: the public contract; the packaged one when left out.

    Raises:
        BuildRefusedError: with every finding of configuration, index, headers, ownership, roles and mapping.
    """
    layout = read_layout(folder)
    findings = [one for stage in ("config", "index", "headers") for one in layout.found(stage)[0]]
    inventory, doubles = gather_inventory(
        layout.index, layout.headers, (*layout.absent_shards, *layout.unread_shards)
    )
    findings += doubles
    absent = [*layout.found("config")[1], *layout.found("index")[1]]
    if needs_payload or not layout.headers or (layout.absent_shards and layout.header_set is None):
        absent += layout.found("headers")[1]
    if absent or layout.config is None:
        raise BuildRefusedError([*findings, *absent])
    try:
        geometry = read_geometry(layout.config)
        rows = private_stores(text_of(layout.config)).rows
    except ContractError as error:
        raise BuildRefusedError([*findings, *_of_another_family(layout.config), error.finding]) from error
    mapping = map_source(inventory.rows, geometry, rows.width, rows.rows)
    public = nearest_profile(layout.config)
    is_public = public.visibility == "public" and _is_published(layout.config, public)
    if is_public:
        judged = contract or public
        findings += judge_contract(judged, profile=PUBLIC)
        findings += judge_config(layout.config, judged)
        findings += judge_hash(layout.config, judged)
        findings += judge_inventory(inventory, judged, is_complete=not layout.absent_shards)
    findings += [one for one in mapping.findings if not _follows(one, layout)]
    if findings:
        raise BuildRefusedError(findings)
    return Origin(folder, layout, layout.config, inventory, mapping, public if is_public else None)


def refuse_public_route(folder: Path, *, dry_run: bool) -> None:
    """Refuses what the public route can't do, before anything but the configuration is read.

    Raises:
        AdmissionError: build.no-codec or build.private.
    """
    layout = read_layout(folder)
    if layout.config is None:
        return  # reading the origin says why
    profile = nearest_profile(layout.config)
    if profile.visibility == "public" and _is_published(layout.config, profile):
        if not dry_run:
            raise AdmissionError(
                Finding.of(
                    NO_CODEC, STAGE, profile.identity.profile_id, expected="a release-qualified codec", got="none",
                    hint="--dry-run gives the conversion report, --structural the geometry without payload",
                )
            )  # fmt: skip
        return
    raise AdmissionError(
        Finding.of(
            PRIVATE, STAGE, str(folder), expected="the public profile", got="a private geometry",
            hint="--private builds it, and stamps the result `seam: private`",
        )
    )  # fmt: skip


def dry_run(folder: Path, *, contract: Contract | None = None, is_private: bool = False) -> dict[str, Any]:
    """Returns the conversion report of a checkpoint, from its description alone.

    Args:
        folder: the directory; shards may be absent when a header set stands in for them.
        contract: the public contract; the packaged one when left out.
        is_private: whether the private seam was asked for, which stamps the report of any checkpoint.

    Raises:
        BuildRefusedError: with every finding.
    """
    origin = read_origin(folder, needs_payload=False, contract=contract)
    layers = len(origin.mapping.geometry.layers)
    is_public = origin.contract is not None
    profile = (
        origin.contract.identity.profile_id
        if origin.contract is not None
        else PrivateArtifact.of(origin.config).profile_id
    )
    return conversion_report(
        origin.mapping.destinations,
        kind="qwen4exp-conversion-dry-run",
        profile_id=profile,
        inventory_sha256=origin.inventory.digest,
        contract_sha256=canonical_digest(profile_document(PUBLIC)) if is_public else None,
        components=layers * len(ROLES),
        is_private=is_private or not is_public,
    )


def _of_another_family(config: Mapping[str, Any]) -> list[Finding]:
    """Says that a configuration is of another family, if it is; a text-only one of this family is not."""
    public = load_profile(PUBLIC)
    if config.get("model_type") in (public.identity.model_type, public.identity.text_model_type):
        return []
    return judge_family(dict(config), public)


def _follows(finding: Finding, layout: Layout) -> bool:
    """Says whether a tensor is missed only because its header couldn't be read, which has been said."""
    if finding.code != MISSING:
        return False
    unread = {artifact_name(name) for header in layout.headers.values() for name in header.unread}
    return bool(layout.unread_shards) or finding.where in unread


def _is_published(config: Mapping[str, Any], public: Contract) -> bool:
    """Says whether a configuration is meant to be the published one: its sizes are, whatever else was edited."""
    text, pinned = text_of(config), public.config.text
    names = ("hidden_size", "num_hidden_layers", "num_experts", "moe_intermediate_size", "vocab_size")
    same = sum(text.get(name) == getattr(pinned, name) for name in names)
    return bool(same >= len(names) - 1)
