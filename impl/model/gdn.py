"""Gated DeltaNet: projections, short convolution, the recurrence, and the gated norm."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import mlx.core as mx

from assay.impl.model import conv, norms
from assay.impl.model.geometry import Geometry
from assay.impl.model.numerics import HALVED_FROM, Numerics, l2_normalise, softplus

Part = Callable[[str, mx.array], None]
BLOCK: Final = 16
"""Tokens of a block of the chunked form, which the fast mode uses."""


@dataclass(frozen=True, slots=True)
class GdnWeights:
    """Weights of one recurrent layer; projections [input, output] in their stored type, the rest float32.

    Attributes:
        taps: [kernel, channel].
        decay: -exp(A_log) [value head].
        bias: [value head].
        gain: [value dim], the stored weight itself.
    """

    qkv: mx.array
    z: mx.array
    a: mx.array
    b: mx.array
    out: mx.array
    taps: mx.array
    decay: mx.array
    bias: mx.array
    gain: mx.array


@dataclass(frozen=True, slots=True)
class Recurrent:
    """What a recurrent layer carries for one sequence, float32.

    Attributes:
        conv: [kernel - 1, channel], oldest first, before the activation.
        matrix: [value head, value, key], as the recurrence of MLX has it.
    """

    conv: mx.array
    matrix: mx.array


def fresh(geometry: Geometry) -> Recurrent:
    """Returns the state before the first token."""
    shape = (geometry.value_heads, geometry.value_dim, geometry.key_dim)
    return Recurrent(mx.zeros((geometry.kernel - 1, geometry.channels)), mx.zeros(shape))


def forward(
    x: mx.array,
    weights: GdnWeights,
    pasts: Sequence[Recurrent],
    lengths: Sequence[int],
    geometry: Geometry,
    numerics: Numerics,
    part: Part,
) -> tuple[mx.array, list[Recurrent]]:
    """Returns the block output of all rows, and the state of every sequence after its rows.

    Args:
        x: float32 [row, hidden]: the rows of one sequence after those of another.
        weights: of this layer.
        pasts: state of each sequence before its rows.
        lengths: rows of each sequence.
        geometry: dimensions.
        numerics: how products are made.
        part: told of the arrays between.

    Order: in each step the matrix decays, predicts, is corrected and is read; to re-associate is another model.
    Source: facts 2.3; transformers 5.24.0 `Qwen4ExpTextGatedDeltaNet`; bug reports A13, A14.
    """
    g = geometry
    qkv, a, b, z = numerics.halves(partial(_projected, weights, numerics), x)
    for name, array in (("qkv", qkv), ("a", a), ("b", b), ("z", z)):
        part(name, array)
    logs = weights.decay * softplus(a + weights.bias)
    rates = mx.sigmoid(b)
    outputs, states, start = [], [], 0
    for past, rows in zip(pasts, lengths, strict=True):
        stop = start + rows
        mixed, tail = conv.causal(qkv[start:stop], weights.taps, past.conv, 1, numerics)
        y, matrix = _recur(mixed, logs[start:stop], rates[start:stop], past.matrix, g, numerics)
        outputs.append(y)
        states.append(Recurrent(tail, matrix))
        start = stop
    y = outputs[0] if len(outputs) == 1 else mx.concatenate(outputs)
    flat, out = numerics.halves(partial(_finished, weights, g, numerics), y, z)
    part("gated_norm", flat)
    return out, states


def _projected(weights: GdnWeights, numerics: Numerics, x: mx.array) -> tuple[mx.array, ...]:
    return tuple(numerics.linear(x, one) for one in (weights.qkv, weights.a, weights.b, weights.z))


def _finished(
    weights: GdnWeights, g: Geometry, numerics: Numerics, y: mx.array, z: mx.array
) -> tuple[mx.array, ...]:
    """Returns the gated norm of all heads [row, head * value], and the block output."""
    gated = norms.gated(y, weights.gain, z.reshape(y.shape), g.eps, g.gate, numerics)
    flat = gated.reshape(y.shape[0], -1)
    return flat, numerics.linear(flat, weights.out)


def chunked(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    logs: mx.array,
    rates: mx.array,
    matrix: mx.array,
    numerics: Numerics,
) -> tuple[mx.array, mx.array]:
    """Returns what the recurrence gives, by products over blocks of tokens: another order of the same sums.

    Inside a block the corrections solve a triangular system; only the matrix goes from block to block. A last block
    that is not full is filled with tokens of rate 0 and decay 1, which change nothing (bug report A13).

    Args:
        q: float32 [token, key head, key], normalised and scaled.
        k: float32 [token, key head, key], normalised.
        v: float32 [token, value head, value].
        logs: float32 [token, value head], logarithm of the decay.
        rates: float32 [token, value head].
        matrix: float32 [value head, value, key] before the tokens.
        numerics: how exponentials are made.

    Returns:
        float32 [token, value head, value], and the matrix after the tokens.
    """
    tokens, heads = v.shape[:2]
    blocks = -(-tokens // BLOCK)

    def split(x: mx.array) -> mx.array:
        """Returns heads first: [head, block, token, ...]."""
        filled = mx.pad(x, [(0, blocks * BLOCK - tokens)] + [(0, 0)] * (x.ndim - 1))
        parts = filled.reshape(blocks, BLOCK, *x.shape[1:])
        return parts.transpose(2, 0, 1, *range(3, parts.ndim))

    repeat = heads // k.shape[1]
    queries, keys = (mx.repeat(split(one), repeat, axis=0) for one in (q, k))
    y, state = numerics.halves(
        partial(_blocks, numerics), queries, keys, split(v), split(rates), split(logs), matrix.swapaxes(-1, -2),
        is_worth=tokens >= HALVED_FROM,
    )  # fmt: skip
    y = y.transpose(1, 2, 0, 3).reshape(blocks * BLOCK, heads, -1)[:tokens]
    return y, state.swapaxes(-1, -2)


def _blocks(
    numerics: Numerics,
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    rates: mx.array,
    logs: mx.array,
    state: mx.array,
) -> tuple[mx.array, ...]:
    """Returns outputs [head, block, token, value] and the matrices [head, key, value] after the last block."""
    rate, total = rates[..., None], mx.cumsum(logs, axis=-1)
    places = mx.arange(BLOCK)
    is_seen = places[:, None] >= places[None, :]
    between = numerics.exp(mx.where(is_seen, total[..., :, None] - total[..., None, :], -math.inf))
    system = mx.where(places[:, None] > places[None, :], (keys @ keys.swapaxes(-1, -2)) * between * rate, 0.0)
    elsewhere = None if mx.default_device() == mx.Device(mx.cpu) else mx.cpu  # MLX inverts on the CPU only
    solved = mx.linalg.tri_inv(mx.eye(BLOCK) + system, stream=elsewhere)
    from_start, to_end = mx.exp(total)[..., None], mx.exp(total[..., -1:] - total)[..., None]
    new, seen = solved @ (values * rate), solved @ (keys * rate * from_start)
    inside = mx.where(is_seen, (queries @ keys.swapaxes(-1, -2)) * between, 0.0)
    asked, kept = queries * from_start, (keys * to_end).swapaxes(-1, -2)
    decay = mx.exp(total[..., -1:])[..., None]
    outputs = []
    for block in range(keys.shape[1]):
        change = new[:, block] - seen[:, block] @ state
        outputs.append(asked[:, block] @ state + inside[:, block] @ change)
        state = state * decay[:, block] + kept[:, block] @ change
    return mx.stack(outputs, axis=1), state


def _recur(
    mixed: mx.array, logs: mx.array, rates: mx.array, matrix: mx.array, g: Geometry, numerics: Numerics
) -> tuple[mx.array, mx.array]:
    """Runs the recurrence of one sequence; value head h reads key head floor(h / (value heads / key heads))."""
    tokens, width = mixed.shape[0], g.key_heads * g.key_dim
    keys = (1, tokens, g.key_heads, g.key_dim)
    q = l2_normalise(mixed[:, :width].reshape(keys)) * (g.key_dim**-0.5)
    k = l2_normalise(mixed[:, width : 2 * width].reshape(keys))
    v = mixed[:, 2 * width :].reshape(1, tokens, g.value_heads, g.value_dim)
    if not numerics.is_deterministic and tokens >= BLOCK:
        return chunked(q[0], k[0], v[0], logs, rates, matrix, numerics)
    decays = mx.exp(logs)
    y, after = mx.fast.gated_delta_update(q, k, v, decays[None], rates[None], initial_state=matrix[None])
    return y[0], after[0]
