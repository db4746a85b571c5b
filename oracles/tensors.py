"""The checkpoint's tensors: their names and shapes for any geometry, and their values by the counter rule."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from assay.oracles import weights
from assay.oracles.checks import Array, integers, refuse
from assay.oracles.clauses import DOMAIN
from assay.oracles.geometry import Geometry

PREFIX: Final = "model.language_model."

LARGEST_MODEL_VALUES: Final = 2**26
"""Values of a whole model that is made by rule on the command line."""


class RuleWeights:
    """All tensors of a model by the counter rule, made when they are first asked for.

    Args:
        geometry: dimensions.
        bf16: values rounded to BF16, as a stored checkpoint has them.
    """

    def __init__(self, geometry: Geometry, bf16: bool = True) -> None:
        self._geometry = geometry
        self._bf16 = bf16
        self._shapes = shapes(geometry)
        self._made: dict[str, Array] = {}

    def tensor(self, name: str) -> Array:
        """Returns the named tensor; the embedding tables go by `ple_rows`.

        Raises:
            ContractError: oracle.argument.domain, for a name that this geometry lacks.
        """
        if name not in self._shapes:
            raise refuse(DOMAIN, "tensor", expected="a tensor of this geometry", got=name)
        if name not in self._made:
            self._made[name] = weights.tensor(name, self._shapes[name], self._bf16)
        return self._made[name]

    def ple_rows(self, layer: int, ids: Sequence[int]) -> Array:
        """Returns rows of the layer's table, each made from its own shard's name and its place in that shard."""
        geometry = self._geometry
        ordinal = geometry.ple_layers.index(layer)
        padded = geometry.ple_primes(ordinal).padded_rows
        share = padded // geometry.ngram_parts
        width = geometry.ple_embedding // geometry.ple_heads
        table = f"{PREFIX}layers.{layer}.ple.ple_embedding.ngram_embedding."
        lines = []
        for row in integers("ids", ids, 0, padded - 1):
            shard, place = divmod(row, share)
            indices = np.arange(width, dtype=np.uint64) + np.uint64(place * width)
            lines.append(weights.named(f"{table}shard_{shard}.weight", indices, self._bf16))
        return np.stack(lines)


def shapes(geometry: Geometry) -> dict[str, tuple[int, ...]]:
    """Returns the name and shape of every real-valued tensor but the shards of the embedding tables."""
    g = geometry
    found: dict[str, tuple[int, ...]] = {
        "lm_head.weight": (g.physical_rows, g.hidden),
        f"{PREFIX}embed_tokens.weight": (g.physical_rows, g.hidden),
        **_mixer_shapes(f"{PREFIX}hyper_connection_mixer.", g),
    }
    for layer, kind in enumerate(g.layer_types):
        name = f"{PREFIX}layers.{layer}."
        for part in ("attn_hyper_connection.", "mlp_hyper_connection."):
            found |= _mixer_shapes(name + part, g)
            found[f"{name}{part}block_inject_weight.weight"] = (g.streams, g.wide)
        found |= (_gdn_shapes if kind == "gdn" else _qsa_shapes)(name, g)
        found |= {
            f"{name}mlp.gate.weight": (g.experts, g.hidden),
            f"{name}mlp.experts.gate_up_proj": (g.experts, 2 * g.expert_width, g.hidden),
            f"{name}mlp.experts.down_proj": (g.experts, g.hidden, g.expert_width),
            f"{name}mlp.shared_expert.gate_proj.weight": (g.shared_width, g.hidden),
            f"{name}mlp.shared_expert.up_proj.weight": (g.shared_width, g.hidden),
            f"{name}mlp.shared_expert.down_proj.weight": (g.hidden, g.shared_width),
            f"{name}mlp.shared_expert_gate.weight": (1, g.hidden),
        }
        if layer in g.ple_layers:
            found |= {
                f"{name}ple.key_proj.weight": (g.wide, g.ple_embedding),
                f"{name}ple.value_proj.weight": (g.hidden, g.ple_embedding),
                f"{name}ple.norm_key.weight": (g.wide,),
                f"{name}ple.norm_query.weight": (g.wide,),
                f"{name}ple.norm_conv.weight": (g.wide,),
                f"{name}ple.conv1d.weight": (g.wide, 1, g.ple_kernel),
            }
    return found


def _mixer_shapes(name: str, g: Geometry) -> dict[str, tuple[int, ...]]:
    return {
        f"{name}hc_norm.weight": (g.wide,),
        f"{name}input_mix_weight_down.weight": (g.rank, g.wide),
        f"{name}input_mix_weight_up.weight": (g.wide, g.rank),
    }


def _gdn_shapes(layer: str, g: Geometry) -> dict[str, tuple[int, ...]]:
    name, width = f"{layer}linear_attn.", g.value_heads * g.value_dim
    return {
        f"{name}in_proj_qkv.weight": (g.gdn_channels, g.hidden),
        f"{name}in_proj_z.weight": (width, g.hidden),
        f"{name}in_proj_a.weight": (g.value_heads, g.hidden),
        f"{name}in_proj_b.weight": (g.value_heads, g.hidden),
        f"{name}conv1d.weight": (g.gdn_channels, 1, g.kernel),
        f"{name}A_log": (g.value_heads,),
        f"{name}dt_bias": (g.value_heads,),
        f"{name}norm.weight": (g.value_dim,),
        f"{name}out_proj.weight": (g.hidden, width),
    }


def _qsa_shapes(layer: str, g: Geometry) -> dict[str, tuple[int, ...]]:
    name = f"{layer}self_attn."
    return {
        f"{name}q_proj.weight": (2 * g.heads * g.head_dim, g.hidden),
        f"{name}k_proj.weight": (g.kv_heads * g.head_dim, g.hidden),
        f"{name}v_proj.weight": (g.kv_heads * g.head_dim, g.hidden),
        f"{name}o_proj.weight": (g.hidden, g.heads * g.head_dim),
        f"{name}q_norm.weight": (g.head_dim,),
        f"{name}k_norm.weight": (g.head_dim,),
        f"{name}indexer.index_qk_proj.weight": ((g.index_heads + 1) * g.index_dim, g.hidden),
        f"{name}indexer.q_layernorm.weight": (g.index_dim,),
        f"{name}indexer.k_layernorm.weight": (g.index_dim,),
    }
