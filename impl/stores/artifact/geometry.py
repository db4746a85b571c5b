"""The tensors that a configuration asks for: names and shapes of the dense owner, of the experts and of the row table.

This is the builder's and admission's own statement for any geometry. The contract's roles say the same for the two
packaged profiles, and the oracles for every geometry that they compute; tests hold all three together.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from assay.impl.stores.checkpoint.hash_derivation import HashBuffers, derive_hash_buffers
from assay.impl.stores.private_families import GEOMETRY
from assay.spec.errors import ContractError, Finding

PREFIX: Final = "model.language_model."
STAGE: Final = "private"
FULL_NAMES: Final = frozenset({"full_attention", "indexed_attention"})
LINEAR_NAME: Final = "linear_attention"
SEED: Final = 1234
PRIME_STEP: Final = 10007
MOST: Final = 1 << 31
_SIZES: Final = (
    "vocab_size", "hidden_size", "hc_count", "hc_lowrank", "num_experts", "num_experts_per_tok",
    "moe_intermediate_size", "shared_expert_intermediate_size", "num_attention_heads", "num_key_value_heads",
    "head_dim", "indexer_n_heads", "indexer_kv_heads", "indexer_head_dim", "linear_num_key_heads",
    "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim",
    "ple_conv_kernel_size", "ple_embed_dim", "ngram_size", "heads_per_ngram", "ngram_vocab_size_base",
    "make_ngram_vocab_size_divisible_by", "num_hidden_layers",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Geometry:
    """What the tensors of one configuration follow from.

    Attributes:
        sizes: the integers of the configuration, all checked.
        layers: for each layer whether it is a full-attention one.
        ple_layer: runtime layer with the per-layer embedding, from 0.
        is_tied: whether the output matrix is the embedding, so that it is not stored. The top of the configuration
            says so, in the form with a `text_config` as well: upstream stores a head that only the inner one calls tied.
        has_bias: whether the projections of full attention have biases.
        seed: of the hash.
    """

    sizes: Mapping[str, int]
    layers: tuple[bool, ...]
    ple_layer: int
    is_tied: bool
    has_bias: bool
    seed: int

    @property
    def heads(self) -> int:
        """Hash heads of the row table."""
        return (self.sizes["ngram_size"] - 1) * self.sizes["heads_per_ngram"]

    def hash_buffers(self) -> HashBuffers:
        """Returns multipliers, primes and offsets of the hash."""
        return derive_hash_buffers(dict(self.sizes), seed=self.seed, ordinal=0, prime_step=PRIME_STEP)


def text_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the text part of a configuration, which a text-only checkpoint has at the top."""
    text = config.get("text_config", config)
    return text if isinstance(text, dict) else {}


def read_geometry(config: Mapping[str, Any]) -> Geometry:
    """Returns the geometry of a configuration.

    Raises:
        ContractError: private.geometry, naming the first key that is missing or out of its range.
    """
    text = text_of(config)
    sizes = {key: _integer(text, key, 1, MOST) for key in _SIZES}
    kinds = text.get("layer_types")
    if not isinstance(kinds, list) or len(kinds) != sizes["num_hidden_layers"]:
        got = f"{len(kinds)} layers" if isinstance(kinds, list) else "nothing" if kinds is None else kinds
        raise _error("layer_types", f"{sizes['num_hidden_layers']} layers", got)
    for number, kind in enumerate(kinds):
        if not isinstance(kind, str) or (kind != LINEAR_NAME and kind not in FULL_NAMES):
            raise _error(
                f"layer_types[{number}]", f"{LINEAR_NAME} or {' or '.join(sorted(FULL_NAMES))}", kind
            )
    ids = text.get("ple_layer_ids")
    if not isinstance(ids, list) or len(ids) != 1 or type(ids[0]) is not int:
        raise _error("ple_layer_ids", "one layer, for one row table", ids)
    if not 1 <= ids[0] <= len(kinds):
        raise _error("ple_layer_ids[0]", f"1..{len(kinds)}", ids[0])
    seed = text.get("seed", SEED)
    if type(seed) is not int or not 0 <= seed < 1 << 32:
        raise _error("seed", f"an integer in 0..{(1 << 32) - 1}", seed)
    layers = tuple(kind in FULL_NAMES for kind in kinds)
    return Geometry(
        sizes,
        layers,
        ids[0] - 1,
        config.get("tie_word_embeddings") is True,
        text.get("attention_bias") is True,
        seed,
    )


def dense_shapes(geometry: Geometry) -> dict[str, tuple[int, ...]]:
    """Returns name -> shape, in source order, of every tensor of the dense owner."""
    g = geometry.sizes
    found: dict[str, tuple[int, ...]] = {}
    if not geometry.is_tied:
        found["lm_head.weight"] = (g["vocab_size"], g["hidden_size"])
    found[f"{PREFIX}embed_tokens.weight"] = (g["vocab_size"], g["hidden_size"])
    found |= _mixer(f"{PREFIX}hyper_connection_mixer.", g)
    for number, is_full in enumerate(geometry.layers):
        layer = f"{PREFIX}layers.{number}."
        wide = g["hc_count"] * g["hidden_size"]
        for half in ("attn_hyper_connection.", "mlp_hyper_connection."):
            found[f"{layer}{half}block_inject_weight.weight"] = (g["hc_count"], wide)
            found |= _mixer(layer + half, g)
        found |= _mlp(layer, g)
        found |= _full(layer, g) if is_full else _linear(layer, g)
        if is_full and geometry.has_bias:
            found |= _biases(layer, g)
        if number == geometry.ple_layer:
            found |= _ple(f"{layer}ple.", g)
    return found


def routed_shapes(geometry: Geometry) -> dict[str, tuple[int, ...]]:
    """Returns name -> shape of the fused expert tensors."""
    g = geometry.sizes
    experts, width, hidden = g["num_experts"], g["moe_intermediate_size"], g["hidden_size"]
    found: dict[str, tuple[int, ...]] = {}
    for number in range(len(geometry.layers)):
        stem = f"{PREFIX}layers.{number}.mlp.experts."
        found[f"{stem}gate_up_proj"] = (experts, 2 * width, hidden)
        found[f"{stem}down_proj"] = (experts, hidden, width)
    return found


def hash_values(geometry: Geometry) -> dict[str, tuple[int, ...]]:
    """Returns name -> values of the three integer buffers of the hash."""
    buffers = geometry.hash_buffers()
    stem = f"{PREFIX}layers.{geometry.ple_layer}.ple.ple_embedding."
    return {
        f"{stem}layer_multipliers": buffers.multipliers,
        f"{stem}ngram_heads_offsets": buffers.offsets,
        f"{stem}ngram_heads_vocab_sizes": buffers.primes,
    }


def table_stem(geometry: Geometry) -> str:
    """Returns what the names of the row table's parts start with."""
    return f"{PREFIX}layers.{geometry.ple_layer}.ple.ple_embedding.ngram_embedding."


def _mixer(stem: str, g: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    wide, low = g["hc_count"] * g["hidden_size"], g["hc_lowrank"]
    return {
        f"{stem}hc_norm.weight": (wide,),
        f"{stem}input_mix_weight_down.weight": (low, wide),
        f"{stem}input_mix_weight_up.weight": (wide, low),
    }


def _mlp(layer: str, g: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    hidden, shared = g["hidden_size"], g["shared_expert_intermediate_size"]
    return {
        f"{layer}mlp.gate.weight": (g["num_experts"], hidden),
        f"{layer}mlp.shared_expert.down_proj.weight": (hidden, shared),
        f"{layer}mlp.shared_expert.gate_proj.weight": (shared, hidden),
        f"{layer}mlp.shared_expert.up_proj.weight": (shared, hidden),
        f"{layer}mlp.shared_expert_gate.weight": (1, hidden),
    }


def _linear(layer: str, g: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    stem, hidden, heads = f"{layer}linear_attn.", g["hidden_size"], g["linear_num_value_heads"]
    value = heads * g["linear_value_head_dim"]
    channels = 2 * g["linear_num_key_heads"] * g["linear_key_head_dim"] + value
    return {
        f"{stem}A_log": (heads,),
        f"{stem}conv1d.weight": (channels, 1, g["linear_conv_kernel_dim"]),
        f"{stem}dt_bias": (heads,),
        f"{stem}in_proj_a.weight": (heads, hidden),
        f"{stem}in_proj_b.weight": (heads, hidden),
        f"{stem}in_proj_qkv.weight": (channels, hidden),
        f"{stem}in_proj_z.weight": (value, hidden),
        f"{stem}norm.weight": (g["linear_value_head_dim"],),
        f"{stem}out_proj.weight": (hidden, value),
    }


def _full(layer: str, g: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    stem, hidden, dim = f"{layer}self_attn.", g["hidden_size"], g["head_dim"]
    query, keys = g["num_attention_heads"] * dim, g["num_key_value_heads"] * dim
    index = g["indexer_head_dim"]
    return {
        f"{stem}indexer.index_qk_proj.weight": (
            (g["indexer_n_heads"] + g["indexer_kv_heads"]) * index,
            hidden,
        ),
        f"{stem}indexer.k_layernorm.weight": (index,),
        f"{stem}indexer.q_layernorm.weight": (index,),
        f"{stem}k_norm.weight": (dim,),
        f"{stem}k_proj.weight": (keys, hidden),
        f"{stem}o_proj.weight": (hidden, query),
        f"{stem}q_norm.weight": (dim,),
        f"{stem}q_proj.weight": (2 * query, hidden),
        f"{stem}v_proj.weight": (keys, hidden),
    }


def _biases(layer: str, g: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    stem, dim = f"{layer}self_attn.", g["head_dim"]
    query, keys = g["num_attention_heads"] * dim, g["num_key_value_heads"] * dim
    return {
        f"{stem}k_proj.bias": (keys,),
        f"{stem}o_proj.bias": (g["hidden_size"],),
        f"{stem}q_proj.bias": (2 * query,),
        f"{stem}v_proj.bias": (keys,),
    }


def _ple(stem: str, g: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    wide, embedding = g["hc_count"] * g["hidden_size"], g["ple_embed_dim"]
    return {
        f"{stem}conv1d.weight": (wide, 1, g["ple_conv_kernel_size"]),
        f"{stem}key_proj.weight": (wide, embedding),
        f"{stem}norm_conv.weight": (wide,),
        f"{stem}norm_key.weight": (wide,),
        f"{stem}norm_query.weight": (wide,),
        f"{stem}value_proj.weight": (g["hidden_size"], embedding),
    }


def _integer(text: Mapping[str, Any], key: str, least: int, most: int) -> int:
    value = text.get(key)
    if type(value) is not int or not least <= value <= most:
        raise _error(key, f"an integer in {least}..{most}", "nothing" if value is None else value)
    return value


def _error(key: str, expected: object, got: object) -> ContractError:
    return ContractError(Finding.of(GEOMETRY, STAGE, f"text_config.{key}", expected=expected, got=got))
