"""The derived constants, each recomputed from the configuration."""

from typing import Any, Final

from assay.spec.contract.contract import Contract
from assay.spec.contract.tensor_roles import TensorRoles
from assay.spec.rules.base import CONFIG, Check, Judge, rule

NAMES: Final = [
    "wide_size",
    "rotary_dim",
    "mrope_section_sum",
    "attention_query_width",
    "attention_query_only_width",
    "attention_kv_width",
    "attention_output_gate",
    "indexer_qk_width",
    "indexer_query_width",
    "indexer_kv_width",
    "indexer_block_topk",
    "indexer_selected_width",
    "gdn_repeat_ratio",
    "gdn_key_width",
    "gdn_value_width",
    "gdn_qkv_width",
    "gdn_conv_channels",
    "gdn_conv_padding",
    "gdn_gate_dim",
    "gdn_gate_activation",
    "gdn_head_states",
    "ple_ngram_heads",
    "ple_head_dim",
    "ple_flattened_width",
    "ple_key_proj_width",
    "ple_conv_channels",
    "ple_conv_dilation",
    "ple_conv_state_len",
    "ple_row_bytes_bf16",
    "ple_parameters",
    "expert_parameters",
    "expert_gate_up_rows",
    "routed_parameters_total",
    "active_routed_parameters_per_token",
    "shared_expert_parameters",
    "shared_expert_gate_outputs",
    "routed_bytes_bf16",
    "ple_bytes_bf16",
    "routed_payload_gib_at_4bit",
    "routed_payload_gib_at_2bit",
]

SET: Final = rule(
    "derived.set",
    "The derived constants are exactly the forty that have a rule here.",
    cause="A constant without a derivation was added, or one was dropped.",
    source="assay",
)
CLAUSES: Final = {
    name: rule(
        f"derived.{name.replace('_', '-')}",
        f"The constant {name} follows from the configuration by the formula recorded beside it.",
        cause="The constant or one of the fields it follows from was changed alone.",
        source=CONFIG,
        fix="Recompute the constant from the configuration; the stored formula says how.",
    )
    for name in NAMES
}


def derive(contract: Contract) -> dict[str, Any]:
    """Returns every derived constant, computed from the configuration, the hash and the roles."""
    text = contract.config.text
    wide = text.hidden_size * text.hc_count
    query = text.num_attention_heads * text.head_dim
    key_width = text.linear_num_key_heads * text.linear_key_head_dim
    value_width = text.linear_num_value_heads * text.linear_value_head_dim
    channels = 2 * key_width + value_width
    ngram_heads = (text.ngram_size - 1) * text.heads_per_ngram
    row = text.ple_embed_dim // ngram_heads
    rows = contract.ple_hash.padded_rows
    expert = 3 * text.hidden_size * text.moe_intermediate_size
    routed = expert * text.num_experts * text.num_hidden_layers
    return {
        "wide_size": wide,
        "rotary_dim": int(text.head_dim * text.rope_parameters.partial_rotary_factor),
        "mrope_section_sum": int(text.head_dim * text.rope_parameters.partial_rotary_factor) // 2,
        "attention_query_width": 2 * query,
        "attention_query_only_width": query,
        "attention_kv_width": text.num_key_value_heads * text.head_dim,
        "attention_output_gate": _rows(contract.tensor_roles, ".q_proj") == 2 * query,
        "indexer_qk_width": (text.indexer_n_heads + text.indexer_kv_heads) * text.indexer_head_dim,
        "indexer_query_width": text.indexer_n_heads * text.indexer_head_dim,
        "indexer_kv_width": text.indexer_kv_heads * text.indexer_head_dim,
        "indexer_block_topk": text.indexer_budget // text.indexer_compress_ratio,
        "indexer_selected_width": text.indexer_budget + text.indexer_compress_ratio - 1,
        "gdn_repeat_ratio": text.linear_num_value_heads // text.linear_num_key_heads,
        "gdn_key_width": key_width,
        "gdn_value_width": value_width,
        "gdn_qkv_width": channels,
        "gdn_conv_channels": channels,
        "gdn_conv_padding": text.linear_conv_kernel_dim - 1,
        "gdn_gate_dim": text.linear_value_head_dim,
        "gdn_gate_activation": text.output_gate_type,
        "gdn_head_states": 2,
        "ple_ngram_heads": ngram_heads,
        "ple_head_dim": row,
        "ple_flattened_width": ngram_heads * row,
        "ple_key_proj_width": wide,
        "ple_conv_channels": wide,
        "ple_conv_dilation": text.ngram_size,
        "ple_conv_state_len": (text.ple_conv_kernel_size - 1) * text.ngram_size,
        "ple_row_bytes_bf16": 2 * row,
        "ple_parameters": rows * row,
        "expert_parameters": expert,
        "expert_gate_up_rows": 2 * text.moe_intermediate_size,
        "routed_parameters_total": routed,
        "active_routed_parameters_per_token": expert * text.num_experts_per_tok * text.num_hidden_layers,
        "shared_expert_parameters": 3 * text.hidden_size * text.shared_expert_intermediate_size,
        "shared_expert_gate_outputs": _rows(contract.tensor_roles, ".shared_expert_gate"),
        "routed_bytes_bf16": 2 * routed,
        "ple_bytes_bf16": 2 * rows * row,
        "routed_payload_gib_at_4bit": routed / 2 / 2**30,
        "routed_payload_gib_at_2bit": routed / 4 / 2**30,
    }


def constants(contract: Contract, judge: Judge) -> None:
    """Every constant equals its recomputation, and there is no other."""
    stored, computed = contract.derived_constants, derive(contract)
    judge.equal(SET, "derived_constants", sorted(computed), sorted(stored))
    for name, value in computed.items():
        if name in stored:
            judge.equal(CLAUSES[name], f"derived_constants.{name}.value", value, stored[name].value)


def _rows(roles: TensorRoles, suffix: str) -> int:
    every = (*roles.layer_roles, *roles.full_attention_roles)
    return next((role.shape[0] for role in every if role.path.endswith(suffix)), 0)


CHECKS: Final[tuple[Check, ...]] = (constants,)
