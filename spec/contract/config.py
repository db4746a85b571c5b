"""The checkpoint's `config.json`, field by field under upstream's own key names."""

from typing import Any

from assay.spec.contract.types import Count, Float, Positive, Seq, Text
from assay.spec.documents.base import Document


class RopeParameters(Document):
    """`text_config.rope_parameters`."""

    mrope_interleaved: bool
    mrope_section: Seq[Positive]
    partial_rotary_factor: Float
    rope_theta: Positive
    rope_type: Text


class MtpConfig(Document):
    """`text_config.mtp`: the draft head, which the base profile never runs."""

    hybrid: bool
    layer_types: Seq[Text]
    mtp_use_hidden_state_from_layer: int | None
    num_hidden_layers: Positive
    rope_theta: Positive


class TextConfig(Document):
    """`text_config`."""

    attention_bias: bool
    attention_dropout: Float
    bos_token_id: Count
    dtype: Text
    eos_token_id: Count
    full_attention_interval: Positive
    hc_count: Positive
    hc_lowrank: Positive
    head_dim: Positive
    heads_per_ngram: Positive
    hidden_act: Text
    hidden_size: Positive
    indexer_budget: Positive
    indexer_compress_ratio: Positive
    indexer_head_dim: Positive
    indexer_kv_heads: Positive
    indexer_n_heads: Positive
    initializer_range: Float
    layer_types: Seq[Text]
    linear_conv_kernel_dim: Positive
    linear_key_head_dim: Positive
    linear_num_key_heads: Positive
    linear_num_value_heads: Positive
    linear_value_head_dim: Positive
    make_ngram_vocab_size_divisible_by: Positive
    mamba_ssm_dtype: Text
    max_position_embeddings: Positive
    model_type: Text
    moe_intermediate_size: Positive
    mtp: MtpConfig
    mtp_num_hidden_layers: Positive
    mtp_use_dedicated_embeddings: bool
    ngram_size: Positive
    ngram_vocab_size_base: Positive
    num_attention_heads: Positive
    num_experts: Positive
    num_experts_per_tok: Positive
    num_hidden_layers: Positive
    num_key_value_heads: Positive
    output_gate_type: Text
    output_router_logits: bool
    pad_token_id: Count | None
    partial_rotary_factor: Float
    ple_conv_kernel_size: Positive
    ple_embed_dim: Positive
    ple_layer_ids: Seq[Positive]
    rms_norm_eps: Float
    rope_parameters: RopeParameters
    router_aux_loss_coef: Float
    shared_expert_intermediate_size: Positive
    split_ngram_parts: Positive
    tie_word_embeddings: bool
    use_cache: bool
    vocab_size: Positive


class VisionConfig(Document):
    """`vision_config`: carried so that every leaf of the file is judged; never executed."""

    deepstack_visual_indexes: Seq[Count]
    depth: Positive
    hidden_act: Text
    hidden_size: Positive
    in_channels: Positive
    initializer_range: Float
    intermediate_size: Positive
    model_type: Text
    num_heads: Positive
    num_position_embeddings: Positive
    out_hidden_size: Positive
    patch_size: Positive
    spatial_merge_size: Positive
    temporal_patch_size: Positive


class TopConfig(Document):
    """The top level of the file without its two sub-configurations."""

    architectures: Seq[Text]
    image_token_id: Count
    language_model_only: bool
    model_type: Text
    tie_word_embeddings: bool
    video_token_id: Count
    vision_end_token_id: Count
    vision_start_token_id: Count


class SeedDefault(Document):
    """A value that the file lacks and the model class supplies."""

    value: Count
    reason: Text


class NormTopkProb(Document):
    """Whether the router renormalises its weights; the file lacks the key."""

    value: bool
    source: Text


class UnjudgedLeaf(Document):
    """A leaf of the file that no contract field judges, and why not."""

    path: Text
    reason: Text


class PinnedConfig(Document):
    """All of `config.json`, and the defaults that it leaves to the model class."""

    top: TopConfig
    text: TextConfig
    vision: VisionConfig
    seed: SeedDefault
    norm_topk_prob: NormTopkProb
    unjudged: Seq[UnjudgedLeaf]

    def as_file(self) -> dict[str, Any]:
        """Returns the object that `config.json` must hold, without the leaves listed in `unjudged`."""
        return {
            **self.top.model_dump(mode="json"),
            "text_config": self.text.model_dump(mode="json"),
            "vision_config": self.vision.model_dump(mode="json"),
        }
