"""All operations of `assay oracle`, with what they take and give and an example that runs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike

from assay.oracles import (
    conv,
    gdn,
    logits,
    model,
    moe,
    norms,
    ple,
    qsa,
    residual,
    rope,
    router,
    state,
    tensors,
    weights,
)
from assay.oracles.checks import Array, integer, integers, refuse
from assay.oracles.clauses import DOMAIN
from assay.oracles.fixture import FIXTURE_CONFIG
from assay.oracles.geometry import from_config
from assay.oracles.signature import Argument, Operation


def rule_values(
    name: str = "", role: int | None = None, first: int = 0, count: int = 1, bf16: bool = True
) -> Array:
    """Returns weights of the counter rule: of a tensor by its name, or of a role by its number.

    Args:
        name: tensor name of the checkpoint; its role is FNV-1a 64 of the UTF-8 bytes.
        role: number instead of a name.
        first: flat row-major index of the first value.
        count: how many, at most 2^20.
        bf16: rounded to BF16 as stored.
    """
    integer("count", count, 0, weights.LARGEST_LIST)
    integer("first", first, 0, 2**63)
    if bool(name) == (role is not None):
        raise refuse(DOMAIN, "name", expected="either a name or a role", got="both" if name else "neither")
    if role is not None:
        found = weights.values(role, first, count)
        return weights.round_to_bf16(found) if bf16 else found
    return weights.named(name, np.arange(count, dtype=np.uint64) + np.uint64(first), bf16)


def rule_model(
    config: Mapping[str, Any],
    tokens: Sequence[int],
    taps: Sequence[int] | None = None,
    first_position: int = 0,
    dtype: DTypeLike = np.float32,
) -> tuple[Array, list[dict[str, Any]]]:
    """Returns the logits of a small model whose weights follow the counter rule, and the arrays of chosen tokens.

    Args:
        config: a `config.json` of at most 2^26 values in its tensors.
        tokens: ids below the physical rows.
        taps: indices of the tokens whose stages are returned; none when absent.
        first_position: logical position of the first token.
        dtype: float32 or float64.
    """
    geometry = from_config(config)
    size = sum(math.prod(shape) for shape in tensors.shapes(geometry).values())
    size += sum(geometry.wide * geometry.ngram_size * geometry.ple_kernel for _ in geometry.ple_layers)
    if size > tensors.LARGEST_MODEL_VALUES:
        raise refuse(DOMAIN, "config", expected=f"at most {tensors.LARGEST_MODEL_VALUES} values", got=size)
    wanted = set(integers("taps", list(taps or ()), 0, len(tokens) - 1))
    integer("first_position", first_position, 0, rope.LARGEST_POSITION - len(tokens))
    stages: list[dict[str, Any]] = []

    def tap(stage: str, layer: int | None, token: int, array: Array) -> None:
        if token in wanted:
            stages.append({"stage": stage, "layer": layer, "token": token, "values": array.tolist()})

    oracle = model.Model(geometry, tensors.RuleWeights(geometry), dtype)
    done = oracle.run(tokens, oracle.fresh(first_position), tap)
    return done.logits, stages


def _real(name: str, shape: str, unit: str) -> Argument:
    return Argument(name, "real", tuple(shape.split()), unit)


def _whole(name: str, shape: str | None, unit: str, *, nullable: bool = False) -> Argument:
    return Argument(name, "integer", None if shape is None else tuple(shape.split()), unit, nullable)


def _named(entries: Sequence[Operation]) -> dict[str, Operation]:
    return {entry.name: entry for entry in entries}


_EPS = _real("eps", "", "added to the mean of squares")
_WIDE = _real("wide", "streams*hidden", "wide residual, stream after stream")
_STREAMS = _whole("streams", "", "parallel residual streams")
_STATE = _real("state", "value_head key value", "recurrent state")
_Q = _real("q", "token key_head key", "queries")
_K = _real("k", "token key_head key", "keys")
_V = _real("v", "token value_head value", "values")
_CONV_STATE = _real("state", "channel dilation*(kernel-1)", "past values, oldest first")
_THETA = _real("theta", "", "base of the frequencies")
_SECTIONS = _whole("sections", "3", "frequencies driven by time, height, width")
_ROTARY = _whole("rotary_dim", "", "rotated values of a head")
_RATIO = _whole("ratio", "", "positions in a group")
_ANCHOR = _whole("first_position", "", "absolute position of the first visible token")
_MULTIPLIERS = _whole("multipliers", "lag", "index 0 for the current token")
_Y = "result"
_CHOICE = (
    _real("logits", "row", "-inf is impossible; NaN and +inf are refused"),
    _whole("valid_ids", "", "ids that name tokens"),
    Argument("policy", "text", (), "greedy, temperature, top-k, top-p or min-p"),
    _whole("k", "", "top-k: candidates"),
    _real("p", "", "top-p: share of probability"),
    _real("min_p", "", "min-p: share of the largest probability"),
    _real("temperature", "", "divides the logits, except for greedy"),
    _real("uniform", "", "in [0, 1); 0 chooses the most probable"),
    _whole("mask_words", "word", "32-bit words: bit i of word w allows id 32*w + i"),
)

_STEP_EXAMPLE: Final[dict[str, Any]] = {
    "q": [[1.0, 0.0]],
    "k": [[0.6, 0.8]],
    "v": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
    "log_decay": [-0.5, -0.25, 0.0],
    "beta": [0.25, 0.5, 1.0],
    "state": [[[0.1, 0.2], [0.3, 0.4]], [[0.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]],
}
_MIX_EXAMPLE: Final[dict[str, Any]] = {
    "wide": [3.0, 4.0, -3.0, 4.0],
    "norm": [0.0, 0.1, 0.0, -0.1],
    "down": [[0.5, -0.5, 0.25, 0.0]],
    "up": [[1.0], [-1.0], [0.5], [0.0]],
    "streams": 2,
}
_ATTEND_EXAMPLE: Final[dict[str, Any]] = {
    "q": [[[1.0, 0.0], [0.0, 1.0]]],
    "k": [[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 1.0]]],
    "v": [[[1.0, 2.0]], [[3.0, 4.0]], [[5.0, 6.0]]],
}
_TOY: Final[dict[str, Any]] = {
    "tokens": [5, 8, 3],
    "multipliers": [7, 11, 13],
    "primes": [53, 59],
    "offsets": [0, 53],
    "heads_per_ngram": 1,
    "eos": 2,
}

OPERATIONS: Final[dict[str, Operation]] = _named(
    [
        Operation(
            "norm.rms",
            norms.rms,
            (
                Argument("x", "real", None, "rows; the norm runs over the last axis"),
                _real("weight", "width", "stored gain"),
                _EPS,
                Argument("convention", "text", (), "zero-centred or conventional"),
                _whole("groups", "", "equal parts of the width, each with its own statistics"),
            ),
            (Argument("y", "real", None, "shaped as x"),),
            {"x": [3.0, 4.0], "weight": [0.0, 0.0], "eps": 1e-6, "convention": "zero-centred"},
        ),
        Operation(
            "norm.gated",
            norms.gated,
            (
                Argument("x", "real", None, "rows"),
                _real("weight", "width", "the gain itself"),
                Argument("gate", "real", None, "shaped as x, before the sigmoid"),
                _EPS,
            ),
            (Argument("y", "real", None, "shaped as x"),),
            {"x": [3.0, 4.0], "weight": [1.0, 1.0], "gate": [-2.0, 0.5], "eps": 1e-6},
        ),
        Operation(
            "residual.read",
            residual.read,
            (
                _WIDE,
                _real("norm", "streams*hidden", "zero-centred gain"),
                _real("down", "rank streams*hidden", "matrix"),
                _real("up", "streams*hidden rank", "matrix"),
                _real("inject", "streams streams*hidden", "matrix"),
                _STREAMS,
                _EPS,
            ),
            (_real("read", "hidden", "block input"), _real("injection", "streams", "weights of the output")),
            {**_MIX_EXAMPLE, "inject": [[0.1, 0.2, 0.3, 0.4], [-0.1, -0.2, -0.3, -0.4]]},
        ),
        Operation(
            "residual.final",
            residual.final_mix,
            (
                _WIDE,
                _real("norm", "streams*hidden", "zero-centred gain"),
                _real("down", "rank streams*hidden", "matrix"),
                _real("up", "streams*hidden rank", "matrix"),
                _STREAMS,
                _EPS,
            ),
            (_real("read", "hidden", "input of the output head"),),
            _MIX_EXAMPLE,
        ),
        Operation(
            "residual.apply",
            residual.apply,
            (_WIDE, _real("block", "hidden", "block output"), _real("injection", "streams", "weights")),
            (_WIDE,),
            {"wide": [1.0, 2.0, 3.0, 4.0], "block": [10.0, 20.0], "injection": [0.5, 2.0]},
        ),
        Operation(
            "conv.causal",
            conv.causal,
            (
                _real("x", "token channel", "inputs"),
                _real("weight", "channel kernel", "the last tap for the current token"),
                _CONV_STATE,
                _whole("dilation", "", "tokens between two taps"),
                Argument("activation", "text", (), "none or silu"),
            ),
            (_real("y", "token channel", "outputs"), _CONV_STATE),
            {"x": [[1.0], [0.0], [0.0], [0.0]], "weight": [[1.0, 10.0, 100.0, 1000.0]], "dilation": 3},
        ),
        Operation(
            "rope.apply",
            rope.apply,
            (
                _real("x", "token head dim", "heads"),
                _whole("positions", None, "[token], or [3, token] for time, height, width"),
                _ROTARY,
                _THETA,
                _SECTIONS,
            ),
            (_real("y", "token head dim", "rotated heads"),),
            {
                "x": [[[1.0, 2.0, 3.0, 4.0]]],
                "positions": [1],
                "rotary_dim": 2,
                "theta": 10000000.0,
                "sections": [1, 0, 0],
            },
        ),
        Operation(
            "gdn.step",
            gdn.step,
            (
                _real("q", "key_head key", "query"),
                _real("k", "key_head key", "key"),
                _real("v", "value_head value", "value"),
                _real("log_decay", "value_head", "natural logarithm of the decay"),
                _real("beta", "value_head", "rate of the correction"),
                _STATE,
                Argument("prepared", "flag", (), "q and k are normalised and scaled already"),
            ),
            (_real("y", "value_head value", _Y), _STATE),
            _STEP_EXAMPLE,
        ),
        Operation(
            "gdn.sequence",
            gdn.sequence,
            (
                _Q,
                _K,
                _V,
                _real("log_decay", "token value_head", "natural logarithm of the decay"),
                _real("beta", "token value_head", "rate of the correction"),
                _STATE,
                Argument("prepared", "flag", (), "q and k are normalised and scaled already"),
            ),
            (_real("y", "token value_head value", _Y), _STATE),
            {name: value if name == "state" else [value, value] for name, value in _STEP_EXAMPLE.items()},
        ),
        Operation(
            "gdn.gates",
            gdn.gates,
            (
                Argument("a", "real", None, "[..., value_head]"),
                Argument("b", "real", None, "[..., value_head]"),
                _real("a_log", "value_head", "stored logarithm"),
                _real("dt_bias", "value_head", "bias"),
            ),
            (
                Argument("log_decay", "real", None, "shaped as a"),
                Argument("beta", "real", None, "shaped as a"),
            ),
            {"a": [0.5, -1.0], "b": [0.0, 2.0], "a_log": [0.0, 1.0], "dt_bias": [0.1, 0.2]},
        ),
        Operation(
            "gdn.slots",
            state.write_slots,
            (
                _real("bank", "slot value", "state of every slot"),
                _whole("slots", "row", "slot of every row"),
                _real("rows", "row value", "new states"),
                _whole("filler", "", "mark of a padding row, outside the slots"),
            ),
            (_real("bank", "slot value", "state of every slot afterwards"),),
            {"bank": [[0.0], [1.0], [2.0]], "slots": [0, 2, -1], "rows": [[10.0], [12.0], [99.0]]},
        ),
        Operation(
            "qsa.groups",
            qsa.groups,
            (
                _whole("positions", "slot", "logical position, null for padding", nullable=True),
                _RATIO,
                Argument("contiguous", "flag", (), "refuse a hole"),
            ),
            (
                _whole("groups", "group ratio", "slots of the complete groups"),
                _whole("starts", "group", "logical position of each group's first token"),
                _whole("tail", "token", "slots after the last complete group"),
            ),
            {"positions": [None, None, None, None, 0, 1, 2, 3, 4, 5, 6, 7, 8], "ratio": 4},
        ),
        Operation(
            "qsa.pool",
            qsa.pool,
            (
                _real("keys", "slot dim", "raw index keys"),
                _whole("groups", "group ratio", "slots"),
                _whole("starts", None, "[group], or [3, group]: rotary positions"),
                _real("weight", "dim", "zero-centred gain"),
                _ROTARY,
                _THETA,
                _SECTIONS,
                _EPS,
            ),
            (_real("keys", "group dim", "group keys"),),
            {
                "keys": [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.0]],
                "groups": [[0, 1], [2, 3]],
                "starts": [0, 2],
                "weight": [0.0, 0.0],
                "rotary_dim": 2,
                "sections": [1, 0, 0],
            },
        ),
        Operation(
            "qsa.scores",
            qsa.scores,
            (_real("q", "head dim", "index query"), _real("keys", "group dim", "group keys")),
            (_real("scores", "group", "sum over heads of ReLU"),),
            {"q": [[1.0, 0.0], [-1.0, 0.0]], "keys": [[2.0, 1.0], [-3.0, 1.0]]},
        ),
        Operation(
            "qsa.select",
            qsa.select,
            (
                _real("scores", "group", "one for each complete group; infinities are ordered"),
                _whole("budget_groups", "", "groups at most"),
                _whole("visible", "", "count of visible tokens"),
                _RATIO,
                _ANCHOR,
            ),
            (
                _whole("groups", "group", "ordinals from the anchor, ascending"),
                _whole("tokens", "token", "absolute positions, in the order of attention"),
            ),
            {
                "scores": [0.5, 2.0, 2.0, 1.0],
                "budget_groups": 2,
                "visible": 18,
                "ratio": 4,
                "first_position": 0,
            },
        ),
        Operation(
            "qsa.attend",
            qsa.attend,
            (
                _real("q", "token head dim", "queries"),
                _real("k", "row key_head dim", "keys from the anchor on"),
                _real("v", "row key_head value", "values from the anchor on"),
                _whole("tokens", None, "absolute positions: one list, or one for each query"),
                _ANCHOR,
                _real("scale", "", "factor of the products; 1/sqrt(dim) when absent"),
            ),
            (_real("y", "token head value", _Y),),
            {**_ATTEND_EXAMPLE, "tokens": [0, 2]},
        ),
        Operation(
            "qsa.dense",
            qsa.dense,
            (
                _real("q", "token head dim", "queries, the last of the rows"),
                _real("k", "row key_head dim", "keys"),
                _real("v", "row key_head value", "values"),
                _real("scale", "", "factor of the products; 1/sqrt(dim) when absent"),
                _whole("ceiling", "", "most visible keys"),
            ),
            (_real("y", "token head value", _Y),),
            _ATTEND_EXAMPLE,
        ),
        Operation(
            "router.topk",
            router.topk,
            (_real("logits", "expert", "router logits"), _whole("k", "", "experts chosen")),
            (_whole("ids", "rank", "most probable first"), _real("weights", "rank", "sum to 1")),
            {"logits": [0.0, 2.0, 1.0, 2.0], "k": 2},
        ),
        Operation(
            "moe.forward",
            moe.forward,
            (
                _real("x", "hidden", "block input"),
                _real("router", "expert hidden", "matrix"),
                _real("gate_up", "expert 2*width hidden", "gate rows first"),
                _real("down", "expert hidden width", "matrices"),
                _real("shared_gate", "shared_width hidden", "matrix"),
                _real("shared_up", "shared_width hidden", "matrix"),
                _real("shared_down", "hidden shared_width", "matrix"),
                _real("shared_scale", "hidden", "row of the shared expert's gate"),
                _whole("k", "", "experts for this token"),
            ),
            (
                _real("y", "hidden", "routed + shared"),
                _real("routed", "hidden", "weighted sum of the chosen experts"),
                _real("shared", "hidden", "shared expert times its gate"),
                _real("logits", "expert", "router logits"),
                _whole("ids", "rank", "chosen experts"),
                _real("weights", "rank", "their weights"),
            ),
            {
                "x": [1.0, -0.5],
                "router": [[1.0, 0.0], [0.0, 1.0], [0.5, -0.5]],
                "gate_up": [[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [1.0, 1.0]], [[-1.0, 0.5], [2.0, 0.0]]],
                "down": [[[1.0], [2.0]], [[0.5], [0.5]], [[-1.0], [1.0]]],
                "shared_gate": [[1.0, 1.0]],
                "shared_up": [[0.5, 0.0]],
                "shared_down": [[1.0], [-1.0]],
                "shared_scale": [0.2, 0.4],
                "k": 2,
            },
        ),
        Operation(
            "moe.expert",
            moe.expert,
            (
                _real("x", "hidden", "input"),
                _real("gate", "width hidden", "matrix"),
                _real("up", "width hidden", "matrix"),
                _real("down", "hidden width", "matrix"),
            ),
            (_real("y", "hidden", _Y),),
            {"x": [1.0, 2.0], "gate": [[1.0, 0.0]], "up": [[0.0, 1.0]], "down": [[1.0], [-1.0]]},
        ),
        Operation(
            "moe.combine",
            moe.combine,
            (
                _whole("ids", "rank", "chosen experts"),
                _real("weights", "rank", "in the order of ids"),
                _real("outputs", "expert hidden", "indexed by expert id"),
            ),
            (_real("y", "hidden", _Y),),
            {"ids": [3, 1], "weights": [0.75, 0.25], "outputs": [[0.0], [1.0], [2.0], [3.0]]},
        ),
        Operation(
            "ple.multipliers",
            ple.multipliers,
            (
                _whole("seed", "", "of the config"),
                _whole("vocab_size", "", "physical rows of the vocabulary, not the tokenizer's ids"),
                _whole("ngram_size", "", "largest n-gram"),
                _whole("ordinal", "", "which per-layer embedding, from 0"),
            ),
            (_MULTIPLIERS,),
            {"seed": 1234, "vocab_size": 248320, "ngram_size": 3, "ordinal": 0},
        ),
        Operation(
            "ple.primes",
            ple.primes,
            (
                _whole("base", "", "lower bound of the primes"),
                _whole("count", "", "heads"),
                _whole("ordinal", "", "which per-layer embedding, from 0"),
                _whole("divisor", "", "the table is padded to a multiple of it"),
            ),
            (
                _whole("primes", "head", "rows of each head"),
                _whole("offsets", "head", "first row of each head"),
                _whole("rows", "", "sum of the primes"),
                _whole("padded_rows", "", "rows of the table"),
            ),
            {"base": 20000000, "count": 16, "ordinal": 0, "divisor": 128},
        ),
        Operation(
            "ple.rows",
            ple.rows,
            (
                _whole("tokens", "token", "oldest first"),
                _MULTIPLIERS,
                _whole("primes", "head", "pairs first, then triples"),
                _whole("offsets", "head", "first row of each head"),
                _whole("heads_per_ngram", "", "heads of one order"),
                _whole("eos", "", "end-of-sequence token"),
                _whole("history", "token", "tokens before the first, oldest first"),
                _whole("vocab_size", "", "tokens are below it", nullable=True),
            ),
            (_whole("rows", "token head", "table rows"),),
            _TOY,
        ),
        Operation(
            "ple.history",
            ple.history_after,
            (
                _whole("tokens", "token", "committed tokens, oldest first"),
                _whole("eos", "", "end-of-sequence token"),
                _whole("size", "", "longest history"),
                _whole("history", "token", "before the tokens, oldest first"),
            ),
            (_whole("history", "token", "what the next token sees, oldest first"),),
            {"tokens": [5, 8, 3], "eos": 2, "size": 2},
        ),
        Operation(
            "ple.wrapped",
            ple.wrapped,
            (
                _whole("window", "lag", "current token, then its predecessors"),
                _MULTIPLIERS,
                _whole("prime", "", "of the head"),
            ),
            tuple(_whole(name, "", "control") for name in ple.Wrapped._fields),
            {"window": [248076, 2000], "multipliers": [23703573157769, 20109073645365], "prime": 20000003},
        ),
        Operation(
            "ple.inject",
            ple.inject,
            (
                _WIDE,
                _real("embedding", "embedding", "the token's rows, one after another"),
                _real("key", "streams*hidden embedding", "matrix"),
                _real("value", "hidden embedding", "matrix"),
                _real("norm_key", "streams*hidden", "zero-centred gain"),
                _real("norm_query", "streams*hidden", "zero-centred gain"),
                _real("norm_conv", "streams*hidden", "zero-centred gain"),
                _real("conv", "streams*hidden kernel", "the last tap for the current token"),
                _CONV_STATE,
                _STREAMS,
                _whole("dilation", "", "tokens between two taps"),
                _EPS,
            ),
            (
                _WIDE,
                _real("added", "streams*hidden", "gated + convolved"),
                _real("gated", "streams*hidden", "gate times value"),
                _real("convolved", "streams*hidden", "after SiLU"),
                _real("gate", "streams", "sigmoid of the signed root"),
                _CONV_STATE,
            ),
            {
                "wide": [3.0, 4.0, -3.0, 4.0],
                "embedding": [1.0, -1.0],
                "key": [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [1.0, 1.0]],
                "value": [[2.0, 1.0], [0.0, 1.0]],
                "norm_key": [0.0, 0.0, 0.0, 0.0],
                "norm_query": [0.0, 0.0, 0.0, 0.0],
                "norm_conv": [0.0, 0.0, 0.0, 0.0],
                "conv": [[0.0, 0.0, 0.0, 1.0]] * 4,
                "streams": 2,
            },
        ),
        Operation(
            "logits.select",
            logits.select,
            _CHOICE,
            (_whole("id", "", "chosen token"),),
            {"logits": [0.0, 1.0, 0.5, 9.0], "valid_ids": 3, "policy": "greedy"},
        ),
        Operation(
            "logits.candidates",
            logits.select,
            _CHOICE,
            (
                _whole("candidates", "candidate", "most probable first, after the policy"),
                _real("probabilities", "candidate", "they sum to 1"),
            ),
            {"logits": [0.0, 1.0, 0.5, 9.0], "valid_ids": 3, "policy": "top-k", "k": 2},
        ),
        Operation(
            "logits.mask",
            logits.mask,
            (_whole("physical_rows", "", "output rows"), _whole("valid_ids", "", "ids that name tokens")),
            (_whole("mask_words", "word", "32-bit words"),),
            {"physical_rows": 384, "valid_ids": 353},
        ),
        Operation(
            "weights.values",
            rule_values,
            (
                Argument("name", "text", (), "tensor name"),
                _whole("role", "", "number instead of a name"),
                _whole("first", "", "flat row-major index"),
                _whole("count", "", "values"),
                Argument("bf16", "flag", (), "rounded as stored"),
            ),
            (_real("values", "value", "by the counter rule"),),
            {"name": "model.language_model.embed_tokens.weight", "first": 0, "count": 4},
        ),
        Operation(
            "model.run",
            rule_model,
            (
                Argument("config", "object", None, "config.json of a small geometry"),
                _whole("tokens", "token", "ids below the physical rows"),
                _whole("taps", "token", "indices of the tokens whose stages are returned"),
                _ANCHOR,
            ),
            (
                _real("logits", "token row", "of every token"),
                Argument("stages", "object", None, "tapped arrays"),
            ),
            {"config": FIXTURE_CONFIG, "tokens": [2, 5, 7]},
        ),
    ]
)
"""Operation name -> operation, in the order of the graph."""
