"""Rules of identity, sections, exclusions, licence and support."""

import re
from typing import Final

from assay.spec.contract.contract import Contract
from assay.spec.profiles import PROFILE_IDS
from assay.spec.rules.base import CONFIG, Check, Judge, rule

PRIVATE_IDS: Final = 0x8000_0000
"""First family id of a private profile; public families are small numbers."""

PUBLIC_SECTIONS: Final = ("source_pins", "admission", "memory_targets", "support_gates")

PROFILE_ID: Final = rule(
    "identity.profile-id",
    "The profile id is one of a packaged profile.",
    cause="A profile under a new name, or an id that was changed together with its data.",
)
ARCHITECTURE: Final = rule(
    "identity.architecture",
    "Architecture and both model types of the identity are those of the pinned configuration.",
    cause="An identity copied from a sister family whose configuration looks alike.",
    source=CONFIG,
)
SPELLING: Final = rule(
    "identity.spelling",
    "Family, GGUF architecture key and its spelling are one word.",
    cause="A port that registers the family under a second name.",
)
STORE_FAMILY: Final = rule(
    "identity.store-family",
    "Identity, expert store and row store name the same family id, and its name ends in the architecture's word.",
    cause="A store of a neighbouring family was taken as template.",
)
FAMILY_RANGE: Final = rule(
    "identity.family-range",
    "A public profile has a family id from 1 to 4; a private one has an id from 2^31 up.",
    cause="A private geometry that borrows a public id.",
)
PLE_MAGIC: Final = rule(
    "identity.ple-magic",
    "Identity and row store name the same container, which is `ds4.ple_rows.v` and the version.",
    cause="A container version was raised at one place only.",
)
REVISION: Final = rule(
    "identity.revision",
    "The revision of a public profile is a full commit id of 40 hexadecimal digits.",
    cause="A branch name or a shortened commit was recorded.",
)
ALIAS: Final = rule(
    "identity.forbidden-alias",
    "The forbidden aliases are distinct, and none of them is the family's own name or model type.",
    cause="A short name of the model was listed as alias and as identity.",
)
SECTIONS: Final = rule(
    "profile.sections",
    "A public profile has every section; only a private one may lack source pins, admission, memory targets and support gates.",
    cause="A section was dropped to silence its findings.",
    source="assay",
)
STATUS: Final = rule(
    "profile.status",
    "The contract never states support: its status is pinned-not-supported, and support is computed from evidence.",
    cause="A label written by hand.",
    source="field note AFN-013",
)
NOTES: Final = rule(
    "profile.notes",
    "The notes are distinct lines.",
    cause="A line pasted twice over another.",
)
EXCLUSION_PREFIX: Final = rule(
    "exclusions.prefix",
    "Excluded prefixes end in a dot, differ, and cover no tensor of the base profile.",
    cause="A prefix that was shortened, and so misses its tensors or swallows others.",
)
EXCLUSION_BYTES: Final = rule(
    "exclusions.bytes",
    "Excluded bytes are whole BF16 values, and there are bytes exactly where there are tensors.",
    cause="A count without its bytes, or the reverse.",
)
EXCLUSION_RULES: Final = rule(
    "exclusions.rules",
    "The rules of exclusion are five distinct sentences.",
    cause="A rule was dropped or repeated.",
)
NOT_APACHE: Final = rule(
    "license.not-assumed",
    "No licence is assumed: assumed_apache2 is false.",
    cause="The licence of the code was taken for the licence of the weights.",
)
REVIEW: Final = rule(
    "license.review",
    "Review before distribution is required unless the licence is Apache-2.0.",
    cause="The custom licence was read as permissive.",
)
REVIEW_STATUS: Final = rule(
    "license.review-status",
    "Where a review is required its status is pending; nothing here can approve it.",
    cause="A status written by hand.",
)
LICENSE_DIGEST: Final = rule(
    "license.digest",
    "A public profile pins the digest of the licence file.",
    cause="The file list was reduced to what the loader reads.",
)
GATES: Final = rule(
    "support.gates",
    "Support gates have distinct ids under `support.` and there are six.",
    cause="A gate was dropped to reach support sooner.",
)
MEMORY: Final = rule(
    "memory.targets",
    "Ranges ascend, the resident set fits in the working set, and working set and headroom fit in the memory of the machine.",
    cause="A target changed alone.",
)
CONTEXT_ORDER: Final = rule(
    "memory.context-order",
    "Contexts to qualify ascend and end at the configured maximum.",
    cause="A context was claimed before the smaller ones.",
)
HYPOTHESIS: Final = rule(
    "memory.hypothesis",
    "Memory targets are a hypothesis, swap growth is zero, and a hosted service's window is no claim.",
    cause="A measurement was written into the contract instead of the evidence.",
)


def names(contract: Contract, judge: Judge) -> None:
    """Names and ids agree with the configuration and with each other."""
    identity, config = contract.identity, contract.config
    judge.holds(
        PROFILE_ID,
        "identity.profile_id",
        identity.profile_id in PROFILE_IDS,
        f"one of {', '.join(PROFILE_IDS)}",
        identity.profile_id,
    )
    judge.equal(
        ARCHITECTURE, "identity.architecture", list(config.top.architectures), [identity.architecture]
    )
    judge.equal(ARCHITECTURE, "identity.model_type", config.top.model_type, identity.model_type)
    judge.equal(ARCHITECTURE, "identity.text_model_type", config.text.model_type, identity.text_model_type)
    judge.equal(
        ARCHITECTURE, "config.text.model_type", f"{config.top.model_type}_text", config.text.model_type
    )
    judge.equal(ARCHITECTURE, "config.vision.model_type", config.top.model_type, config.vision.model_type)
    word = config.top.model_type.replace("_", "")
    for name in ("family", "gguf_architecture", "gguf_architecture_spelling"):
        judge.equal(SPELLING, f"identity.{name}", word, getattr(identity, name))
    public = contract.visibility == "public"
    if public:
        judge.holds(
            REVISION,
            "identity.revision",
            re.fullmatch(r"[0-9a-f]{40}", identity.revision) is not None,
            "40 hexadecimal digits",
            identity.revision,
        )
        judge.equal(
            STORE_FAMILY,
            "identity.store_family_name",
            f"DS4_EXPERT_STORE_FAMILY_{word.upper()}",
            identity.store_family_name,
        )
    family = identity.store_family
    judge.equal(STORE_FAMILY, "expert_store.family", family, contract.expert_store.family)
    judge.equal(STORE_FAMILY, "ple_extent.family", family, contract.ple_extent.family)
    judge.holds(
        FAMILY_RANGE,
        "identity.store_family",
        1 <= family <= 4 if public else PRIVATE_IDS <= family < 2**32,
        "1 to 4" if public else "2147483648 to 4294967295",
        family,
    )
    magic = f"ds4.ple_rows.v{contract.ple_extent.version}"
    judge.equal(PLE_MAGIC, "identity.ple_extent_magic", magic, identity.ple_extent_magic)
    judge.equal(PLE_MAGIC, "ple_extent.magic", magic, contract.ple_extent.magic)
    own = {identity.family, identity.model_type, identity.text_model_type, identity.profile_id}
    aliases = identity.forbidden_aliases
    for index, alias in enumerate(aliases):
        claim = alias not in own and alias not in aliases[:index]
        judge.holds(ALIAS, f"identity.forbidden_aliases[{index}]", claim, "a distinct foreign name", alias)


def sections(contract: Contract, judge: Judge) -> None:
    """A public profile is complete, and no profile states support."""
    judge.equal(STATUS, "status", "pinned-not-supported", contract.status)
    public = contract.visibility == "public"
    for name in PUBLIC_SECTIONS:
        judge.holds(SECTIONS, name, not public or getattr(contract, name) is not None, "a section", None)
    notes = contract.notes
    for index, note in enumerate(notes):
        judge.holds(NOTES, f"notes[{index}]", note not in notes[:index], "a distinct line", note)


def exclusions(contract: Contract, judge: Judge) -> None:
    """What is left out is named by prefix and counted in bytes."""
    excluded = contract.exclusions
    base = contract.tensor_roles.base_prefix
    for name in ("vision", "mtp"):
        prefix: str = getattr(excluded, f"{name}_prefix")
        other: str = excluded.mtp_prefix if name == "vision" else excluded.vision_prefix
        claim = (
            prefix.endswith(".")
            and not other.startswith(prefix)
            and not base.startswith(prefix)
            and prefix.removesuffix(".").rsplit(".", 1)[-1] == ("visual" if name == "vision" else "mtp")
        )
        judge.holds(
            EXCLUSION_PREFIX,
            f"exclusions.{name}_prefix",
            claim,
            "a prefix that ends in a dot and covers no base tensor",
            prefix,
        )
        count, size = getattr(excluded, f"{name}_tensors"), getattr(excluded, f"{name}_bytes")
        judge.holds(
            EXCLUSION_BYTES,
            f"exclusions.{name}_bytes",
            size % 2 == 0 and (count > 0) == (size > 0) and size >= 2 * count,
            f"whole BF16 values of {count} tensors",
            size,
        )
    judge.equal(EXCLUSION_RULES, "exclusions.rules", 5, len(set(excluded.rules)))


def licence(contract: Contract, judge: Judge) -> None:
    """Nothing is assumed about the licence and nothing here approves it."""
    license_ = contract.license
    judge.equal(NOT_APACHE, "license.assumed_apache2", False, license_.assumed_apache2)
    needed = license_.expected != "Apache-2.0"
    judge.equal(
        REVIEW,
        "license.review_required_before_distribution",
        needed,
        license_.review_required_before_distribution,
    )
    wanted = "pending" if needed else "own-work"
    judge.equal(REVIEW_STATUS, "license.review_status", wanted, license_.review_status)
    if contract.source_pins is not None:
        judge.holds(
            LICENSE_DIGEST,
            "source_pins.files",
            "LICENSE" in contract.source_pins.files,
            "a LICENSE entry",
            "none",
        )


def support(contract: Contract, judge: Judge) -> None:
    """Targets are consistent and stay hypotheses."""
    if contract.support_gates is not None:
        ids = [gate.id for gate in contract.support_gates]
        judge.equal(GATES, "support_gates", [6, 6], [len(ids), len(set(ids))])
        for index, id_ in enumerate(ids):
            judge.holds(
                GATES, f"support_gates[{index}].id", id_.startswith("support."), "an id under support.", id_
            )
    targets = contract.memory_targets
    if targets is None:
        return
    resident, working = targets.resident_model_plus_metal_gib, targets.small_context_working_set_gib
    judge.holds(
        MEMORY,
        "memory_targets.resident_model_plus_metal_gib",
        resident.low <= resident.high <= working.low <= working.high,
        "resident.low <= resident.high <= working.low <= working.high",
        f"{resident.low}-{resident.high}, {working.low}-{working.high}",
    )
    judge.equal(
        MEMORY,
        "memory_targets.minimum_headroom_gib",
        targets.unified_memory_gib - working.high,
        targets.minimum_headroom_gib,
    )
    judge.equal(HYPOTHESIS, "memory_targets.hypothesis_only", True, targets.hypothesis_only)
    judge.equal(HYPOTHESIS, "memory_targets.swap_delta_bytes", 0, targets.swap_delta_bytes)
    judge.equal(
        HYPOTHESIS,
        "memory_targets.hosted_service_window_is_not_a_claim",
        True,
        targets.hosted_service_window_is_not_a_claim,
    )
    order = targets.context_qualification_order
    judge.holds(
        CONTEXT_ORDER,
        "memory_targets.context_qualification_order",
        list(order) == sorted(set(order)) and order[-1:] == (contract.config.text.max_position_embeddings,),
        f"ascending, ending at {contract.config.text.max_position_embeddings}",
        list(order),
    )


CHECKS: Final[tuple[Check, ...]] = (names, sections, exclusions, licence, support)
