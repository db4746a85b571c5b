"""What each array of an upstream run is: which upstream object held it, and the origin that it may claim.

`upstream-capture` stands only beside a qualified name of the pinned package whose input, output or cache held the
value. What assay derives from such values is `derived-metadata`.
"""

from dataclasses import dataclass
from typing import Final

MODULE: Final = "transformers.models.qwen4_exp.modeling_qwen4_exp"
CACHE: Final = "transformers.cache_utils"
UPSTREAM: Final = "upstream-capture"
DERIVED: Final = "derived-metadata"


@dataclass(frozen=True, slots=True)
class Source:
    """Where an array comes from.

    Attributes:
        origin: the origin it may claim.
        producer: key of the fixture's producers: `transformers` or `assay`.
        qualified_name: dotted name, with the place after a colon: `output`, `input`, `output[1]`, an attribute.
    """

    origin: str
    producer: str
    qualified_name: str


def _up(name: str, module: str = MODULE) -> Source:
    return Source(UPSTREAM, "transformers", f"{module}.{name}")


def _derived(name: str) -> Source:
    return Source(DERIVED, "assay", f"assay.provenance.captures.{name}")


SOURCES: Final[dict[tuple[str, str], Source]] = {
    ("ple_rows", ""): _up("Qwen4ExpTextNGramEmbedding.ngram_embedding:input"),
    ("embedding", ""): _up("Qwen4ExpTextModel.embed_tokens:output"),
    ("four_stream_residual", ""): _up("Qwen4ExpTextDecoderLayer:input"),
    ("ple", ""): _up("Qwen4ExpTextPLELayer:output"),
    ("ple", "key"): _up("Qwen4ExpTextPLELayer.key_proj:output"),
    ("ple", "norm_conv"): _up("Qwen4ExpTextPLELayer.norm_conv:output"),
    ("ple", "norm_key"): _up("Qwen4ExpTextPLELayer.norm_key:output"),
    ("ple", "value"): _up("Qwen4ExpTextPLELayer.value_proj:output"),
    ("ple", "norm_query"): _up("Qwen4ExpTextPLELayer.norm_query:output"),
    ("attn_gr_prepare", ""): _up("Qwen4ExpTextGatedResidual:output[0]"),
    ("attn_gr_prepare", "normed"): _up("Qwen4ExpTextGatedResidual.hc_norm:output"),
    ("attn_gr_prepare", "mix"): _up("Qwen4ExpTextGatedResidual.input_mix_weight_up:output"),
    ("attn_gr_prepare", "injection"): _up("Qwen4ExpTextGatedResidual:output[2]"),
    ("gdn", ""): _up("Qwen4ExpTextGatedDeltaNet:output"),
    ("gdn", "qkv"): _up("Qwen4ExpTextGatedDeltaNet.in_proj_qkv:output"),
    ("gdn", "z"): _up("Qwen4ExpTextGatedDeltaNet.in_proj_z:output"),
    ("gdn", "b"): _up("Qwen4ExpTextGatedDeltaNet.in_proj_b:output"),
    ("gdn", "a"): _up("Qwen4ExpTextGatedDeltaNet.in_proj_a:output"),
    ("gdn", "gated_norm"): _up("Qwen4ExpTextGatedDeltaNet.out_proj:input"),
    ("qsa", ""): _up("Qwen4ExpTextAttention:output[0]"),
    ("qsa", "q_proj"): _up("Qwen4ExpTextAttention.q_proj:output"),
    ("qsa", "k_proj"): _up("Qwen4ExpTextAttention.k_proj:output"),
    ("qsa", "v_proj"): _up("Qwen4ExpTextAttention.v_proj:output"),
    ("qsa", "q_norm"): _up("Qwen4ExpTextAttention.q_norm:output"),
    ("qsa", "k_norm"): _up("Qwen4ExpTextAttention.k_norm:output"),
    ("qsa", "gated"): _up("Qwen4ExpTextAttention.o_proj:input"),
    ("qsa", "index_query"): _up("Qwen4ExpTextQSAIndexer.q_layernorm:output"),
    ("qsa", "index_qk"): _up("Qwen4ExpTextQSAIndexer.index_qk_proj:output"),
    ("qsa", "index_scores"): _up("Qwen4ExpTextQSAIndexer.forward:topk input"),
    ("qsa", "selection_mask"): _up("Qwen4ExpTextQSAIndexer:output"),
    ("qsa", "selected"): _derived("collect.selected_tokens"),
    ("attn_gr_apply", ""): _up("Qwen4ExpTextGatedResidual:output[1]"),
    ("moe_gr_prepare", ""): _up("Qwen4ExpTextGatedResidual:output[0]"),
    ("moe_gr_prepare", "normed"): _up("Qwen4ExpTextGatedResidual.hc_norm:output"),
    ("moe_gr_prepare", "mix"): _up("Qwen4ExpTextGatedResidual.input_mix_weight_up:output"),
    ("moe_gr_prepare", "injection"): _up("Qwen4ExpTextGatedResidual:output[2]"),
    ("router", "logits"): _up("Qwen4ExpTextTopKRouter:output[0]"),
    ("router", "weights"): _up("Qwen4ExpTextTopKRouter:output[1]"),
    ("router", "ids"): _up("Qwen4ExpTextTopKRouter:output[2]"),
    ("routed_shared_moe", ""): _up("Qwen4ExpTextSparseMoeBlock:output"),
    ("routed_shared_moe", "routed"): _up("Qwen4ExpTextExperts:output"),
    ("routed_shared_moe", "shared"): _up("Qwen4ExpTextSparseMoeBlock.shared_expert:output"),
    ("routed_shared_moe", "shared_gate"): _up("Qwen4ExpTextSparseMoeBlock.shared_expert_gate:output"),
    ("moe_gr_apply", ""): _up("Qwen4ExpTextDecoderLayer:output"),
    ("final_gr_mixer", ""): _up("Qwen4ExpTextModel.hyper_connection_mixer:output"),
    ("final_gr_mixer", "normed"): _up("Qwen4ExpTextGatedResidual.hc_norm:output"),
    ("final_gr_mixer", "mix"): _up("Qwen4ExpTextGatedResidual.input_mix_weight_up:output"),
    ("output_head", ""): _up("Qwen4ExpForCausalLM.lm_head:output"),
    ("sampled_id", ""): _derived("collect.greedy_ids"),
    ("state", "gdn_conv"): _up("LinearAttentionLayer.conv_states[0]", CACHE),
    ("state", "gdn_recurrent"): _up("LinearAttentionLayer.recurrent_states[0]", CACHE),
    ("state", "ple_conv"): _up("LinearAttentionLayer.conv_states[1]", CACHE),
    ("state", "ple_history"): _up("LinearAttentionLayer.conv_states[2]", CACHE),
    ("state", "qsa_key"): _up("DynamicIndexedLayer.keys", CACHE),
    ("state", "qsa_value"): _up("DynamicIndexedLayer.values", CACHE),
    ("state", "qsa_raw_index"): _up("DynamicIndexedLayer.indexer_keys", CACHE),
}
"""(stage, part) -> the only source that an array of an upstream run can have."""

UPSTREAM_NAMES: Final = frozenset(
    source.qualified_name for source in SOURCES.values() if source.origin == UPSTREAM
)
