"""Every clause of the contract answers to a mutation of its own, at the place that was changed."""

import copy
import dataclasses
import importlib
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from assay.provenance.catalogue import CLAUSE_MODULES
from assay.provenance.paths import checkpoint_directory
from assay.spec.clauses import Authority, clause, clauses
from assay.spec.profiles import profile_document
from assay.spec.rules import UpstreamFacts, judge_contract, read_upstream
from assay.spec.rules.derived import NAMES

DROP = object()
AGAIN = object()

MODEL = "model.language_model."
HASHED = "f" * 64


def edited(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of the document with one place changed; parts are joined by `/`, digits index arrays."""
    changed = copy.deepcopy(document)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    place: Any = changed
    for part in parents:
        place = place[part]
    if value is DROP:
        del place[last]
    elif value is AGAIN:
        place.append(copy.deepcopy(place[last]))
    elif isinstance(place, list) and last == len(place):
        place.append(value)
    else:
        place[last] = value
    return changed


# clause, changed path, new value, place of the finding
PUBLIC: list[tuple[str, str, Any, str]] = [
    ("identity.profile-id", "identity/profile_id", "qwen4exp-base-v2", "identity.profile_id"),
    ("identity.architecture", "identity/text_model_type", "qwen3_text", "identity.text_model_type"),
    ("identity.spelling", "identity/gguf_architecture", "qwen4", "identity.gguf_architecture"),
    ("identity.store-family", "expert_store/family", 3, "expert_store.family"),
    ("identity.family-range", "identity/store_family", 5, "identity.store_family"),
    ("identity.ple-magic", "identity/ple_extent_magic", "ds4.ple_rows.v2", "identity.ple_extent_magic"),
    ("identity.revision", "identity/revision", "main", "identity.revision"),
    ("identity.forbidden-alias", "identity/forbidden_aliases/5", "qwen3", "identity.forbidden_aliases[5]"),
    ("profile.sections", "admission", None, "admission"),
    ("profile.status", "status", "supported", "status"),
    ("profile.notes", "notes/0", AGAIN, "notes[13]"),
    ("exclusions.prefix", "exclusions/vision_prefix", "visual.x.", "exclusions.vision_prefix"),
    ("exclusions.bytes", "exclusions/mtp_bytes", 0, "exclusions.mtp_bytes"),
    ("exclusions.rules", "exclusions/rules/0", DROP, "exclusions.rules"),
    ("license.not-assumed", "license/assumed_apache2", True, "license.assumed_apache2"),
    (
        "license.review",
        "license/review_required_before_distribution",
        False,
        "license.review_required_before_distribution",
    ),
    ("license.review-status", "license/review_status", "approved", "license.review_status"),
    ("license.digest", "source_pins/files/LICENSE", DROP, "source_pins.files"),
    ("support.gates", "support_gates/5", DROP, "support_gates"),
    (
        "memory.targets",
        "memory_targets/minimum_headroom_gib",
        9,
        "memory_targets.minimum_headroom_gib",
    ),
    (
        "memory.context-order",
        "memory_targets/context_qualification_order/4",
        131072,
        "memory_targets.context_qualification_order",
    ),
    ("memory.hypothesis", "memory_targets/hypothesis_only", False, "memory_targets.hypothesis_only"),
    ("config.layer-types.count", "config/text/num_hidden_layers", 47, "config.text.layer_types"),
    (
        "config.layer-types.pattern",
        "config/text/layer_types/3",
        "linear_attention",
        "config.text.layer_types[3]",
    ),
    ("config.layer-types.interval", "config/text/num_hidden_layers", 47, "config.text.num_hidden_layers"),
    ("config.mtp", "config/text/mtp/rope_theta", 10000, "config.text.mtp.rope_theta"),
    ("config.untied", "config/text/tie_word_embeddings", True, "config.text.tie_word_embeddings"),
    ("config.attention-bias", "config/text/attention_bias", True, "config.text.attention_bias"),
    ("config.heads", "config/text/num_attention_heads", 23, "config.text.num_attention_heads"),
    ("config.ple-width", "config/text/ple_embed_dim", 2561, "config.text.ple_embed_dim"),
    ("config.ple-layer", "config/text/ple_layer_ids/0", 3, "config.text.ple_layer_ids"),
    ("config.indexer-budget", "config/text/indexer_budget", 2049, "config.text.indexer_budget"),
    ("config.indexer-keys", "config/text/indexer_kv_heads", 2, "config.text.indexer_kv_heads"),
    ("config.rotary", "config/text/partial_rotary_factor", 0.5, "config.text.partial_rotary_factor"),
    (
        "config.mrope-sections",
        "config/text/rope_parameters/mrope_section",
        [12, 10, 10],
        "config.text.rope_parameters.mrope_section[0]",
    ),
    (
        "config.rope-type",
        "config/text/rope_parameters/rope_type",
        "yarn",
        "config.text.rope_parameters.rope_type",
    ),
    ("config.router", "config/norm_topk_prob/value", False, "config.norm_topk_prob.value"),
    (
        "config.widths",
        "config/text/shared_expert_intermediate_size",
        512,
        "config.text.shared_expert_intermediate_size",
    ),
    ("config.vision", "config/vision/num_heads", 17, "config.vision.num_heads"),
    ("config.activations", "config/text/output_gate_type", "silu", "config.text.output_gate_type"),
    ("config.token-ids", "config/text/eos_token_id", 248046, "config.text.eos_token_id"),
    ("config.seed", "config/seed/value", 1235, "config.seed.value"),
    ("config.unjudged", "config/unjudged/0/path", "model_type", "config.unjudged[0].path"),
    ("derived.set", "derived_constants/not_derived", {"value": 1, "formula": "1"}, "derived_constants"),
    (
        "derived.formula",
        "derived_constants/wide_size/formula",
        "hidden_size * 5",
        "derived_constants.wide_size.formula",
    ),
    (
        "ple.hash.derivation",
        "ple_hash/derivation/splitmix_gamma",
        "0x9e3779b97f4a7c16",
        "ple_hash.derivation.splitmix_gamma",
    ),
    ("ple.hash.seed", "ple_hash/seed", 4242, "ple_hash.seed"),
    ("ple.hash.ordinal", "ple_hash/ple_layer_index", 1, "ple_hash.ple_layer_index"),
    ("ple.hash.multipliers", "ple_hash/layer_multipliers/0", 23703573157771, "ple_hash.layer_multipliers[0]"),
    (
        "ple.hash.multiplier-bound",
        "ple_hash/layer_multipliers/2",
        8052911324070,
        "ple_hash.layer_multipliers[2]",
    ),
    ("ple.hash.primes", "ple_hash/head_primes/0", 20000001, "ple_hash.head_primes[0]"),
    ("ple.hash.offsets", "ple_hash/head_offsets/1", 20000004, "ple_hash.head_offsets[1]"),
    ("ple.hash.total-rows", "ple_hash/total_head_rows", 320001445, "ple_hash.total_head_rows"),
    ("ple.hash.padded-rows", "ple_hash/padded_rows", 320001535, "ple_hash.padded_rows"),
    (
        "ple.hash.product-bound",
        "ple_hash/max_hash_product",
        "5886047582964040312",
        "ple_hash.max_hash_product",
    ),
    ("ple.hash.safety", "ple_hash/hash_safety/3", DROP, "ple_hash.hash_safety"),
    ("ple.extent.geometry", "ple_extent/row_width", 161, "ple_extent.row_width"),
    ("ple.extent.shards", "ple_extent/embedding_shard_rows", 2500011, "ple_extent.embedding_shard_rows"),
    ("ple.extent.profile", "ple_extent/profile_id", "qwen35moe-base-v1", "ple_extent.profile_id"),
    ("ple.extent.wire", "ple_extent/wire_format/endianness", "big", "ple_extent.wire_format.endianness"),
    (
        "ple.extent.pending",
        "ple_extent/pending_decisions/0/state",
        "frozen",
        "ple_extent.pending_decisions[0].state",
    ),
    ("roles.set", "tensor_roles/linear_attention_roles/6", DROP, "tensor_roles.linear_attention_roles"),
    ("roles.shape", "tensor_roles/layer_roles/5/shape/1", 640, "tensor_roles.layer_roles[5].shape"),
    ("roles.dtype", "tensor_roles/ple_roles/5/dtype", "BF16", "tensor_roles.ple_roles[5].dtype"),
    ("roles.ple-shards", "tensor_roles/ple_roles/6/count", 64, "tensor_roles.ple_roles[6].count"),
    ("roles.unique", "tensor_roles/global_roles/0", AGAIN, "tensor_roles"),
    ("roles.base-total", "tensor_roles/expected_base_tensors", 1200, "tensor_roles.expected_base_tensors"),
    ("roles.ple-layer", "tensor_roles/ple_runtime_layer", 2, "tensor_roles.ple_runtime_layer"),
    ("totals.classification", "source_pins/classification/base", 1293, "source_pins.classification.base"),
    ("totals.bytes", "source_pins/source_bytes", 359999963127, "source_pins.source_bytes"),
    ("totals.shards", "source_pins/shards/0/size_bytes", 1, "source_pins.shard_header_bytes"),
    (
        "totals.files",
        "source_pins/files/LICENSE/sha256",
        "889658f2508e8c61d409b02e70e0d78d8d4452ec65aaafbe129805d213d2e74b",
        'source_pins.files["config.json"].sha256',
    ),
    ("norms.classified", "norm_conventions/conventional", [], "norm_conventions: linear_attn.norm"),
    (
        "norms.known-role",
        "norm_conventions/zero_centered/12",
        "model.norm",
        "norm_conventions.zero_centered[12]",
    ),
    (
        "norms.formula",
        "norm_conventions/zero_centered_formula",
        "x * rsqrt(mean(x^2) + rms_norm_eps) * w",
        "norm_conventions.zero_centered_formula",
    ),
    (
        "graph.padding-row",
        "graph_facts/embedding_padding_row/embed_all_zero",
        True,
        "graph_facts.embedding_padding_row.embed_all_zero",
    ),
    ("graph.final-norm", "graph_facts/final_norm/present", True, "graph_facts.final_norm.present"),
    (
        "graph.gated-residual",
        "graph_facts/gated_residual/attn_and_mlp_separate",
        False,
        "graph_facts.gated_residual.attn_and_mlp_separate",
    ),
    (
        "graph.attention",
        "graph_facts/attention/mrope_position_rows_for_text",
        3,
        "graph_facts.attention.mrope_position_rows_for_text",
    ),
    ("graph.gdn", "graph_facts/gdn/bias_free_conv", False, "graph_facts.gdn.bias_free_conv"),
    ("graph.moe", "graph_facts/moe/fused_down_tensor", False, "graph_facts.moe.fused_down_tensor"),
    ("expert-store.geometry", "expert_store/experts_per_layer", 384, "expert_store.experts_per_layer"),
    ("expert-store.container", "expert_store/components/0", "up", "expert_store.components[0]"),
    (
        "expert-store.route-records",
        "expert_store/minimum_route_records_per_token",
        481,
        "expert_store.minimum_route_records_per_token",
    ),
    (
        "expert-store.raise-max-experts",
        "expert_store/raise_max_experts/to_experts",
        384,
        "expert_store.raise_max_experts.to_experts",
    ),
    (
        "expert-store.candidate",
        "expert_store/structural_candidate/block_bytes",
        32,
        "expert_store.structural_candidate.block_bytes",
    ),
    (
        "expert-store.candidate-status",
        "expert_store/structural_candidate/status",
        "release-qualified",
        "expert_store.structural_candidate.status",
    ),
    ("vocabulary.boundary", "vocabulary/effective_ids", 248320, "vocabulary.effective_ids"),
    ("vocabulary.physical-rows", "vocabulary/physical_rows", 248077, "vocabulary.physical_rows"),
    ("vocabulary.added-tokens", "vocabulary/added_tokens/1/id", 248046, "vocabulary.added_tokens[1].id"),
    (
        "vocabulary.mapping-digest",
        "vocabulary/added_tokens/14/content",
        "<tool>",
        "vocabulary.added_token_mapping_sha256",
    ),
    ("vocabulary.special-ids", "vocabulary/backend_special_ids/0", DROP, "vocabulary.backend_special_ids"),
    ("vocabulary.stop-ids", "vocabulary/stop_ids", [248044], "vocabulary.stop_ids"),
    (
        "vocabulary.named-ids",
        "vocabulary/tokenizer_ids/image_pad",
        248055,
        "vocabulary.tokenizer_ids.image_pad",
    ),
    ("vocabulary.max-length", "vocabulary/model_max_length", 131072, "vocabulary.model_max_length"),
    (
        "admission.metadata.keys",
        "admission/metadata/entries/108",
        {"key": "qwen4exp.unclosed", "type": "UINT32", "value": 1},
        "admission.metadata.entries",
    ),
    (
        "admission.metadata.type",
        "admission/metadata/entries/8/type",
        "UINT32",
        "admission.metadata.entries[8].type",
    ),
    (
        "admission.metadata.value",
        "admission/metadata/entries/88/value/3",
        0,
        "admission.metadata.entries[88].value[3]",
    ),
    ("admission.metadata.absent", "admission/metadata/absent_keys/0", DROP, "admission.metadata.absent_keys"),
    ("admission.metadata.closed", "admission/metadata/closed", False, "admission.metadata.closed"),
    ("admission.no-support", "admission/support_claim", True, "admission.support_claim"),
    (
        "admission.partition",
        "admission/physical_fixture/source_partition/ple_compute_retained_dense",
        5,
        "admission.physical_fixture.source_partition.ple_compute_retained_dense",
    ),
    (
        "admission.owners",
        "admission/physical_fixture/tensor_count",
        1068,
        "admission.physical_fixture.tensor_count",
    ),
    (
        "admission.dense",
        "admission/physical_fixture/dense/descriptor_sha256",
        "0" * 64,
        "admission.physical_fixture.dense.descriptor_sha256",
    ),
    (
        "admission.expert",
        "admission/physical_fixture/expert_major/group_size",
        128,
        "admission.physical_fixture.expert_major.group_size",
    ),
    (
        "admission.ple",
        "admission/physical_fixture/ple/page_stride",
        102400491520,
        "admission.physical_fixture.ple.page_stride",
    ),
    (
        "admission.ple-payload",
        "admission/physical_fixture/ple/payload_present",
        True,
        "admission.physical_fixture.ple.payload_present",
    ),
    (
        "admission.layout",
        "admission/physical_fixture/default_alignment",
        64,
        "admission.physical_fixture.default_alignment",
    ),
    (
        "admission.report.fields",
        "admission/report/fields/15/type",
        "UINT32",
        "admission.report.fields[15].type",
    ),
    ("admission.report.values", "admission/report/fields/6/value", True, "admission.report.fields[6].value"),
    ("admission.report.stages", "admission/report/stages/2", "metadata", "admission.report.stages"),
    ("admission.tokenizer", "admission/tokenizer/stop_ids", [248044], "admission.tokenizer.stop_ids"),
    (
        "admission.text-digests",
        "admission/tokenizer/declared_provenance/tokenizer_sha256",
        "0" * 64,
        "admission.tokenizer.declared_provenance.tokenizer_sha256",
    ),
    (
        "admission.chat",
        "admission/tokenizer/chat_template/default_reasoning_effort",
        "medium",
        "admission.tokenizer.chat_template.default_reasoning_effort",
    ),
    ("contract.rule-failed", "admission/report/stages", [], "report"),
    ("contract.form.type", "config/text/hidden_size", "2560", "config.text.hidden_size"),
    ("contract.form.missing", "config/text/hidden_size", DROP, "config.text.hidden_size"),
    ("contract.form.extra", "config/text/mtp/extra", 1, "config.text.mtp.extra"),
    ("contract.form.constant", "kind", "profile", "kind"),
    ("contract.form.domain", "source_pins/inventory_sha256", "a" * 63, "source_pins.inventory_sha256"),
    ("contract.form.length", "tensor_roles/layer_roles/0/shape", [], "tensor_roles.layer_roles[0].shape"),
    ("contract.form.extra", "extra", 1, "extra"),
]
PUBLIC += [
    (
        f"derived.{name.replace('_', '-')}",
        f"derived_constants/{name}/value",
        {True: False, "sigmoid": "silu"}.get(value, value + 1 if not isinstance(value, str) else ""),
        f"derived_constants.{name}.value",
    )
    for name, value in (
        (name, profile_document("qwen4exp")["derived_constants"][name]["value"]) for name in NAMES
    )
]


def ids(row: tuple[str, str, Any, str]) -> str:
    return row[0]


@pytest.mark.parametrize("row", PUBLIC, ids=ids)
def test_a_changed_public_profile_breaks_its_clause_at_the_changed_place(
    row: tuple[str, str, Any, str],
) -> None:
    code, path, value, where = row
    findings = judge_contract(edited(profile_document("qwen4exp"), path, value), profile="qwen4exp")
    assert (code, where) in {(one.code, one.where) for one in findings}
    assert all(clause(one.code) is not None for one in findings)


def real_facts() -> UpstreamFacts:
    directory = checkpoint_directory()
    if directory is None:
        pytest.skip("the description of the real checkpoint is absent")
    return read_upstream(Path(directory))


UPSTREAM: list[tuple[str, str, Any, str]] = [
    ("upstream.config", "config/text/rms_norm_eps", 1e-5, "config.text.rms_norm_eps"),
    ("upstream.config", "config/vision/depth", 26, "config.vision.depth"),
    (
        "upstream.files",
        "source_pins/files/config.json/sha256",
        HASHED,
        'source_pins.files["config.json"].sha256',
    ),
    ("upstream.names", "tensor_roles/global_roles/0/path", "head", "lm_head.weight"),
    ("upstream.tensor", "tensor_roles/global_roles/0/shape/0", 248077, "lm_head.weight"),
    ("upstream.excluded", "exclusions/mtp_tensors", 30, "exclusions.mtp_tensors"),
    ("upstream.totals", "source_pins/tensor_count", 1657, "source_pins.tensor_count"),
    ("upstream.inventory-digest", "source_pins/inventory_sha256", "a" * 64, "source_pins.inventory_sha256"),
    ("upstream.index", "source_pins/source_bytes", 359999963127, "source_pins.source_bytes"),
    ("upstream.shards", "source_pins/shards/130/size_bytes", 7, "source_pins.shards[130].size_bytes"),
    ("upstream.tokens", "vocabulary/base_tokens", 248043, "vocabulary.base_tokens"),
    (
        "upstream.tokenizer",
        "admission/tokenizer/pretokenize_regex",
        r"\p{L}+",
        "admission.tokenizer.pretokenize_regex",
    ),
    ("upstream.stop-ids", "vocabulary/stop_ids", [248044], "vocabulary.stop_ids"),
]


@pytest.mark.checkpoint
@pytest.mark.parametrize("row", UPSTREAM, ids=ids)
def test_a_profile_that_departs_from_upstream_breaks_its_clause(row: tuple[str, str, Any, str]) -> None:
    code, path, value, where = row
    document = edited(profile_document("qwen4exp"), path, value)
    findings = judge_contract(document, upstream=real_facts(), pins=False)
    assert (code, where) in {(one.code, one.where) for one in findings}


@pytest.mark.checkpoint
def test_a_seed_in_the_published_config_is_a_finding() -> None:
    facts = real_facts()
    assert facts.config is not None
    config = {**facts.config, "text_config": {**facts.config["text_config"], "seed": 1234}}
    findings = judge_contract(
        profile_document("qwen4exp"), upstream=dataclasses.replace(facts, config=config), pins=False
    )
    assert ("upstream.defaults", "config.seed") in {(one.code, one.where) for one in findings}


@pytest.mark.parametrize("name", ["embed_all_zero", "lm_head_all_zero"])
def test_a_padding_row_that_was_zeroed_breaks_its_clause(name: str) -> None:
    facts = UpstreamFacts(all_zero_rows={name: True})
    findings = judge_contract(profile_document("qwen4exp"), upstream=facts)
    assert [(one.code, one.where) for one in findings] == [
        ("upstream.padding-row", f"graph_facts.embedding_padding_row.{name}")
    ]


HOSTILE: list[tuple[str, Any]] = [
    ("tensor_roles/ple_roles/6/count", 2**62),
    ("config/text/ngram_size", 2**62),
    ("config/text/heads_per_ngram", 2**62),
    ("config/text/mtp/num_hidden_layers", 2**62),
    ("config/text/ngram_vocab_size_base", 2**62),
    ("config/text/full_attention_interval", 2**62),
    ("config/text/hidden_size", 10**5000),
    ("derived_constants/wide_size/formula", "2**64 * " * 20 + "2**64"),
    ("derived_constants/wide_size/formula", "(" * 90 + "1" + ")" * 90),
    ("derived_constants/wide_size/value", 10**5000),
]


@pytest.mark.parametrize(("path", "value"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_size_is_a_finding_and_costs_no_memory(path: str, value: Any) -> None:
    tracemalloc.start()
    findings = judge_contract(edited(profile_document("qwen4exp"), path, value))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.replace("/", ".").replace(".6.", "[6].") in {one.where for one in findings}
    assert peak < 64 << 20


@pytest.mark.parametrize(
    "document", [None, 1, "x", [], {}, {"identity": 3}, {"identity": {"profile_id": []}}], ids=str
)
def test_anything_that_is_no_contract_is_a_form_finding(document: Any) -> None:
    assert {one.code.rsplit(".", 1)[0] for one in judge_contract(document)} >= {"contract.form"}


def test_every_clause_of_the_rules_has_a_case_here_or_is_a_pin() -> None:
    for name in CLAUSE_MODULES:
        if name.startswith("assay.spec.rules."):
            importlib.import_module(name)
    covered = {row[0] for row in (*PUBLIC, *UPSTREAM)} | {"upstream.defaults", "upstream.padding-row"}
    modules = ("identity", "profile", "exclusions", "license", "support", "memory", "config", "derived", "ple.hash",
               "ple.extent", "roles", "totals", "norms", "graph", "expert-store", "vocabulary", "admission", "contract",
               "upstream")  # fmt: skip
    mine = {
        one.id
        for one in clauses()
        if one.id.startswith(tuple(f"{module}." for module in modules))
        and one.authority in {Authority.RULE, Authority.UPSTREAM, Authority.FORM}
        and one.id in _declared_here()
    }
    assert mine - covered == set()


def _declared_here() -> set[str]:
    """Ids that stand as text in the modules of the rules, or are made there from the derived names."""
    found = {f"derived.{name.replace('_', '-')}" for name in NAMES}
    for name in CLAUSE_MODULES:
        if name.startswith("assay.spec.rules."):
            module = importlib.import_module(name)
            found |= {
                value
                for value in vars(module).values()
                if isinstance(value, str) and clause(value) is not None
            }
    return found
