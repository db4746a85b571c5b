"""The 153 mutations of the published contract's battery, in this contract's words, each with the clause that must fire.

Names are the published ones, so that the two batteries can be laid side by side; the clauses are ours. The last two
change upstream's facts and not the contract.

Source: the published contract validator's mutation list.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from assay.mutations.json_edits import Edit
from assay.spec.leaves import Path
from assay.spec.profiles import profile_document

ZEROS: Final = "0" * 64


def parse_path(text: str) -> Path:
    """Returns the path that `assay.spec.leaves.path_text` writes as `text`."""
    found = re.findall(r'([A-Za-z_][A-Za-z0-9_]*)|\[(\d+)\]|\["([^"]+)"\]', text)
    return tuple(word or quoted or int(number) for word, number, quoted in found)


def _set(path: str | Path, value: Any) -> Edit:
    return Edit("set", parse_path(path) if isinstance(path, str) else path, value)


def _add(path: str, value: Any) -> Edit:
    return Edit("add", parse_path(path), value)


def _remove(path: str) -> Edit:
    return Edit("remove", parse_path(path))


@cache
def _entry_index(key: str) -> int:
    entries = profile_document("qwen4exp")["admission"]["metadata"]["entries"]
    return [entry["key"] for entry in entries].index(key)


def _entry(key: str, *rest: str | int) -> Path:
    return ("admission", "metadata", "entries", _entry_index(key), *rest)


Row = tuple[str, Callable[[], Edit], str]
# fmt: off
PUBLISHED: Final[tuple[Row, ...]] = (
    ("sourcePins.inventorySha256", lambda: _set("source_pins.inventory_sha256", "a" * 64), "upstream.inventory-digest|admission.expert"),
    ("sourcePins.tensorCount", lambda: _set("source_pins.tensor_count", 1657), "totals.classification"),
    ("sourcePins.sourceBytes", lambda: _set("source_pins.source_bytes", 359999963127), "totals.bytes"),
    ("sourcePins.bytesByDtype", lambda: _set("source_pins.bytes_by_dtype.BF16", 359999962847), "totals.bytes"),
    ("sourcePins.classificationBase", lambda: _set("source_pins.classification.base", 1293), "totals.classification"),
    ("sourcePins.classificationVision", lambda: _set("source_pins.classification.vision", 332), "totals.classification"),
    ("sourcePins.classificationMtp", lambda: _set("source_pins.classification.mtp", 30), "totals.classification"),
    ("fileSha256", lambda: _set('source_pins.files["config.json"].sha256', "f" * 64), "upstream.files|pin.source_pins.files"),
    ("transformersSource", lambda: _set('source_pins.transformers_sources["modeling_qwen4_exp.py"]', "e" * 64), "pin.source_pins.transformers_sources"),
    ("identity.storeFamily", lambda: _set("identity.store_family", 3), "identity.store-family"),
    ("identity.textModelType", lambda: _set("identity.text_model_type", "qwen3_text"), "identity.architecture"),
    ("identity.pleMagic", lambda: _set("identity.ple_extent_magic", "ds4.ple_rows.v2"), "identity.ple-magic"),
    ("pinnedConfig.numExperts", lambda: _set("config.text.num_experts", 384), "expert-store.geometry"),
    ("pinnedConfig.numLayers", lambda: _set("config.text.num_hidden_layers", 47), "config.layer-types.count"),
    ("pinnedConfig.hiddenSize", lambda: _set("config.text.hidden_size", 2048), "derived.wide-size"),
    ("pinnedConfig.pleLayerIds", lambda: _set("config.text.ple_layer_ids", [3]), "config.ple-layer"),
    ("pinnedConfig.layerTypesPattern", lambda: _set("config.text.layer_types[3]", "linear_attention"), "config.layer-types.pattern"),
    ("pinnedConfig.mrope", lambda: _set("config.text.rope_parameters.mrope_section", [12, 10, 10]), "config.mrope-sections"),
    ("pinnedConfig.indexerBudget", lambda: _set("config.text.indexer_budget", 2049), "config.indexer-budget"),
    ("pinnedConfig.tie", lambda: _set("config.text.tie_word_embeddings", True), "config.untied"),
    ("pinnedConfig.seed", lambda: _set("config.seed.value", 1235), "ple.hash.seed"),
    ("derived.gdn_repeat_ratio", lambda: _set("derived_constants.gdn_repeat_ratio.value", 2), "derived.gdn-repeat-ratio"),
    ("derived.indexer_selected_width", lambda: _set("derived_constants.indexer_selected_width.value", 2050), "derived.indexer-selected-width"),
    ("derived.ple_head_dim", lambda: _set("derived_constants.ple_head_dim.value", 96), "derived.ple-head-dim"),
    ("derived.routed_parameters_total", lambda: _set("derived_constants.routed_parameters_total.value", 120795955201), "derived.routed-parameters-total"),
    ("derived.extraKey", lambda: _add("derived_constants.not_derived", {"value": 1, "formula": "none"}), "derived.set"),
    ("tensorRoles.expertsShape", lambda: _set("tensor_roles.layer_roles[5].shape[1]", 640), "roles.shape"),
    ("tensorRoles.dropLinearRole", lambda: _remove("tensor_roles.linear_attention_roles[6]"), "roles.set"),
    ("tensorRoles.dropAllRole", lambda: _remove("tensor_roles.layer_roles[0]"), "roles.set"),
    ("tensorRoles.pleLayer", lambda: _set("tensor_roles.ple_runtime_layer", 2), "roles.ple-layer"),
    ("tensorRoles.pleShardCount", lambda: _set("tensor_roles.ple_roles[6].count", 64), "roles.ple-shards"),
    ("tensorRoles.expectedBase", lambda: _set("tensor_roles.expected_base_tensors", 1200), "roles.base-total"),
    ("pleHash.multipliers", lambda: _set("ple_hash.layer_multipliers[0]", 23703573157771), "ple.hash.multipliers"),
    ("pleHash.headPrimes", lambda: _set("ple_hash.head_primes[0]", 20000001), "ple.hash.primes"),
    ("pleHash.headPrimesLength", lambda: _remove("ple_hash.head_primes[15]"), "ple.hash.primes"),
    ("pleHash.headOffsets", lambda: _set("ple_hash.head_offsets[1]", 20000004), "ple.hash.offsets"),
    ("pleHash.paddedRows", lambda: _set("ple_hash.padded_rows", 320001535), "ple.hash.padded-rows"),
    ("pleHash.totalHeadRows", lambda: _set("ple_hash.total_head_rows", 320001445), "ple.hash.total-rows"),
    ("pleHash.maxProduct", lambda: _set("ple_hash.max_hash_product", "5886047582964040312"), "ple.hash.product-bound"),
    ("pleHash.seed", lambda: _set("ple_hash.seed", 4242), "ple.hash.multipliers"),
    ("pleHash.derivationGamma", lambda: _set("ple_hash.derivation.splitmix_gamma", "0x9e3779b97f4a7c16"), "ple.hash.multipliers"),
    ("pleHash.pleLayerIndex", lambda: _set("ple_hash.ple_layer_index", 1), "ple.hash.ordinal"),
    ("pleExtent.rows", lambda: _set("ple_extent.rows", 320001535), "ple.extent.geometry"),
    ("pleExtent.shardRows", lambda: _set("ple_extent.embedding_shard_rows", 2500011), "ple.extent.shards"),
    ("pleExtent.rowWidth", lambda: _set("ple_extent.row_width", 128), "ple.extent.geometry"),
    ("pleExtent.version", lambda: _set("ple_extent.version", 2), "identity.ple-magic"),
    ("pleExtent.family", lambda: _set("ple_extent.family", 3), "identity.store-family"),
    ("pleExtent.profileId", lambda: _set("ple_extent.profile_id", "qwen35moe-base-v1"), "ple.extent.profile"),
    ("pleExtent.hashId", lambda: _set("ple_extent.hash_id", "SplitMix64-Qwen4Exp-v2"), "admission.metadata.value"),
    ("pleExtent.rowAlignment", lambda: _set("ple_extent.row_alignment", 64), "ple.extent.geometry"),
    ("pleExtent.headRows", lambda: _set("ple_extent.head_rows", 320001445), "ple.extent.geometry"),
    ("pleExtent.paddingRows", lambda: _set("ple_extent.padding_rows", 89), "ple.extent.geometry"),
    ("pleExtent.wireEndianness", lambda: _set("ple_extent.wire_format.endianness", "big"), "ple.extent.wire"),
    ("pleExtent.wireHeader", lambda: _set("ple_extent.wire_format.header_bytes", 256), "ple.extent.wire"),
    ("pleExtent.wirePageHeader", lambda: _set("ple_extent.wire_format.page_header_bytes", 32), "ple.extent.wire"),
    ("pleExtent.wireAlignment", lambda: _set("ple_extent.wire_format.minimum_page_alignment", 2048), "admission.ple"),
    ("pleExtent.wireDigestAlgorithm", lambda: _set("ple_extent.wire_format.page_digest_algorithm", "BLAKE3"), "ple.extent.wire"),
    ("pleExtent.wireDigestBytes", lambda: _set("ple_extent.wire_format.page_digest_bytes", 64), "ple.extent.wire"),
    ("pleExtent.wireDigestTable", lambda: _set("ple_extent.wire_format.page_digest_table", "One digest for each row."), "pin.ple_extent.wire_format"),
    ("pleExtent.wireManifestDigest", lambda: _set("ple_extent.wire_format.manifest_digest", "Over the header only."), "pin.ple_extent.wire_format"),
    ("pleExtent.wirePayloadDigest", lambda: _set("ple_extent.wire_format.payload_digest", "Over the encoded rows."), "pin.ple_extent.wire_format"),
    ("pleExtent.wireCodecBinding", lambda: _set("ple_extent.wire_format.codec_binding", ""), "contract.form.domain"),
    ("pleExtent.pendingCodec", lambda: _set("ple_extent.pending_decisions[0].state", "frozen"), "ple.extent.pending"),
    ("pleExtent.pendingPage", lambda: _set("ple_extent.pending_decisions[1].state", "frozen"), "ple.extent.pending"),
    ("expertStore.perLayer", lambda: _set("expert_store.experts_per_layer", 384), "expert-store.geometry"),
    ("expertStore.routeRecords", lambda: _set("expert_store.minimum_route_records_per_token", 481), "expert-store.route-records"),
    ("expertStore.raiseTo", lambda: _set("expert_store.raise_max_experts.to_experts", 384), "expert-store.raise-max-experts"),
    ("expertStore.family", lambda: _set("expert_store.family", 3), "identity.store-family"),
    ("expertStore.raiseField", lambda: _set("expert_store.raise_max_experts.field", "MAX_EXPERTS"), "pin.expert_store.raise_max_experts"),
    ("expertStore.raiseFrom", lambda: _set("expert_store.raise_max_experts.from_experts", 383), "expert-store.raise-max-experts"),
    ("expertStore.raisePhase", lambda: _set("expert_store.raise_max_experts.phase", 3), "pin.expert_store.raise_max_experts"),
    ("expertStore.raiseNote", lambda: _set("expert_store.raise_max_experts.note", ""), "contract.form.domain"),
    ("expertStore.candidateStorage", lambda: _set("expert_store.structural_candidate.storage", "ggml-k-quant"), "expert-store.candidate"),
    ("expertStore.candidateLogicalType", lambda: _set("expert_store.structural_candidate.logical_ggml_type", "IQ2_XS"), "expert-store.candidate"),
    ("expertStore.candidateGroup", lambda: _set("expert_store.structural_candidate.group_size", 128), "expert-store.candidate"),
    ("expertStore.candidateBlock", lambda: _set("expert_store.structural_candidate.block_bytes", 32), "expert-store.candidate"),
    ("expertStore.candidateStatus", lambda: _set("expert_store.structural_candidate.status", "release-qualified"), "expert-store.candidate-status"),
    ("expertStore.candidateReason", lambda: _set("expert_store.structural_candidate.reason", "Groups divide every row."), "expert-store.candidate-status"),
    ("norms.dropGated", lambda: _set("norm_conventions.conventional", []), "norms.classified"),
    ("norms.addUnknown", lambda: _add("norm_conventions.zero_centered[12]", "model.norm"), "norms.known-role"),
    ("norms.zeroFormula", lambda: _set("norm_conventions.zero_centered_formula", "x * rsqrt(mean(x^2) + rms_norm_eps) * w"), "norms.formula"),
    ("graph.finalNormPresent", lambda: _set("graph_facts.final_norm.present", True), "graph.final-norm"),
    ("graph.paddingEmbedZero", lambda: _set("graph_facts.embedding_padding_row.embed_all_zero", True), "graph.padding-row"),
    ("graph.mropeRows", lambda: _set("graph_facts.attention.mrope_position_rows_for_text", 3), "graph.attention"),
    ("exclusions.mtpTensors", lambda: _set("exclusions.mtp_tensors", 30), "totals.classification"),
    ("exclusions.visionPrefix", lambda: _set("exclusions.vision_prefix", "visual."), "upstream.excluded|pin.exclusions"),
    ("license.assumedApache", lambda: _set("license.assumed_apache2", True), "license.not-assumed"),
    ("license.reviewed", lambda: _set("license.review_status", "approved"), "license.review-status"),
    ("admission.supportClaim", lambda: _set("admission.support_claim", True), "admission.no-support"),
    ("admission.productionProfile", lambda: _set("admission.production_profile", "qwen4exp-phase3-fixture-bf16-v1"), "admission.no-support"),
    ("admission.testGuard", lambda: _set("admission.fixture_build_guard", "always"), "admission.no-support"),
    ("admission.sourceHashPolicy", lambda: _set("admission.source_hash_controls", "payload-verified"), "admission.no-support"),
    ("admission.metadataExtra", lambda: _add("admission.metadata.entries[108]", {"key": "qwen4exp.unclosed", "type": "UINT32", "value": 1}), "admission.metadata.keys"),
    ("admission.metadataAlignment", lambda: _add("admission.metadata.entries[108]", {"key": "general.alignment", "type": "UINT32", "value": 4096}), "admission.metadata.absent"),
    ("admission.metadataAlignmentAbsent", lambda: _remove("admission.metadata.absent_keys[0]"), "admission.metadata.absent"),
    ("admission.metadataPhysicalProfile", lambda: _set(_entry("ds4.model.physical_profile_id", "value"), "qwen4exp-production-v1"), "admission.metadata.value"),
    ("admission.metadataSourceBytesType", lambda: _set(_entry("ds4.model.source_bytes", "type"), "UINT32"), "admission.metadata.type"),
    ("admission.metadataLayerType", lambda: _set(_entry("qwen4exp.text.layer_pattern", "type"), "UINT32[47]"), "admission.metadata.type"),
    ("admission.metadataLayerValue", lambda: _set(_entry("qwen4exp.text.layer_pattern", "value", 3), 0), "admission.metadata.value"),
    ("admission.metadataMropeType", lambda: _set(_entry("qwen4exp.text.rope.mrope_section", "type"), "UINT64[3]"), "admission.metadata.type"),
    ("admission.metadataMultiplier", lambda: _set(_entry("qwen4exp.ple.layer_multipliers", "value", 0), 23703573157768), "admission.metadata.value"),
    ("admission.metadataPrime", lambda: _set(_entry("qwen4exp.ple.head_primes", "value", 15), 20000169), "admission.metadata.value"),
    ("admission.metadataOffset", lambda: _set(_entry("qwen4exp.ple.head_offsets", "value", 1), 1), "admission.metadata.value"),
    ("admission.metadataTokenizerEos", lambda: _set(_entry("qwen4exp.tokenizer.eos_token_id", "value"), 248044), "admission.metadata.value"),
    ("admission.metadataBosPresent", lambda: _add("admission.metadata.entries[108]", {"key": "qwen4exp.tokenizer.bos_token_id", "type": "UINT32", "value": 248044}), "admission.metadata.absent"),
    ("admission.physicalProfile", lambda: _set("admission.physical_fixture.physical_profile_id", "qwen4exp-base-v1"), "admission.no-support"),
    ("admission.physicalTotal", lambda: _set("admission.physical_fixture.tensor_count", 1068), "admission.owners"),
    ("admission.physicalDenseCount", lambda: _set("admission.physical_fixture.owners.dense", 1066), "admission.owners"),
    ("admission.sourcePartition", lambda: _set("admission.physical_fixture.source_partition.ple_compute_retained_dense", 5), "admission.partition"),
    ("admission.layoutDefault", lambda: _set("admission.physical_fixture.layout_rules[0]", "The alignment key is absent; the default of 64 bytes holds."), "pin.admission.physical_fixture"),
    ("admission.layoutDense", lambda: _set("admission.physical_fixture.layout_rules[1]", "Dense tensors lie in byte order of their source names, each on 4096 bytes."), "pin.admission.physical_fixture"),
    ("admission.layoutOrder", lambda: _set("admission.physical_fixture.layout_rules[2]", "Owners follow in the order dense, row store, expert store."), "pin.admission.physical_fixture"),
    ("admission.layoutPadding", lambda: _set("admission.physical_fixture.layout_rules[3]", "The two opaque owners may be padded at will."), "pin.admission.physical_fixture"),
    ("admission.layoutTail", lambda: _set("admission.physical_fixture.layout_rules[4]", "A tail may follow the row store."), "pin.admission.physical_fixture"),
    ("admission.layoutIsolation", lambda: _set("admission.physical_fixture.layout_rules[5]", "Dense spans rounded out to 4096-byte pages may touch an opaque owner."), "pin.admission.physical_fixture"),
    ("admission.denseDtype", lambda: _set("admission.physical_fixture.dense.ggml_type", "F16"), "admission.dense"),
    ("admission.denseDimensions", lambda: _set("admission.physical_fixture.dense.dimensions", "source shape"), "pin.admission.physical_fixture.dense"),
    ("admission.denseDigest", lambda: _set("admission.physical_fixture.dense.descriptor_sha256", ZEROS), "admission.dense"),
    ("admission.expertFamily", lambda: _set("admission.physical_fixture.expert_major.family", 3), "admission.expert"),
    ("admission.expertGroup", lambda: _set("admission.physical_fixture.expert_major.group_size", 128), "admission.expert"),
    ("admission.expertQualified", lambda: _set("admission.physical_fixture.expert_major.status", "release-qualified"), "admission.expert"),
    ("admission.expertSourceCount", lambda: _set("admission.physical_fixture.expert_major.source_tensor_count", 1657), "admission.expert"),
    ("admission.expertSourceDigest", lambda: _set("admission.physical_fixture.expert_major.source_inventory_sha256", ZEROS), "admission.expert"),
    ("admission.pleCodec", lambda: _set("admission.physical_fixture.ple.codec_id", "q4exp-production-v1"), "admission.ple"),
    ("admission.pleGroup", lambda: _set("admission.physical_fixture.ple.group_size", 2), "admission.ple"),
    ("admission.pleRowBytes", lambda: _set("admission.physical_fixture.ple.encoded_row_bytes", 160), "admission.ple"),
    ("admission.pleRowsPerPage", lambda: _set("admission.physical_fixture.ple.rows_per_page", 64), "admission.ple"),
    ("admission.pleAlignment", lambda: _set("admission.physical_fixture.ple.page_alignment", 2048), "admission.ple"),
    ("admission.pleStride", lambda: _set("admission.physical_fixture.ple.page_stride", 102400491520), "admission.ple"),
    ("admission.pleGeometry", lambda: _set("admission.physical_fixture.ple.padding_rows", 89), "admission.ple"),
    ("admission.pleStartupPayload", lambda: _set("admission.physical_fixture.ple.startup_payload_verification", True), "admission.ple-payload"),
    ("admission.plePayloadPresent", lambda: _set("admission.physical_fixture.ple.payload_present", True), "admission.ple-payload"),
    ("admission.reportStage", lambda: _set("admission.report.stages[2]", "profile"), "pin.admission.report"),
    ("admission.reportRuntime", lambda: _set("admission.report.fields[6].value", True), "admission.report.values"),
    ("admission.reportPayload", lambda: _set("admission.report.fields[7].value", True), "admission.report.values"),
    ("admission.reportDenseCount", lambda: _set("admission.report.fields[12].value", 1066), "admission.report.values"),
    ("admission.reportBytesType", lambda: _set("admission.report.fields[15].type", "UINT32"), "admission.report.fields"),
    ("admission.reportRejection", lambda: _set("admission.report.fields[29].type", "STRING"), "admission.report.fields"),
    ("admission.tokenizerContent", lambda: _set("admission.tokenizer.tokenizer_content_verified", False), "pin.admission.tokenizer"),
    ("admission.tokenizerPhase", lambda: _set("admission.tokenizer.phase", 3), "pin.admission.tokenizer"),
    ("admission.tokenizerDigest", lambda: _set("admission.tokenizer.declared_provenance.tokenizer_sha256", ZEROS), "admission.text-digests"),
    ("admission.tokenizerBos", lambda: _set("admission.tokenizer.declared_tokenizer_ids.bos", 248044), "admission.tokenizer"),
    ("admission.tokenizerEos", lambda: _set("admission.tokenizer.declared_tokenizer_ids.eos", 248044), "admission.tokenizer"),
    ("admission.tokenizerRegex", lambda: _set("admission.tokenizer.pretokenize_regex", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"), "upstream.tokenizer|pin.admission.tokenizer"),
    ("admission.tokenizerBoundary", lambda: _set("admission.tokenizer.effective_valid_vocabulary_size", 248320), "admission.tokenizer"),
    ("admission.tokenizerStopSet", lambda: _set("admission.tokenizer.stop_ids", [248044]), "admission.tokenizer"),
    ("admission.tokenizerMapping", lambda: _set("admission.tokenizer.added_token_mapping_sha256", ZEROS), "admission.tokenizer"),
    ("admission.chatDefaultEffort", lambda: _set("admission.tokenizer.chat_template.default_reasoning_effort", "medium"), "admission.chat"),
    ("admission.chatSegments", lambda: _set("admission.tokenizer.chat_template.segment_kinds", ["TRUSTED_CONTROL"]), "admission.chat"),
    ("admission.chatTrim", lambda: _set("admission.tokenizer.chat_template.trim_policy", "ASCII white space."), "pin.admission.tokenizer.chat_template"),
    ("admission.chatOracle", lambda: _set("admission.tokenizer.oracles.chat_cases_sha256", ZEROS), "pin.admission.tokenizer.oracles"),
)
# fmt: on
"""Published name, the edit of the contract, the clause that must reject it; after `|` the one that stands in for upstream's
data when no checkpoint is at hand. The two published mutations of upstream's facts are in `contract.py`."""
