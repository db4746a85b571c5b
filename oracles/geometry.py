"""The dimensions of a model, read out of its configuration by the oracle's own reader.

Nothing has a silent default that upstream lacks: a missing gate activation is refused, for the wrong one reads as
incoherent text (bug report A16).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from assay.oracles import ple
from assay.oracles.checks import integer, integers, positive, refuse
from assay.oracles.clauses import DOMAIN

LAYER_TYPES: Final = {"linear_attention": "gdn", "full_attention": "qsa", "indexed_attention": "qsa"}
LARGEST_SIZE: Final = 2**31


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
    text = _mapping("text_config", config.get("text_config", config))
    rope = _mapping("rope_parameters", _field(text, "rope_parameters"))
    for name, value in (("hidden_act", "silu"), ("output_gate_type", "sigmoid")):
        if _field(text, name) != value:
            raise refuse(DOMAIN, name, expected=value, got=text[name])
    layers = _layers(text)
    ratio, head_dim, hidden = (
        _size(text, name) for name in ("indexer_compress_ratio", "head_dim", "hidden_size")
    )
    factor = rope.get("partial_rotary_factor", text.get("partial_rotary_factor", 1.0))
    end = _field(text, "eos_token_id")
    sections = integers("mrope_section", _field(rope, "mrope_section"), 0, LARGEST_SIZE)
    if len(sections) != 3:
        raise refuse(DOMAIN, "mrope_section", expected="three counts", got=sections)
    ids = text.get("ple_layer_ids") or []
    found = Geometry(
        hidden=hidden,
        streams=_size(text, "hc_count"),
        rank=_size(text, "hc_lowrank"),
        layer_types=layers,
        physical_rows=_size(text, "vocab_size"),
        eps=positive("rms_norm_eps", _field(text, "rms_norm_eps")),
        heads=_size(text, "num_attention_heads"),
        kv_heads=_size(text, "num_key_value_heads"),
        head_dim=head_dim,
        rotary_dim=int(head_dim * min(positive("partial_rotary_factor", factor), 1.0)),
        theta=positive("rope_theta", _field(rope, "rope_theta")),
        sections=(sections[0], sections[1], sections[2]),
        index_heads=_size(text, "indexer_n_heads"),
        index_dim=_size(text, "indexer_head_dim"),
        ratio=ratio,
        budget_groups=_size(text, "indexer_budget") // ratio,
        key_heads=_size(text, "linear_num_key_heads"),
        value_heads=_size(text, "linear_num_value_heads"),
        key_dim=_size(text, "linear_key_head_dim"),
        value_dim=_size(text, "linear_value_head_dim"),
        kernel=_size(text, "linear_conv_kernel_dim"),
        experts=_size(text, "num_experts"),
        experts_used=_size(text, "num_experts_per_tok"),
        expert_width=_size(text, "moe_intermediate_size"),
        shared_width=_size(text, "shared_expert_intermediate_size"),
        ple_layers=tuple(sorted({one - 1 for one in integers("ple_layer_ids", ids, 1, len(layers))})),
        ple_embedding=_size(text, "ple_embed_dim", hidden),
        ple_kernel=_size(text, "ple_conv_kernel_size", 4),
        ngram_size=_size(text, "ngram_size", 3),
        heads_per_ngram=_size(text, "heads_per_ngram", 8),
        ngram_base=_size(text, "ngram_vocab_size_base", 20_000_000),
        ngram_divisor=_size(text, "make_ngram_vocab_size_divisible_by", 128),
        ngram_parts=_size(text, "split_ngram_parts", 512),
        seed=integer("seed", text.get("seed", 1234), 0, LARGEST_SIZE),
        eos=integer("eos_token_id", end[0] if isinstance(end, list) and end else end, 0, LARGEST_SIZE),
    )
    _require_agreement(found, _size(text, "indexer_budget"))
    return found


def _require_agreement(g: Geometry, budget: int) -> None:
    """Refuses dimensions that don't fit together, by the name of the one that must give way."""
    rotary = f"an even rotary part of at most {min(g.head_dim, g.index_dim)}"
    rules = (
        ("num_attention_heads", g.heads % g.kv_heads == 0, f"a multiple of {g.kv_heads}", g.heads),
        (
            "linear_num_value_heads",
            g.value_heads % g.key_heads == 0,
            f"a multiple of {g.key_heads}",
            g.value_heads,
        ),
        ("num_experts_per_tok", g.experts_used <= g.experts, f"at most {g.experts}", g.experts_used),
        ("indexer_budget", budget % g.ratio == 0, f"a multiple of {g.ratio}", budget),
        ("partial_rotary_factor", g.rotary_dim % 2 == 0, rotary, g.rotary_dim),
        ("partial_rotary_factor", 2 <= g.rotary_dim <= min(g.head_dim, g.index_dim), rotary, g.rotary_dim),
        ("mrope_section", 2 * sum(g.sections) == g.rotary_dim, f"a sum of {g.rotary_dim // 2}", g.sections),
        ("ngram_size", 2 <= g.ngram_size <= ple.LARGEST_NGRAM, f"2 .. {ple.LARGEST_NGRAM}", g.ngram_size),
        (
            "ple_embed_dim",
            g.ple_embedding % g.ple_heads == 0 if g.ple_heads else True,
            "a multiple of the heads",
            g.ple_embedding,
        ),
    )
    for name, holds, expected, got in rules:
        if not holds:
            raise refuse(DOMAIN, name, expected=expected, got=got)


def _layers(text: Mapping[str, Any]) -> tuple[str, ...]:
    layers, count = _field(text, "layer_types"), _size(text, "num_hidden_layers")
    if not isinstance(layers, list) or len(layers) != count or any(one not in LAYER_TYPES for one in layers):
        expected = f"{count} of {', '.join(LAYER_TYPES)}"
        raise refuse(DOMAIN, "layer_types", expected=expected, got=layers)
    return tuple(LAYER_TYPES[one] for one in layers)


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise refuse(DOMAIN, name, expected="an object", got=value)
    return value


def _field(text: Mapping[str, Any], name: str) -> Any:
    if text.get(name) is None:
        raise refuse(DOMAIN, name, expected="a value in the configuration", got="none")
    return text[name]


def _size(text: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = text.get(name)
    chosen = default if value is None and default is not None else _field(text, name)
    return integer(name, chosen, 1, LARGEST_SIZE)
