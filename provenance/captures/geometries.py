"""The small geometries that upstream is run on, and the cases: inputs, partition, padding, and what each catches.

Everything here is chosen by us (`contract-control`); only what upstream makes of it is a capture.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

_LINEAR: Final = "linear_attention"
_FULL: Final = "full_attention"


def _text(
    *,
    layers: list[str],
    hidden: int,
    rank: int,
    rope: dict[str, Any],
    attention: tuple[int, int, int],
    index: tuple[int, int, int],
    linear: tuple[int, int, int],
    experts: tuple[int, int, int],
    ple: dict[str, Any],
    vocab: int,
    eos: int,
    context: int,
) -> dict[str, Any]:
    query_heads, key_heads, head_dim = attention
    index_heads, index_dim, budget = index
    linear_keys, linear_values, linear_dim = linear
    count, used, width = experts
    return {
        "vocab_size": vocab,
        "bos_token_id": eos,
        "eos_token_id": eos,
        "pad_token_id": None,
        "hidden_size": hidden,
        "num_hidden_layers": len(layers),
        "layer_types": layers,
        "hc_count": 4,
        "hc_lowrank": rank,
        "num_attention_heads": query_heads,
        "num_key_value_heads": key_heads,
        "head_dim": head_dim,
        "rope_parameters": {"rope_type": "default", "mrope_interleaved": True, **rope},
        "partial_rotary_factor": rope["partial_rotary_factor"],
        "indexer_n_heads": index_heads,
        "indexer_kv_heads": 1,
        "indexer_head_dim": index_dim,
        "indexer_budget": budget,
        "indexer_compress_ratio": 4,
        "linear_num_key_heads": linear_keys,
        "linear_num_value_heads": linear_values,
        "linear_key_head_dim": linear_dim,
        "linear_value_head_dim": linear_dim,
        "linear_conv_kernel_dim": 4,
        "output_gate_type": "sigmoid",
        "num_experts": count,
        "num_experts_per_tok": used,
        "moe_intermediate_size": width,
        "shared_expert_intermediate_size": width,
        "ple_conv_kernel_size": 4,
        "ngram_size": 3,
        "seed": 1234,
        "make_ngram_vocab_size_divisible_by": 16,
        "split_ngram_parts": 4,
        **ple,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": context,
        "attention_bias": False,
        "tie_word_embeddings": False,
    }


GEOMETRIES: Final[dict[str, dict[str, Any]]] = {
    # The private miniature: the real pattern twice, selection budget 64 tokens.
    "miniature": _text(
        layers=[_LINEAR, _LINEAR, _LINEAR, _FULL] * 2,
        hidden=64,
        rank=16,
        rope={"partial_rotary_factor": 0.25, "rope_theta": 10000000, "mrope_section": [2, 1, 1]},
        attention=(4, 2, 32),
        index=(4, 16, 64),
        linear=(2, 6, 16),
        experts=(16, 4, 64),
        ple={
            "ple_layer_ids": [2],
            "ple_embed_dim": 64,
            "heads_per_ngram": 8,
            "ngram_vocab_size_base": 499,
        },
        vocab=384,
        eos=320,
        context=4096,
    ),
    # The fixture geometry of the published contract: 512 experts, 10 used, everything else as small as can be.
    "contract-fixture": _text(
        layers=[_LINEAR, _LINEAR, _LINEAR, _FULL],
        hidden=4,
        rank=2,
        rope={"partial_rotary_factor": 1.0, "rope_theta": 1.0, "mrope_section": [1, 0, 0]},
        attention=(2, 1, 2),
        index=(2, 2, 8),
        linear=(1, 3, 2),
        experts=(512, 10, 3),
        ple={
            "ple_layer_ids": [2],
            "ple_embed_dim": 16,
            "heads_per_ngram": 8,
            "ngram_vocab_size_base": 17,
        },
        vocab=13,
        eos=12,
        context=8,
    ),
    # Selection budget of 8 tokens, so that a history of 40 tokens leaves most of it out.
    "small": _text(
        layers=[_LINEAR, _LINEAR, _LINEAR, _FULL],
        hidden=24,
        rank=6,
        rope={"partial_rotary_factor": 0.5, "rope_theta": 10000, "mrope_section": [2, 1, 1]},
        attention=(4, 2, 16),
        index=(4, 8, 8),
        linear=(2, 6, 8),
        experts=(12, 3, 10),
        ple={
            "ple_layer_ids": [2],
            "ple_embed_dim": 16,
            "heads_per_ngram": 4,
            "ngram_vocab_size_base": 97,
        },
        vocab=64,
        eos=3,
        context=256,
    ),
    # Two PLE layers: the second continues the list of primes and has multipliers of its own.
    "two-ple": _text(
        layers=[_LINEAR, _LINEAR, _LINEAR, _FULL, _LINEAR],
        hidden=16,
        rank=4,
        rope={"partial_rotary_factor": 0.5, "rope_theta": 1000, "mrope_section": [2, 1, 1]},
        attention=(2, 1, 16),
        index=(2, 8, 16),
        linear=(1, 3, 8),
        experts=(8, 2, 6),
        ple={
            "ple_layer_ids": [1, 3],
            "ple_embed_dim": 12,
            "heads_per_ngram": 3,
            "ngram_vocab_size_base": 31,
        },
        vocab=50,
        eos=7,
        context=128,
    ),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One run of upstream over one batch of which one row is recorded.

    Attributes:
        id: `<geometry>/<word>`.
        title: what is run.
        catches: the mistakes of a port that these numbers show.
        geometry: key of `GEOMETRIES`.
        rows: token ids of every row of the batch; shorter rows are padded on the left.
        row: the row that is recorded.
        partition: tokens of each forward call; their sum is the longest row. One entry means one shot.
        pad_id: the id that stands in padded places; None means the end-of-text id, as upstream needs it.
        record_from: first token whose arrays are kept; earlier ones only shape the state.
        detail: whether the parts of a stage are kept beside its result.
        rule: how weights are made: `counter-by-name` or `counter-by-role`.
    """

    id: str
    title: str
    catches: tuple[str, ...]
    geometry: str
    rows: tuple[tuple[int, ...], ...]
    partition: tuple[int, ...]
    row: int = 0
    pad_id: int | None = None
    record_from: int = 0
    detail: bool = True
    rule: Literal["counter-by-name", "counter-by-role"] = "counter-by-name"


def counter_tokens(salt: int, count: int, vocab: int, *, avoid: int) -> tuple[int, ...]:
    """Returns `count` token ids below `vocab` by a counter rule, never `avoid` (the end-of-text id)."""
    mask = (1 << 64) - 1
    tokens = []
    for index in range(count):
        value = ((salt << 32) + index + 0x9E3779B97F4A7C15) & mask
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
        value = (value ^ (value >> 31)) % (vocab - 1)
        tokens.append(value if value < avoid else value + 1)
    return tuple(tokens)


# Salts were searched so that every selection and every routing of the run has a gap above 1e-4 at its cut. The tokens
# of the contract's fixture geometry are given, and 512 experts are close together: its counts say how often they were.
_SMALL: Final = counter_tokens(4, 41, 64, avoid=3)
_SMALL_EOS: Final = (*_SMALL[:9], 3, *_SMALL[10:17], 3, 3, *_SMALL[19:30])
_MINIATURE: Final = (*counter_tokens(304, 52, 320, avoid=320), 320, *counter_tokens(404, 43, 320, avoid=320))
_TWO_PLE: Final = (*counter_tokens(4, 11, 50, avoid=7), 7, *counter_tokens(104, 14, 50, avoid=7))

CASES: Final[tuple[Case, ...]] = (
    Case(
        "contract-fixture/tokens",
        "the six tokens of the published fixture geometry, one shot, no cache carried",
        (
            "the weight rule by role numbers",
            "512 experts of which 10 are used",
            "GDN with one key head for three value heads",
        ),
        "contract-fixture",
        ((2, 5, 7, 3, 9, 4),),
        (6,),
        rule="counter-by-role",
    ),
    Case(
        "contract-fixture/token-by-token",
        "the same six tokens, one forward call each",
        ("state carried between calls", "recurrent against chunked delta rule"),
        "contract-fixture",
        ((2, 5, 7, 3, 9, 4),),
        (1,) * 6,
        rule="counter-by-role",
    ),
    Case(
        "small/one-shot",
        "41 tokens in one shot; from the 12th on, selection leaves groups out",
        (
            "rank-order emission",
            "ReLU after the head sum",
            "index keys rotated at the wrong position",
            "norm without the 1",
        ),
        "small",
        (_SMALL,),
        (41,),
    ),
    Case(
        "small/chunks",
        "the same tokens in calls of 7, 1, 5, 2, 11, 1 and 14 tokens",
        ("history or convolution state reset at a chunk", "tail start taken from the chunk"),
        "small",
        (_SMALL,),
        (7, 1, 5, 2, 11, 1, 14),
        detail=False,
    ),
    Case(
        "small/token-by-token",
        "the same tokens, one call each",
        ("state of the wrong length", "decay applied after the update"),
        "small",
        (_SMALL,),
        (1,) * 41,
        detail=False,
    ),
    Case(
        "small/end-of-text-inside",
        "30 tokens with the end-of-text id at places 9, 17 and 18",
        (
            "history not restarted after end of text",
            "restart one token early",
            "convolution restarted with the history",
        ),
        "small",
        (_SMALL_EOS,),
        (30,),
        detail=False,
    ),
    Case(
        "small/batch-short-row",
        "the short row of a batch of 13 and 30 tokens, padded on the left with the end-of-text id",
        (
            "pooling by slot",
            "rotation by slot",
            "padding that is selected",
            "padding that enters the recurrent state",
        ),
        "small",
        (_SMALL[5:18], _SMALL_EOS),
        (30,),
        row=0,
    ),
    Case(
        "small/batch-long-row",
        "the long row of the same batch",
        ("a row that sees its neighbour",),
        "small",
        (_SMALL[5:18], _SMALL_EOS),
        (30,),
        row=1,
        detail=False,
    ),
    Case(
        "small/short-row-alone",
        "the short row of the batch by itself: the row of the batch must agree with it",
        ("a batched row that differs from the row alone",),
        "small",
        (_SMALL[5:18],),
        (13,),
        detail=False,
    ),
    Case(
        "small/padded-decode",
        "the padded batch again: 24 places in one call, then six single tokens on the cache",
        ("mask and positions of a decode step after padding",),
        "small",
        (_SMALL[5:18], _SMALL_EOS),
        (24, 1, 1, 1, 1, 1, 1),
        row=0,
        detail=False,
    ),
    Case(
        "two-ple/one-shot",
        "26 tokens through two PLE layers",
        ("primes restarted at the second PLE layer", "multipliers of the first PLE layer used for both"),
        "two-ple",
        (_TWO_PLE,),
        (26,),
    ),
    Case(
        "two-ple/chunks",
        "the same tokens in calls of 3, 9, 1 and 13",
        ("one history for two PLE layers advanced twice",),
        "two-ple",
        (_TWO_PLE,),
        (3, 9, 1, 13),
        detail=False,
    ),
    Case(
        "miniature/long",
        "96 tokens of the miniature in one shot, past its selection budget; the last 24 are kept",
        ("the whole composition", "selection past the budget in two layers"),
        "miniature",
        (_MINIATURE,),
        (96,),
        record_from=72,
        detail=False,
    ),
    Case(
        "miniature/prefill-decode",
        "the same 96 tokens: 80 in one call, then 16 single tokens; the last 20 are kept",
        ("the seam between prefill and decode",),
        "miniature",
        (_MINIATURE,),
        (80, *(1,) * 16),
        record_from=76,
        detail=False,
    ),
)


def case(id_: str) -> Case:
    """Returns the case with this id.

    Raises:
        KeyError: when there is none.
    """
    return {one.id: one for one in CASES}[id_]
