"""Leaves of a contract for which only the pin stands, and why no rule and no upstream data can judge them.

A pattern is the words of a leaf's path without array indexes, with `*` for any run of characters. The battery of
the contract shows each leaf that only a pin kills with its reason; a leaf without one is a gap in the rules.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from assay.spec.leaves import Path


@dataclass(frozen=True, slots=True)
class PinReason:
    """Why only a pin stands behind the leaves of some patterns."""

    patterns: tuple[str, ...]
    reason: str


PIN_REASONS: Final[tuple[PinReason, ...]] = (
    PinReason(
        (
            "notes",
            "exclusions.rules",
            "graph_facts.*.evidence",
            "ple_hash.hash_safety",
            "norm_conventions.rules",
            "ple_extent.rules",
            "admission.physical_fixture.layout_rules",
            "admission.report.rules",
            "support_gates.title",
        ),
        "A sentence for people. Rules count the sentences and keep them distinct; what a sentence says is checked by "
        "the gate that it speaks of, not by reading it.",
    ),
    PinReason(
        (
            "config.seed.reason",
            "config.norm_topk_prob.source",
            "config.unjudged.reason",
            "derived_constants.attention_output_gate.formula",
            "derived_constants.gdn_head_states.formula",
            "derived_constants.shared_expert_gate_outputs.formula",
            "ple_hash.derivation.formulas.*",
            "expert_store.route_records_formula",
            "expert_store.raise_max_experts.note",
            "expert_store.structural_candidate.reason",
            "ple_extent.embedding_shard_formula",
            "ple_extent.wire_format.*_digest",
            "ple_extent.wire_format.page_digest_table",
            "ple_extent.wire_format.codec_binding",
            "ple_extent.pending_decisions.text",
            "vocabulary.sampling_rule",
            "vocabulary.decode_rule",
            "admission.source_hash_controls",
            "admission.physical_fixture.dense.dimensions",
            "admission.physical_fixture.dense.identity",
            "admission.tokenizer.verification",
            "admission.tokenizer.authority.divergence",
            "memory_targets.advertising_rule",
        ),
        "A derivation or policy in words. The rule that computes it is code of its own; comparing code with prose "
        "would only compare our wording with itself.",
    ),
    PinReason(
        (
            "identity.repository",
            "identity.revision",
            "source_pins.transformers_source_folder",
            "source_pins.inventory_fixture",
            "license.expected",
            "identity.forbidden_aliases",
            "identity.store_family_name",
            "ple_extent.hash_id",
        ),
        "A name given by its publisher. Nothing in the files derives it; the files carry digests, not their address.",
    ),
    PinReason(
        (
            "source_pins.transformers_sources.*",
            "source_pins.files.*.sha256",
            "source_pins.files.*.size_bytes",
            "source_pins.shards.sha256",
        ),
        "A digest or size of a file that is not at hand. With the file it is judged against its bytes: "
        "`assay validate --payload` does so for shards.",
    ),
    PinReason(
        ("ple_hash.derivation.prime_step",),
        "It multiplies the ordinal of the embedding, which is zero here: every value gives the same multipliers.",
    ),
    PinReason(
        ("norm_conventions.zero_centered",),
        "The two norms of the draft head. The base profile has no role for them, and their published names do not "
        "tell which convention they follow.",
    ),
    PinReason(
        (
            "expert_store.raise_max_experts.field",
            "expert_store.raise_max_experts.phase",
            "expert_store.structural_candidate.status",
            "admission.status",
            "admission.physical_fixture.expert_major.source_provenance",
            "admission.physical_fixture.ple.payload_verification",
            "admission.report.stages",
            "admission.tokenizer.phase",
            "admission.tokenizer.status",
        ),
        "A word of the published port: a stage, a phase, a status or a symbol. It could be any other word; rules keep "
        "only its kind, such as `structural` or `offline`.",
    ),
    PinReason(
        (
            "admission.tokenizer.tokenizer_content_verified",
            "admission.tokenizer.full_special_mapping_verified",
            "admission.tokenizer.oracles.*",
        ),
        "A record of work done elsewhere: cases captured there, by count and digest. The cases are run by the gates "
        "of the text pipeline, not recomputed from the contract.",
    ),
    PinReason(
        (
            "admission.tokenizer.authority.backend",
            "admission.tokenizer.normalizer",
            "admission.tokenizer.chat_template.*",
        ),
        "Behaviour of the tokenizer and template. It shows only when they run, which the gates of the text pipeline "
        "do; the contract has no function to recompute it.",
    ),
    PinReason(
        (
            "memory_targets.machine",
            "memory_targets.*_gib.low",
            "memory_targets.*_gib.high",
            "memory_targets.context_qualification_order",
            "support_gates.id",
        ),
        "A goal that was chosen, not a fact that follows. Rules keep goals ordered and within the machine; a measurement "
        "on it is evidence, never contract.",
    ),
    PinReason(
        (
            "config.top.language_model_only",
            "config.text.initializer_range",
            "config.text.mtp.hybrid",
            "config.text.rms_norm_eps",
            "config.text.router_aux_loss_coef",
            "config.text.use_cache",
            "config.vision.*",
        ),
        "A free choice of the configuration. The public profile's is judged against the published file; the private "
        "profile is its own publisher.",
    ),
)


def leaf_words(path: Path) -> str:
    """Returns the words of a leaf's path without array indexes, joined by dots."""
    return ".".join(part for part in path if isinstance(part, str))


def pin_reason(path: Path) -> PinReason | None:
    """Returns the first reason whose patterns cover a leaf, or None when a rule or upstream must judge it."""
    words = leaf_words(path)
    return next(
        (one for one in PIN_REASONS if any(fnmatchcase(words, pattern) for pattern in one.patterns)), None
    )
