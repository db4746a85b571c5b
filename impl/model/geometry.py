"""The dimensions of a model, read from its configuration by the implementation's own reader.

Sizes are bounded before anything is computed from them. What the graph has no mathematics for is refused by name; a
missing gate activation falls back to `hidden_act`, as upstream's does (bug report A16 is about ignoring the field).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from assay.impl.model.clauses import CONFIG, reject

KINDS: Final = {"linear_attention": "gdn", "full_attention": "qsa", "indexed_attention": "qsa"}
LARGEST: Final = 1 << 31
MOST_LAYERS: Final = 4096
MOST_PARTS: Final = 1 << 16
"""Experts of a layer, and parts of a table: each may have tensors of its own."""
MOST_HASH_HEADS: Final = 1024
"""A prime is searched for each; as published there are 16."""
LARGEST_SEED: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Geometry:
    """Dimensions and constants of one model, in elements.

    Attributes:
        kinds: `gdn` or `qsa` for every layer.
        ple_layers: zero-based layers that begin with per-layer embedding, ascending.
        physical_rows: rows of embedding and head; also derives the hash multipliers.
        context: most positions of a sequence.
        gate: activation of the recurrent layers' output gate, `sigmoid` or `silu`.
        is_renormalised: whether the weights of the chosen experts are made to sum to one.
        eos: ids that end a text; the first one also cuts the token history.
    """

    hidden: int
    streams: int
    rank: int
    kinds: tuple[str, ...]
    physical_rows: int
    context: int
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
    gate: str
    experts: int
    experts_used: int
    is_renormalised: bool
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
    eos: tuple[int, ...]
    has_attention_bias: bool
    is_tied: bool

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.kinds)

    @property
    def wide(self) -> int:
        """Values of the wide residual."""
        return self.streams * self.hidden

    @property
    def channels(self) -> int:
        """Channels of the recurrent layers' convolution: queries, keys, values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def ple_heads(self) -> int:
        """Heads of one per-layer embedding."""
        return (self.ngram_size - 1) * self.heads_per_ngram

    @property
    def ple_span(self) -> int:
        """Past values that the dilated convolution reads, for each channel."""
        return self.ngram_size * (self.ple_kernel - 1)

    @property
    def selection_width(self) -> int:
        """Most tokens that a query selects: the budget and a tail (2,051 as published)."""
        return self.budget_groups * self.ratio + self.ratio - 1


def read_geometry(config: Mapping[str, Any]) -> Geometry:
    """Returns the geometry of a configuration: `config.json` itself or its `text_config`.

    Raises:
        AdmissionError: model.config, naming the field.
    """
    text = config.get("text_config", config)
    if not isinstance(text, Mapping):
        raise _bad("text_config", "an object", type(text).__name__)
    fields = _Fields(text)
    rope = text.get("rope_parameters")
    if not isinstance(rope, Mapping):
        raise _bad("rope_parameters", "an object", rope)
    ropes = _Fields(rope, "rope_parameters.")
    if rope.get("rope_type", "default") != "default":
        raise _bad("rope_parameters.rope_type", "default", rope["rope_type"])
    if text.get("hidden_act", "silu") != "silu":
        raise _bad("hidden_act", "silu", text["hidden_act"])
    gate = text.get("output_gate_type") or text.get("hidden_act", "silu")
    if gate not in {"sigmoid", "silu"}:
        raise _bad("output_gate_type", "sigmoid or silu", gate)
    layers = fields.size("num_hidden_layers", largest=MOST_LAYERS)
    kinds = _kinds(text, layers)
    unused = (
        None if "qsa" in kinds else 1
    )  # without sparse layers upstream lets the index's fields be left out
    head_dim, ratio = fields.size("head_dim"), fields.size("indexer_compress_ratio", unused)
    hidden, budget = fields.size("hidden_size"), fields.size("indexer_budget", unused)
    factor = ropes.number("partial_rotary_factor", text.get("partial_rotary_factor", 1.0))
    found = Geometry(
        hidden=hidden,
        streams=fields.size("hc_count", 4),
        rank=fields.size("hc_lowrank", 320),
        kinds=kinds,
        physical_rows=fields.size("vocab_size"),
        context=fields.size("max_position_embeddings", 32768),
        eps=fields.number("rms_norm_eps", 1e-6),
        heads=fields.size("num_attention_heads"),
        kv_heads=fields.size("num_key_value_heads"),
        head_dim=head_dim,
        rotary_dim=int(head_dim * factor),
        theta=ropes.number("rope_theta"),
        sections=_sections(rope),
        index_heads=fields.size("indexer_n_heads", unused),
        index_dim=fields.size("indexer_head_dim", None if unused is None else head_dim),
        ratio=ratio,
        budget_groups=budget // ratio,
        key_heads=fields.size("linear_num_key_heads"),
        value_heads=fields.size("linear_num_value_heads"),
        key_dim=fields.size("linear_key_head_dim"),
        value_dim=fields.size("linear_value_head_dim"),
        kernel=fields.size("linear_conv_kernel_dim", 4),
        gate=gate,
        experts=fields.size("num_experts", largest=MOST_PARTS),
        experts_used=fields.size("num_experts_per_tok"),
        is_renormalised=fields.flag("norm_topk_prob", default=True),
        expert_width=fields.size("moe_intermediate_size"),
        shared_width=fields.size("shared_expert_intermediate_size"),
        ple_layers=_ple_layers(text, layers),
        ple_embedding=fields.size("ple_embed_dim", hidden),
        ple_kernel=fields.size("ple_conv_kernel_size", 4),
        ngram_size=fields.size("ngram_size", 3),
        heads_per_ngram=fields.size("heads_per_ngram", 8),
        ngram_base=fields.size("ngram_vocab_size_base", 20_000_000),
        ngram_divisor=fields.size("make_ngram_vocab_size_divisible_by", 128),
        ngram_parts=fields.size("split_ngram_parts", 512, largest=MOST_PARTS),
        seed=fields.size("seed", 1234, least=-LARGEST_SEED, largest=LARGEST_SEED),
        eos=_eos(text, config),
        has_attention_bias=fields.flag("attention_bias", default=False),
        is_tied=fields.flag("tie_word_embeddings", default=False)
        or config.get("tie_word_embeddings") is True,
    )
    _judge(found, budget, text)
    return found


class _Fields:
    """One object of the configuration, read field by field."""

    def __init__(self, values: Mapping[str, Any], prefix: str = "") -> None:
        self._values = values
        self._prefix = prefix

    def size(self, name: str, default: int | None = None, *, least: int = 1, largest: int = LARGEST) -> int:
        value = self._values.get(name)
        chosen = default if value is None else value
        if type(chosen) is not int or not least <= chosen <= largest:
            raise _bad(self._prefix + name, f"an integer in {least} .. {largest}", chosen)
        return chosen

    def number(self, name: str, default: Any = None) -> float:
        value = self._values.get(name)
        chosen = default if value is None else value
        if type(chosen) not in {int, float} or not 0 < chosen < 1e30:
            raise _bad(self._prefix + name, "a number above 0", chosen)
        return float(chosen)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._values.get(name, default)
        if type(value) is not bool:
            raise _bad(self._prefix + name, "true or false", value)
        return value


def _kinds(text: Mapping[str, Any], layers: int) -> tuple[str, ...]:
    named = text.get("layer_types")
    if named is None:
        interval = text.get("full_attention_interval", 4)
        if type(interval) is not int or interval < 1:
            raise _bad("full_attention_interval", "an integer from 1", interval)
        named = ["linear_attention" if (i + 1) % interval else "full_attention" for i in range(layers)]
    known = isinstance(named, list) and len(named) == layers
    if not known or any(not isinstance(one, str) or one not in KINDS for one in named):
        raise _bad("layer_types", f"{layers} of {', '.join(KINDS)}", named)
    return tuple(KINDS[one] for one in named)


def _sections(rope: Mapping[str, Any]) -> tuple[int, int, int]:
    counts = rope.get("mrope_section", [11, 11, 10])
    if (
        not isinstance(counts, list)
        or len(counts) != 3
        or any(type(one) is not int or one < 0 for one in counts)
    ):
        raise _bad("rope_parameters.mrope_section", "three counts", counts)
    return counts[0], counts[1], counts[2]


def _ple_layers(text: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    ids = text.get("ple_layer_ids") or []
    if not isinstance(ids, list) or any(type(one) is not int or not 1 <= one <= layers for one in ids):
        raise _bad("ple_layer_ids", f"numbers in 1 .. {layers}", ids)
    return tuple(sorted({one - 1 for one in ids}))


def _eos(text: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[int, ...]:
    value = text.get("eos_token_id", config.get("eos_token_id"))
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if any(type(one) is not int or not 0 <= one < LARGEST for one in ids):
        raise _bad("eos_token_id", "token ids", value)
    return tuple(ids)


def _judge(g: Geometry, budget: int, text: Mapping[str, Any]) -> None:
    rules = (
        ("hc_count", g.streams > 1, "at least 2", g.streams),
        ("num_attention_heads", g.heads % g.kv_heads == 0, f"a multiple of {g.kv_heads}", g.heads),
        ("linear_num_value_heads", g.value_heads % g.key_heads == 0, f"a multiple of {g.key_heads}", g.value_heads),
        ("num_experts_per_tok", g.experts_used <= g.experts, f"at most {g.experts}", g.experts_used),
        ("indexer_budget", budget % g.ratio == 0, f"a multiple of {g.ratio}", budget),
        ("indexer_kv_heads", (text.get("indexer_kv_heads") or 1) == 1, "1", text.get("indexer_kv_heads")),
        ("rope_parameters.partial_rotary_factor", g.rotary_dim % 2 == 0, "an even number of rotated values", g.rotary_dim),
        ("rope_parameters.partial_rotary_factor", 2 <= g.rotary_dim <= min(g.head_dim, g.index_dim),
         f"2 .. {min(g.head_dim, g.index_dim)} rotated values", g.rotary_dim),
        ("eos_token_id", bool(g.eos) or not g.ple_layers, "an id, which the token history needs", "none"),
        ("ngram_size", 2 <= g.ngram_size <= 64, "2 .. 64", g.ngram_size),
        ("heads_per_ngram", g.ple_heads * max(1, len(g.ple_layers)) <= MOST_HASH_HEADS,
         f"at most {MOST_HASH_HEADS} heads of all layers", g.ple_heads * max(1, len(g.ple_layers))),
        ("ple_embed_dim", not g.ple_layers or g.ple_embedding % g.ple_heads == 0,
         f"a multiple of {g.ple_heads} heads", g.ple_embedding),
        ("ple_layer_ids", all(g.kinds[layer] == "gdn" for layer in g.ple_layers), "linear-attention layers only",
         [layer + 1 for layer in g.ple_layers]),
    )  # fmt: skip
    for name, holds, expected, got in rules:
        if not holds:
            raise _bad(name, expected, got)


def _bad(name: str, expected: Any, got: Any) -> Exception:
    return reject(CONFIG, f"config.json: {name}", expected=expected, got="nothing" if got is None else got)
