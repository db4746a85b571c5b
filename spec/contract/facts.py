"""Derived constants, facts of the graph and the norm conventions."""

from assay.spec.contract.types import Count, Float, Positive, Seq, Text
from assay.spec.documents.base import Document


class DerivedConstant(Document):
    """A value that follows from the configuration, and how."""

    value: bool | int | Float | str
    formula: Text


class PaddingRow(Document):
    """The embedding row that upstream names as padding; it is trained and must not be skipped."""

    token: Count
    embed_all_zero: bool
    lm_head_all_zero: bool
    evidence: Seq[Text]


class FinalNorm(Document):
    """Whether a norm stands between the last layer and the head."""

    present: bool
    evidence: Seq[Text]


class GatedResidual(Document):
    """The per-layer injection into the residual streams."""

    has_block_inject_weight: bool
    attn_and_mlp_separate: bool
    inject_weight_shape: Seq[Positive]


class AttentionFacts(Document):
    """Facts of the full-attention layers."""

    query_includes_output_gate: bool
    per_head_qk_norm: bool
    indexer_under_self_attn: bool
    mrope_position_rows_for_text: Positive


class GdnFacts(Document):
    """Facts of the linear-attention layers."""

    query_and_key_share_width: bool
    separate_z_projection: bool
    bias_free_conv: bool
    per_value_head_a_log_and_dt_bias: bool


class MoeFacts(Document):
    """Facts of the expert layers."""

    fused_gate_up_tensor: bool
    fused_down_tensor: bool
    shared_expert_sigmoid_gate: bool
    router_softmax_in_float32: bool


class GraphFacts(Document):
    """What the graph has and lacks, as far as names and shapes can show it."""

    embedding_padding_row: PaddingRow
    final_norm: FinalNorm
    gated_residual: GatedResidual
    attention: AttentionFacts
    gdn: GdnFacts
    moe: MoeFacts


class NormConventions(Document):
    """Which norm weights are stored around zero, and which directly."""

    zero_centered: Seq[Text]
    conventional: Seq[Text]
    zero_centered_formula: Text
    conventional_formula: Text
    rules: Seq[Text]
