"""Gated DeltaNet: projections, short convolution, the recurrence, and the gated norm."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx

from assay.impl.model import conv, norms
from assay.impl.model.geometry import Geometry
from assay.impl.model.numerics import Numerics, l2_normalise, softplus

Part = Callable[[str, mx.array], None]


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
    qkv = numerics.linear(x, weights.qkv)
    a, b, z = (numerics.linear(x, one) for one in (weights.a, weights.b, weights.z))
    for name, array in (("qkv", qkv), ("a", a), ("b", b), ("z", z)):
        part(name, array)
    decays = mx.exp(weights.decay * softplus(a + weights.bias))
    rates = mx.sigmoid(b)
    outputs, states, start = [], [], 0
    for past, rows in zip(pasts, lengths, strict=True):
        stop = start + rows
        mixed, tail = conv.causal(qkv[start:stop], weights.taps, past.conv, 1)
        y, matrix = _recur(mixed, decays[start:stop], rates[start:stop], past.matrix, g)
        outputs.append(y)
        states.append(Recurrent(tail, matrix))
        start = stop
    y = outputs[0] if len(outputs) == 1 else mx.concatenate(outputs)
    gated = norms.gated(y, weights.gain, z.reshape(y.shape), g.eps, g.gate)
    flat = gated.reshape(x.shape[0], -1)
    part("gated_norm", flat)
    return numerics.linear(flat, weights.out), states


def _recur(
    mixed: mx.array, decays: mx.array, rates: mx.array, matrix: mx.array, g: Geometry
) -> tuple[mx.array, mx.array]:
    """Runs the recurrence of one sequence; value head h reads key head floor(h / (value heads / key heads))."""
    tokens, width = mixed.shape[0], g.key_heads * g.key_dim
    keys = (1, tokens, g.key_heads, g.key_dim)
    q = l2_normalise(mixed[:, :width].reshape(keys)) * (g.key_dim**-0.5)
    k = l2_normalise(mixed[:, width : 2 * width].reshape(keys))
    v = mixed[:, 2 * width :].reshape(1, tokens, g.value_heads, g.value_dim)
    y, after = mx.fast.gated_delta_update(q, k, v, decays[None], rates[None], initial_state=matrix[None])
    return y[0], after[0]
