"""Per-layer embedding: exact row ids from the token history, and how rows enter the wide residual."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, count, islice
from typing import Final, Protocol

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from assay.impl.model import conv, norms
from assay.impl.model.clauses import TOKENS, refuse
from assay.impl.model.gdn import Part
from assay.impl.model.geometry import Geometry
from assay.impl.model.numerics import Numerics

MASK: Final = (1 << 64) - 1
GAMMA: Final = 0x9E3779B97F4A7C15
LARGEST: Final = (1 << 63) - 1
SMALLEST_GATE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Hash:
    """The hash of one layer: a multiplier for each lag (0 is the current token), a prime and an offset for each head."""

    multipliers: tuple[int, ...]
    primes: tuple[int, ...]
    offsets: tuple[int, ...]
    padded_rows: int


class Asked(Protocol):
    """Rows that were asked for and may not have come."""

    def rows(self) -> mx.array:
        """Waits for them and returns float32 [row, width], in the order in which they were asked for."""

    def close(self) -> None:
        """Gives up what has not come; called once at the end of every chunk, whether it was read or not."""


class Rows(Protocol):
    """A table of embedding rows, wherever it lies."""

    def ask(self, ids: NDArray[np.int64]) -> Asked:
        """Begins to fetch rows, each of which is inside the table or is refused at once."""


@dataclass(frozen=True, slots=True)
class PleWeights:
    """Weights of one layer; projections [input, output] in their stored type, gains and taps float32.

    Attributes:
        taps: [kernel, streams * hidden].
    """

    key: mx.array
    value: mx.array
    norm_key: mx.array
    norm_query: mx.array
    norm_conv: mx.array
    taps: mx.array
    hash: Hash
    rows: Rows


@cache
def derive_hash(geometry: Geometry, ordinal: int) -> Hash:
    """Returns the hash of the PLE layer with this ordinal; the physical rows derive it, never the tokenizer's ids.

    Source: facts on the row store, section 6.
    """
    half = max(1, LARGEST // geometry.physical_rows // 2)
    base = geometry.seed + 10007 * ordinal
    multipliers = tuple(
        2 * (_mixed(base + GAMMA * (lag + 1)) % half) + 1 for lag in range(geometry.ngram_size)
    )
    heads = geometry.ple_heads
    every = _primes(geometry.ngram_base, max(ordinal + 1, len(geometry.ple_layers)) * heads)
    primes = every[ordinal * heads : (ordinal + 1) * heads]
    offsets = (0, *accumulate(primes))
    padded = -(-offsets[-1] // geometry.ngram_divisor) * geometry.ngram_divisor
    return Hash(multipliers, primes, offsets[:-1], padded)


def row_ids(
    tokens: Sequence[int],
    history: Sequence[int],
    found: Hash,
    heads_per_ngram: int,
    eos: int,
    *,
    physical_rows: int,
) -> NDArray[np.int64]:
    """Returns the table rows of every token, int64 [token, head], exact.

    Args:
        tokens: a chunk, oldest first.
        history: what the sequence carries: the tokens before the chunk since the last end of text, at most n-gram
            size - 1 of them.
        found: the hash; tokens below the physical rows keep every product below 2^63.
        heads_per_ngram: heads of one order; pairs first, then triples.
        eos: stands in for a predecessor that is missing or on the far side of an end of text.
        physical_rows: every id is below it; beyond, a product could wrap and name another row.

    Raises:
        ContractError: model.tokens, for an id of the chunk or of the history outside.

    Source: facts 2.7; AFN-012; bug reports A6 and A7.
    """
    for name, ids in (("tokens", tokens), ("history", history)):
        for place, id_ in enumerate(ids):
            if not 0 <= id_ < physical_rows:
                expected = f"an id in 0 .. {physical_rows - 1}"
                raise refuse(TOKENS, f"ple.{name}[{place}]", expected=expected, got=id_)
    lags = len(found.multipliers)
    stream = np.array([*history, *tokens], np.int64)
    places = np.arange(stream.size)
    ends = np.where(stream == eos, places, -1)
    last_end = np.concatenate([[-1], np.maximum.accumulate(ends)[:-1]])  # of the tokens before each
    mixed = stream * found.multipliers[0]
    lines = []
    for lag in range(1, lags):
        before = places - lag
        is_seen = (before >= 0) & (before > last_end)
        earlier = np.where(is_seen, stream[np.maximum(before, 0)], eos)
        mixed = mixed ^ (earlier * found.multipliers[lag])
        own = slice((lag - 1) * heads_per_ngram, lag * heads_per_ngram)
        lines.append(mixed[:, None] % np.array(found.primes[own]) + np.array(found.offsets[own]))
    return np.concatenate(lines, axis=1)[len(history) :]


def history_after(tokens: Sequence[int], history: Sequence[int], eos: int, size: int) -> tuple[int, ...]:
    """Returns what the next token sees: at most `size` tokens since the last end of text, oldest first."""
    line = [*history, *tokens]
    if eos in line:
        line = line[len(line) - line[::-1].index(eos) :]
    return tuple(line[-size:])


def forward(
    wide: mx.array,
    embedding: mx.array,
    weights: PleWeights,
    pasts: Sequence[mx.array],
    lengths: Sequence[int],
    geometry: Geometry,
    numerics: Numerics,
    part: Part,
) -> tuple[mx.array, list[mx.array]]:
    """Returns what is added to the wide residual, and the convolution's past of every sequence.

    Args:
        wide: float32 [row, streams * hidden].
        embedding: float32 [row, heads * width], the table rows of each token one after another.
        weights: of this layer.
        pasts: float32 [span, streams * hidden] of each sequence.
        lengths: rows of each sequence.
        geometry: dimensions.
        numerics: how products are made.
        part: told of the arrays between.

    Source: facts 2.7; transformers 5.24.0 `Qwen4ExpTextPLELayer`.
    """
    g, tokens = geometry, wide.shape[0]
    raw = numerics.linear(embedding, weights.key)
    key = norms.grouped(raw, weights.norm_key, g.streams, g.eps)
    value = numerics.linear(embedding, weights.value)
    query = norms.grouped(wide, weights.norm_query, g.streams, g.eps)
    score = mx.sum(key * query, axis=-1, keepdims=True) / math.sqrt(g.hidden)
    gate = mx.sigmoid(mx.sign(score) * mx.sqrt(mx.maximum(mx.abs(score), SMALLEST_GATE)))
    gated = (gate * value[:, None, :]).reshape(tokens, g.wide)
    normed = norms.grouped(gated, weights.norm_conv, g.streams, g.eps).reshape(tokens, g.wide)
    named = (("key", raw), ("norm_key", key), ("value", value), ("norm_query", query), ("norm_conv", normed))
    for name, array in named:
        part(name, array.reshape(tokens, -1))
    outputs, states, start = [], [], 0
    for past, rows in zip(pasts, lengths, strict=True):
        y, tail = conv.causal(normed[start : start + rows], weights.taps, past, g.ngram_size, numerics)
        outputs.append(y)
        states.append(tail)
        start += rows
    return gated + (outputs[0] if len(outputs) == 1 else mx.concatenate(outputs)), states


def _mixed(value: int) -> int:
    value = (value + GAMMA) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


@cache
def _primes(base: int, wanted: int) -> tuple[int, ...]:
    """Returns the first primes from a number on: those of all layers, found once."""
    return tuple(islice((one for one in count(base) if _is_prime(one)), wanted))


def _is_prime(value: int) -> bool:
    if value < 4:
        return value > 1
    return value % 2 == 1 and all(value % divisor for divisor in range(3, math.isqrt(value) + 1, 2))
