"""Per-layer embedding: which table rows a token history names, and how they enter the wide residual.

Two owners carry the past: the token history (two predecessors, cut at the end-of-sequence token) and the dilated
convolution's values. Both are functions of the position, never of a chunk.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from assay.oracles.arithmetic import dot, linear, sigmoid
from assay.oracles.checks import Array, integer, integers, real, refuse, working
from assay.oracles.clauses import DOMAIN, PRODUCT, SHAPE
from assay.oracles.conv import causal
from assay.oracles.norms import rms

MASK_64: Final = 2**64 - 1
LARGEST_PRODUCT: Final = 2**63 - 1
GOLDEN_GAMMA: Final = 0x9E3779B97F4A7C15
ORDINAL_STRIDE: Final = 10007
SMALLEST_GATE: Final = 1e-6
LARGEST_BASE: Final = 2**32
LARGEST_HEADS: Final = 1024
LARGEST_NGRAM: Final = 64


class Primes(NamedTuple):
    """Primes and offsets of every head, the rows they span and the rows of the padded table."""

    primes: list[int]
    offsets: list[int]
    rows: int
    padded_rows: int


class Wrapped(NamedTuple):
    """The last order's hash of one window, read in four ways, and the remainder of each by the prime."""

    exact: int
    unsigned: int
    signed: int
    float64: int
    exact_row: int
    unsigned_row: int
    signed_row: int
    float64_row: int


class Injected(NamedTuple):
    """What the module adds to the wide residual, with its parts.

    Attributes:
        wide: [streams * hidden], the residual after it.
        added: [streams * hidden] = gated + convolved.
        gated: [streams * hidden], gate times value for each stream.
        convolved: [streams * hidden].
        gate: [streams].
        state: [streams * hidden, dilation * (kernel - 1)], oldest first.
        key: [streams * hidden], the projected key before its norm; `norm_key` after it.
        value: [hidden], the projected value.
        norm_query: [streams * hidden], the normed residual.
        norm_conv: [streams * hidden], what the convolution reads.
    """

    wide: Array
    added: Array
    gated: Array
    convolved: Array
    gate: Array
    state: Array
    key: Array
    norm_key: Array
    value: Array
    norm_query: Array
    norm_conv: Array


def split_mix(value: int) -> int:
    """Returns one SplitMix64 step: adds the golden gamma, then mixes; all modulo 2^64."""
    value = (value + GOLDEN_GAMMA) & MASK_64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK_64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK_64
    return value ^ (value >> 31)


def multipliers(
    seed: int = 1234, vocab_size: int = 248_320, ngram_size: int = 3, ordinal: int = 0
) -> list[int]:
    """Returns the hash multipliers, one for each lag, index 0 for the current token.

    Args:
        seed: of the config, default 1234.
        vocab_size: rows of the physical vocabulary (248,320), not the tokenizer's ids (248,077).
        ngram_size: largest n-gram, which is the number of multipliers.
        ordinal: which layer with per-layer embedding this is, from 0.

    Returns:
        Odd integers below (2^63 - 1) // vocab_size.

    Source: facts on the row store, section 6.
    """
    integer("seed", seed, 0)
    integer("ngram_size", ngram_size, 2, LARGEST_NGRAM)
    integer("ordinal", ordinal, 0)
    bound = max(1, LARGEST_PRODUCT // integer("vocab_size", vocab_size, 1, LARGEST_PRODUCT) // 2)
    base = seed + ORDINAL_STRIDE * ordinal
    return [
        2 * (split_mix((base + GOLDEN_GAMMA * (lag + 1)) & MASK_64) % bound) + 1 for lag in range(ngram_size)
    ]


def primes(base: int = 20_000_000, count: int = 16, ordinal: int = 0, divisor: int = 128) -> Primes:
    """Returns the prime of every head: head k of this layer gets the (ordinal * count + k + 1)-th prime from `base` on.

    Args:
        base: `ngram_vocab_size_base`.
        count: heads of the layer.
        ordinal: which layer with per-layer embedding, from 0.
        divisor: the table is padded to a multiple of it.

    Returns:
        `primes`, `offsets` (sum of the primes before), `rows` (their sum) and `padded_rows`.

    Domain: base at most 2^32 and at most 1,024 primes; trial division takes sqrt(base) steps for each candidate.
    Source: facts on the row store, section 6.
    """
    heads = integer("count", count, 1, LARGEST_HEADS)
    skip = integer("ordinal", ordinal, 0, LARGEST_HEADS // heads) * heads
    integer("divisor", divisor, 1)
    found: list[int] = []
    candidate = integer("base", base, 1, LARGEST_BASE)
    while len(found) < skip + heads:
        if _is_prime(candidate):
            found.append(candidate)
        candidate += 1
    own = found[skip:]
    offsets = [sum(own[:head]) for head in range(heads)]
    rows = sum(own)
    return Primes(own, offsets, rows, -(-rows // divisor) * divisor)


def rows(
    tokens: Sequence[int],
    multipliers: Sequence[int],
    primes: Sequence[int],
    offsets: Sequence[int],
    heads_per_ngram: int,
    eos: int,
    history: Sequence[int] = (),
    vocab_size: int | None = None,
) -> list[list[int]]:
    """Returns the table rows of every token, exactly.

    Args:
        tokens: the tokens to look up, oldest first.
        multipliers: one for each lag; index 0 belongs to the current token, 1 to its predecessor.
        primes: one for each head; the first `heads_per_ngram` heads hash pairs, the next triples, and so on.
        offsets: one for each head.
        heads_per_ngram: heads of one order.
        eos: end-of-sequence token; stands in for a predecessor that is missing or on the far side of an `eos`.
        history: tokens before the first one, oldest first.
        vocab_size: tokens are below it; bounded by the products alone unless given.

    Returns:
        [token][head] row ids.

    Raises:
        ContractError: oracle.ple.product, when a product exceeds 2^63 - 1; oracle.argument.* otherwise.

    Domain: tokens 0 .. with every product at most 2^63 - 1.
    Order: exact integers; XOR of token * multiplier over the lags, remainder by the prime, plus the offset.
    Source: facts on the row store, section 6; AFN-012; bug reports A6 and A7.
    """
    factors = integers("multipliers", multipliers, 1, LARGEST_PRODUCT)
    moduli = integers("primes", primes, 1)
    starts = integers("offsets", offsets, 0)
    heads = integer("heads_per_ngram", heads_per_ngram, 1)
    end = integer("eos", eos, 0)
    if len(factors) < 2:
        raise refuse(SHAPE, "multipliers", expected="at least 2, one for each lag", got=len(factors))
    for name, values in (("primes", moduli), ("offsets", starts)):
        if len(values) != heads * (len(factors) - 1):
            raise refuse(SHAPE, name, expected=f"{heads * (len(factors) - 1)} heads", got=len(values))
    last = None if vocab_size is None else integer("vocab_size", vocab_size, 1) - 1
    stream = [*integers("history", history, 0, last), *integers("tokens", tokens, 0, last)]
    found = []
    for place in range(len(history), len(stream)):
        window = predecessors(stream, place, len(factors), end)
        mixed = _product(window[0], factors[0])
        line: list[int] = []
        for lag in range(1, len(factors)):
            mixed ^= _product(window[lag], factors[lag])
            own = range((lag - 1) * heads, lag * heads)
            line += [mixed % moduli[head] + starts[head] for head in own]
        found.append(line)
    return found


def predecessors(stream: Sequence[int], place: int, size: int, eos: int) -> list[int]:
    """Returns the token at `place` and its predecessors by lag, `eos` once the sequence has begun anew.

    An `eos` token still sees its own predecessors; the token after it sees none.
    """
    window = [stream[place]]
    for lag in range(1, size):
        before = place - lag
        cut = before < 0 or eos in stream[before:place]
        window.append(eos if cut else stream[before])
    return window


def history_after(tokens: Sequence[int], eos: int, size: int = 2, history: Sequence[int] = ()) -> list[int]:
    """Returns the history that the next token sees: at most `size` tokens, oldest first, none from before an `eos`.

    Args:
        tokens: committed tokens, oldest first.
        eos: end-of-sequence token, after which the count restarts at 0.
        size: longest history, n-gram size less 1.
        history: the history before `tokens`.

    Returns:
        0 .. size tokens.

    Source: facts 2.7; bug report A7 (a rewound history is that of the shorter run).
    """
    line = [*integers("history", history, 0), *integers("tokens", tokens, 0)]
    integer("size", size, 1)
    end = integer("eos", eos, 0)
    last = max((place for place, token in enumerate(line) if token == end), default=-1)
    return line[last + 1 :][-size:]


def wrapped(window: Sequence[int], multipliers: Sequence[int], prime: int) -> Wrapped:
    """Returns what wrapping and float64 arithmetic make of one hash, beside the exact one: a control, not the rule.

    Args:
        window: the current token, then its predecessors by lag.
        multipliers: one for each lag.
        prime: of the head, at least 1.

    Returns:
        The XOR of the products as exact integers, modulo 2^64 unsigned, as signed 64-bit, and with each product
        rounded to float64 first; then the remainder of each, never negative, as torch and Python give it.

    Source: bug reports, the paragraph on the production derivation.
    """
    tokens = integers("window", window, 0, MASK_64)
    factors = integers("multipliers", multipliers, 0, MASK_64)
    modulus = integer("prime", prime, 1)
    if len(tokens) != len(factors) or not tokens:
        raise refuse(SHAPE, "window", expected=f"{len(factors)} tokens", got=len(tokens))
    exact = unsigned = rounded = 0
    for token, factor in zip(tokens, factors, strict=True):
        exact ^= token * factor
        unsigned ^= (token * factor) & MASK_64
        rounded ^= int(float(token) * float(factor))
    signed = unsigned - 2**64 if unsigned >= 2**63 else unsigned
    return Wrapped(
        exact,
        unsigned,
        signed,
        rounded,
        exact % modulus,
        unsigned % modulus,
        signed % modulus,
        rounded % modulus,
    )


def inject(
    wide: Array,
    embedding: Array,
    key: Array,
    value: Array,
    norm_key: Array,
    norm_query: Array,
    norm_conv: Array,
    conv: Array,
    state: Array | None = None,
    streams: int = 4,
    dilation: int = 3,
    eps: float = 1e-6,
    dtype: DTypeLike = np.float32,
) -> Injected:
    """Returns the wide residual of one token with the embedding rows injected.

    Args:
        wide: [streams * hidden].
        embedding: [heads * row width], the token's rows one after another.
        key: [streams * hidden, embedding].
        value: [hidden, embedding].
        norm_key: [streams * hidden], zero-centred gain, as the two others.
        norm_query: [streams * hidden].
        norm_conv: [streams * hidden].
        conv: [streams * hidden, kernel], the last tap for the current token.
        state: [streams * hidden, dilation * (kernel - 1)], oldest first; zeros when absent.
        streams: number of streams.
        dilation: of the convolution.
        eps: of the norms.
        dtype: float32 or float64.

    Returns:
        `wide`, `added`, `gated`, `convolved`, `gate` and `state`.

    Order: projections in float64 rounded once; s = dot(query, key) / sqrt(hidden) for each stream; s becomes
        sign(s) * sqrt(max(|s|, 1e-6)), an exact 0 stays 0; gated = sigmoid(s) * value; the convolution runs over
        the norm of `gated`, its state holds those normed values; SiLU last.
    Source: facts 2.7; transformers 5.24.0 `Qwen4ExpTextPLELayer`.
    """
    kind = working(dtype)
    rows_in = real("embedding", embedding, kind, (None,))
    values = real("wide", wide, kind, (None,))
    count = integer("streams", streams, 1)
    if values.size == 0 or values.size % count:
        raise refuse(DOMAIN, "wide", expected=f"a multiple of {count} values", got=values.size)
    hidden = values.size // count
    taps = real("conv", conv, kind, (values.size, None))
    keys = linear(real("key", key, kind, (values.size, rows_in.size)), rows_in)
    row = linear(real("value", value, kind, (hidden, rows_in.size)), rows_in)
    k = rms(keys, real("norm_key", norm_key, kind, keys.shape), eps, "zero-centred", count, kind)
    q = rms(values, real("norm_query", norm_query, kind, keys.shape), eps, "zero-centred", count, kind)
    raw = dot(k.reshape(count, hidden), q.reshape(count, hidden)) / kind.type(math.sqrt(hidden))
    gate = sigmoid(np.sign(raw) * np.sqrt(np.maximum(np.abs(raw), kind.type(SMALLEST_GATE))))
    gated = np.asarray(gate[:, None] * row[None, :], dtype=kind).reshape(-1)
    normal = rms(gated, real("norm_conv", norm_conv, kind, keys.shape), eps, "zero-centred", count, kind)
    convolved = causal(normal[None, :], taps, state, dilation, "silu", kind)
    added = gated + convolved.y[0]
    return Injected(
        values + added, added, gated, convolved.y[0], gate, convolved.state, keys, k, row, q, normal
    )


def _product(token: int, factor: int) -> int:
    product = token * factor
    if product > LARGEST_PRODUCT:
        where = f"tokens (token {token}, multiplier {factor})"
        raise refuse(PRODUCT, where, expected=f"a product of at most {LARGEST_PRODUCT}", got=product)
    return product


def _is_prime(value: int) -> bool:
    if value < 4:
        return value > 1
    return value % 2 == 1 and all(value % divisor for divisor in range(3, math.isqrt(value) + 1, 2))
