"""The small fixture geometry and its weights by numbered roles: four layers, 512 narrow experts, 13 ids.

The roles are numbers instead of names, so that a scalar C program can make the same weights; a fused matrix of the
checkpoint is put together from the roles of its parts.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from assay.oracles import weights
from assay.oracles.checks import Array, integers, refuse
from assay.oracles.clauses import DOMAIN
from assay.oracles.geometry import Geometry, from_config
from assay.oracles.tensors import PREFIX, shapes

FIXTURE_TOKENS: Final = (2, 5, 7, 3, 9, 4)

FIXTURE_CONFIG: Final[dict[str, Any]] = {
    "text_config": {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 12,
        "eos_token_id": 12,
        "hc_count": 4,
        "hc_lowrank": 2,
        "head_dim": 2,
        "heads_per_ngram": 8,
        "hidden_act": "silu",
        "hidden_size": 4,
        "indexer_budget": 8,
        "indexer_compress_ratio": 4,
        "indexer_head_dim": 2,
        "indexer_kv_heads": 1,
        "indexer_n_heads": 2,
        "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 2,
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 3,
        "linear_value_head_dim": 2,
        "make_ngram_vocab_size_divisible_by": 1,
        "max_position_embeddings": 8,
        "model_type": "qwen4_exp_text",
        "moe_intermediate_size": 3,
        "ngram_size": 3,
        "ngram_vocab_size_base": 17,
        "num_attention_heads": 2,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "num_hidden_layers": 4,
        "num_key_value_heads": 1,
        "output_gate_type": "sigmoid",
        "pad_token_id": None,
        "ple_conv_kernel_size": 4,
        "ple_embed_dim": 16,
        "ple_layer_ids": [2],
        "rms_norm_eps": 1e-06,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [1, 0, 0],
            "partial_rotary_factor": 1.0,
            "rope_theta": 1,
            "rope_type": "default",
        },
        "shared_expert_intermediate_size": 3,
        "split_ngram_parts": 1,
        "tie_word_embeddings": False,
        "vocab_size": 13,
    }
}
"""Geometry of facts 4.1 in the checkpoint's own key names."""

_MIXER: Final = ("hc_norm", "input_mix_weight_down", "input_mix_weight_up", "block_inject_weight")
_GDN: Final = (
    "in_proj_qkv",
    "in_proj_z",
    "in_proj_b",
    "in_proj_a",
    "conv1d",
    "A_log",
    "dt_bias",
    "norm",
    "out_proj",
)
_PLE: Final = ("key_proj", "value_proj", "norm_key", "norm_query", "norm_conv", "conv1d")
_QSA: Final = {
    "k_proj": 4001,
    "v_proj": 4002,
    "indexer.q_layernorm": 4006,
    "indexer.k_layernorm": 4007,
    "o_proj": 4009,
    "q_norm": 4010,
    "k_norm": 4011,
}
_SHARED: Final = (
    "shared_expert.gate_proj",
    "shared_expert.up_proj",
    "shared_expert.down_proj",
    "shared_expert_gate",
)


def fixture_geometry() -> Geometry:
    """Returns the fixture's dimensions."""
    return from_config(FIXTURE_CONFIG)


class FixtureWeights:
    """All tensors of the fixture, float32 and not rounded to BF16.

    Source: facts 4.1. Role 4008 of its table is not used by any tensor.
    """

    def __init__(self) -> None:
        self._shapes = shapes(fixture_geometry())
        self._made: dict[str, Array] = {}

    def tensor(self, name: str) -> Array:
        """Returns the named tensor; the embedding table goes by `ple_rows`.

        Raises:
            ContractError: oracle.argument.domain, for a name that the fixture lacks.
        """
        if name not in self._shapes:
            raise refuse(DOMAIN, "tensor", expected="a tensor of the fixture", got=name)
        if name not in self._made:
            self._made[name] = self._make(name.removeprefix(PREFIX), self._shapes[name])
        return self._made[name]

    def ple_rows(self, layer: int, ids: Sequence[int]) -> Array:
        """Returns rows of the table, width 1."""
        if layer != 1:
            raise refuse(DOMAIN, "layer", expected=1, got=layer)
        return weights.at(2000, np.array(integers("ids", ids, 0), np.uint64)).reshape(-1, 1)

    def _make(self, name: str, shape: tuple[int, ...]) -> Array:
        if name == "embed_tokens.weight":
            return _block(100, shape)
        if name == "lm_head.weight":
            return _block(17000, shape)
        if name.startswith("hyper_connection_mixer."):
            return _block(1420 + _MIXER.index(name.split(".")[1]), shape)
        _, number, part, *rest = name.split(".")
        layer, leaf = int(number), ".".join(rest).removesuffix(".weight")
        if part in ("attn_hyper_connection", "mlp_hyper_connection"):
            phase = 10 * (part == "mlp_hyper_connection")
            return _block(1000 + 100 * layer + phase + _MIXER.index(leaf), shape)
        if part == "linear_attn":
            found = _block(3000 + 20 * layer + _GDN.index(leaf), shape)
            return found + np.float32(1) if leaf == "norm" else found
        if part == "ple":
            return _block(2001 + _PLE.index(leaf), shape)
        return _attention(leaf, shape) if part == "self_attn" else _experts(leaf, layer, shape)


def _attention(leaf: str, shape: tuple[int, ...]) -> Array:
    if leaf == "q_proj":  # per head: the query's rows, then its gate's
        halves = [_block(role, (2, 2, 4)) for role in (4000, 4003)]
        return np.concatenate(halves, axis=1).reshape(shape)
    if leaf == "indexer.index_qk_proj":
        return np.concatenate([_block(4004, (4, 4)), _block(4005, (2, 4))])
    return _block(_QSA[leaf], shape)


def _experts(leaf: str, layer: int, shape: tuple[int, ...]) -> Array:
    first = 6000 + 2000 * layer
    if leaf == "gate":
        return _block(5000 + layer, shape)
    if leaf == "experts.gate_up_proj":
        parts = [[_block(first + 3 * one + half, (3, 4)) for half in (0, 1)] for one in range(shape[0])]
        return np.stack([np.concatenate(pair) for pair in parts])
    if leaf == "experts.down_proj":
        return np.stack([_block(first + 3 * one + 2, shape[1:]) for one in range(shape[0])])
    return _block(15000 + 10 * layer + _SHARED.index(leaf), shape)


def _block(role: int, shape: tuple[int, ...]) -> Array:
    return weights.values(role, 0, int(np.prod(shape))).reshape(shape)
