"""Pins: every leaf of a contract against the packaged profile with the same id.

A pin compares frozen data with its own copy. It notices every change and proves nothing about the value; what
stands behind a value is a rule or upstream's data, and `pin_reasons` says for which leaves neither exists.
"""

from typing import Any, Final

from assay.spec.clauses import Authority, declare
from assay.spec.errors import Finding
from assay.spec.leaves import ABSENT, Path, path_text, same
from assay.spec.profiles import PROFILE_IDS, profile_document

STAGE: Final = "pins"

GROUPS: Final = [
    "schema",
    "kind",
    "visibility",
    "status",
    "notes",
    "identity",
    "source_pins",
    "source_pins.transformers_sources",
    "source_pins.bytes_by_dtype",
    "source_pins.classification",
    "source_pins.files",
    "source_pins.shards",
    "source_pins.header_sha256",
    "exclusions",
    "config.top",
    "config.text",
    "config.text.mtp",
    "config.text.rope_parameters",
    "config.vision",
    "config.seed",
    "config.norm_topk_prob",
    "config.unjudged",
    "tensor_roles",
    "tensor_roles.global_roles",
    "tensor_roles.layer_roles",
    "tensor_roles.linear_attention_roles",
    "tensor_roles.full_attention_roles",
    "tensor_roles.ple_roles",
    "derived_constants",
    "graph_facts.embedding_padding_row",
    "graph_facts.final_norm",
    "graph_facts.gated_residual",
    "graph_facts.attention",
    "graph_facts.gdn",
    "graph_facts.moe",
    "ple_hash",
    "ple_hash.derivation",
    "norm_conventions",
    "expert_store",
    "expert_store.raise_max_experts",
    "expert_store.structural_candidate",
    "ple_extent",
    "ple_extent.wire_format",
    "ple_extent.pending_decisions",
    "vocabulary",
    "vocabulary.added_tokens",
    "vocabulary.model_config_ids",
    "vocabulary.tokenizer_ids",
    "admission",
    "admission.metadata",
    "admission.metadata.entries",
    "admission.physical_fixture",
    "admission.physical_fixture.owners",
    "admission.physical_fixture.source_partition",
    "admission.physical_fixture.dense",
    "admission.physical_fixture.expert_major",
    "admission.physical_fixture.ple",
    "admission.report",
    "admission.report.fields",
    "admission.tokenizer",
    "admission.tokenizer.declared_provenance",
    "admission.tokenizer.authority",
    "admission.tokenizer.declared_model_config_ids",
    "admission.tokenizer.declared_tokenizer_ids",
    "admission.tokenizer.chat_template",
    "admission.tokenizer.oracles",
    "memory_targets",
    "support_gates",
    "license",
]
"""Groups of leaves that share a pin clause; a leaf belongs to the longest group that covers it."""

CLAUSES: Final = {
    group: declare(
        f"pin.{group}",
        Authority.PIN,
        f"Every leaf of {group} equals the packaged profile, in value and type.",
        source="packaged profile",
        cause="The document was edited. If no rule speaks as well, the new value agrees with everything else.",
        fix="Read the leaf in `assay/spec/profiles`; a wanted change is a new profile with a new id.",
    )
    for group in GROUPS
}


def pin_clause(path: Path) -> str:
    """Returns the id of the pin clause that covers a leaf."""
    words = [part for part in path if isinstance(part, str)]
    for length in range(min(len(words), 3), 0, -1):
        if (found := CLAUSES.get(".".join(words[:length]))) is not None:
            return found
    # A whole section of sections, replaced by something else: its first part speaks, after the form.
    return next(CLAUSES[group] for group in GROUPS if group.startswith(f"{words[0]}."))


def packaged_name(document: Any) -> str:
    """Returns the packaged profile to compare with: by profile id, else by visibility, else the public one."""
    identity = document.get("identity") if isinstance(document, dict) else None
    named = identity.get("profile_id") if isinstance(identity, dict) else None
    if isinstance(named, str) and named in PROFILE_IDS:
        return PROFILE_IDS[named]
    return (
        "miniature" if isinstance(document, dict) and document.get("visibility") == "private" else "qwen4exp"
    )


def judge_pins(document: Any, profile: str | None = None) -> list[Finding]:
    """Returns one finding for each leaf that differs from the packaged profile.

    A section that is missing or extra is left to the form, which always speaks of it.
    """
    found: list[Finding] = []
    if isinstance(document, dict):
        for section, expected in profile_document(profile or packaged_name(document)).items():
            if section in document and not _surely_same(expected, document[section]):
                _compare(expected, document[section], (section,), found)
    return found


def _surely_same(expected: Any, got: Any) -> bool:
    """Says whether two values are the same for sure; much faster than a walk through an unchanged section."""
    try:
        return repr(expected) == repr(got)  # tells 1, 1.0 and true apart
    except (ValueError, RecursionError):  # an integer of thousands of digits, a nest of thousands of arrays
        return False


def _compare(expected: Any, got: Any, path: Path, found: list[Finding]) -> None:
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in (*expected, *(key for key in got if key not in expected)):
            _compare(expected.get(key, _Absent), got.get(key, _Absent), (*path, key), found)
    elif isinstance(expected, list) and isinstance(got, list):
        for index in range(max(len(expected), len(got))):
            _compare(_at(expected, index), _at(got, index), (*path, index), found)
    elif not same(expected, got):
        found.append(
            Finding.of(
                pin_clause(path),
                STAGE,
                path_text(path),
                expected=_shown(expected),
                got=_shown(got),
            )
        )


class _Absent:
    """Stands for a leaf that one side lacks."""


def _at(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else _Absent


def _shown(value: Any) -> Any:
    return ABSENT if value is _Absent else value
