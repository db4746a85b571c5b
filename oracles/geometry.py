"""The dimensions of a model, read out of its configuration by the oracle's own reader.

Nothing has a silent default that upstream lacks: a missing gate activation is refused, for the wrong one reads as
incoherent text (bug report A16).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.oracles import ple
from assay.oracles.checks import integer, positive, refuse
from assay.oracles.clauses import DOMAIN


@dataclass(frozen=True, slots=True)
class Geometry:
    """Dimensions and constants of one model; names as in the architecture, sizes in elements.

    Attributes:
        layer_types: `gdn` or `qsa` for every layer.
        ple_layers: runtime (zero-based) layers that begin with per-layer embedding, in order of their ordinal.
        budget_groups: groups that a query may select.
        physical_rows: rows of the output matrix, which also derive the hash multipliers.
    """

    hidden: int
    streams: int
    rank: int
    layer_types: tuple[str, ...]
    physical_rows: int
    eps: float
    heads: int
    kv_heads: int
    head_dim: int
    rotary_dim: int
    theta: float
    sections: tuple[int, int, int]
    index_heads: int
    index_dim: int
    ratio: int
    budget_groups: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    experts: int
    experts_used: int
    expert_width: int
    shared_width: int
    ple_layers: tuple[int, ...]
    ple_embedding: int
    ple_kernel: int
    ngram_size: int
    heads_per_ngram: int
    ngram_base: int
    ngram_divisor: int
    ngram_parts: int
    seed: int
    eos: int

    @property
    def wide(self) -> int:
        """Values of the wide residual."""
        return self.streams * self.hidden

    @property
    def gdn_channels(self) -> int:
        """Channels of the recurrent layers' convolution: queries, keys, values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def ple_heads(self) -> int:
        """Heads of one per-layer embedding."""
        return (self.ngram_size - 1) * self.heads_per_ngram

    @property
    def selection_width(self) -> int:
        """Most tokens that one query selects: the budget and a tail (2,051 as published)."""
        return self.budget_groups * self.ratio + self.ratio - 1

    def ple_primes(self, ordinal: int) -> ple.Primes:
        """Primes and offsets of one per-layer embedding."""
        return ple.primes(self.ngram_base, self.ple_heads, ordinal, self.ngram_divisor)

    def ple_multipliers(self, ordinal: int) -> list[int]:
        """Hash multipliers of one per-layer embedding, derived from the physical rows."""
        return ple.multipliers(self.seed, self.physical_rows, self.ngram_size, ordinal)


def from_config(config: Mapping[str, Any]) -> Geometry:
    """Returns the geometry of a published configuration (`config.json`, or its `text_config`).

    Raises:
        ContractError: oracle.argument.domain, naming the field, for a missing field or a value that the oracles
            have no mathematics for.

    Source: transformers 5.24.0 `Qwen4ExpTextConfig`; defaults only where upstream has the same one.
    """
    text = config.get("text_config", config)
    rope = _field(text, "rope_parameters")
    for name, value in (("hidden_act", "silu"), ("output_gate_type", "sigmoid")):
        if _field(text, name) != value:
            raise refuse(DOMAIN, name, expected=value, got=text[name])
    kinds = {"linear_attention": "gdn", "full_attention": "qsa", "indexed_attention": "qsa"}
    layers = _field(text, "layer_types")
    unknown = [one for one in layers if one not in kinds]
    if unknown or len(layers) != _field(text, "num_hidden_layers"):
        raise refuse(DOMAIN, "layer_types", expected=f"{text['num_hidden_layers']} known layers", got=layers)
    count, head_dim = _size(text, "indexer_compress_ratio"), _size(text, "head_dim")
    factor = rope.get("partial_rotary_factor", text.get("partial_rotary_factor", 1.0))
    end = _field(text, "eos_token_id")
    sections = tuple(_field(rope, "mrope_section"))
    return Geometry(
        hidden=_size(text, "hidden_size"),
        streams=_size(text, "hc_count"),
        rank=_size(text, "hc_lowrank"),
        layer_types=tuple(kinds[one] for one in layers),
        physical_rows=_size(text, "vocab_size"),
        eps=positive("rms_norm_eps", _field(text, "rms_norm_eps")),
        heads=_size(text, "num_attention_heads"),
        kv_heads=_size(text, "num_key_value_heads"),
        head_dim=head_dim,
        rotary_dim=int(head_dim * factor),
        theta=positive("rope_theta", _field(rope, "rope_theta")),
        sections=(sections[0], sections[1], sections[2]),
        index_heads=_size(text, "indexer_n_heads"),
        index_dim=_size(text, "indexer_head_dim"),
        ratio=count,
        budget_groups=_size(text, "indexer_budget") // count,
        key_heads=_size(text, "linear_num_key_heads"),
        value_heads=_size(text, "linear_num_value_heads"),
        key_dim=_size(text, "linear_key_head_dim"),
        value_dim=_size(text, "linear_value_head_dim"),
        kernel=_size(text, "linear_conv_kernel_dim"),
        experts=_size(text, "num_experts"),
        experts_used=_size(text, "num_experts_per_tok"),
        expert_width=_size(text, "moe_intermediate_size"),
        shared_width=_size(text, "shared_expert_intermediate_size"),
        ple_layers=tuple(sorted({integer("ple_layer_ids", one, 1) - 1 for one in text["ple_layer_ids"]})),
        ple_embedding=text.get("ple_embed_dim") or _size(text, "hidden_size"),
        ple_kernel=text.get("ple_conv_kernel_size", 4),
        ngram_size=text.get("ngram_size", 3),
        heads_per_ngram=text.get("heads_per_ngram", 8),
        ngram_base=text.get("ngram_vocab_size_base", 20_000_000),
        ngram_divisor=text.get("make_ngram_vocab_size_divisible_by", 128),
        ngram_parts=text.get("split_ngram_parts", 512),
        seed=text.get("seed", 1234),
        eos=integer("eos_token_id", end[0] if isinstance(end, list) else end, 0),
    )


def _field(text: Mapping[str, Any], name: str) -> Any:
    if text.get(name) is None:
        raise refuse(DOMAIN, name, expected="a value in the configuration", got="none")
    return text[name]


def _size(text: Mapping[str, Any], name: str) -> int:
    return integer(name, _field(text, name), 1)
