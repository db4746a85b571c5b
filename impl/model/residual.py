"""Gated residual streams: what a block reads out of the four streams, and how its output is written back."""

from dataclasses import dataclass
from functools import partial

import mlx.core as mx

from assay.impl.model import norms
from assay.impl.model.numerics import Numerics

Rows = tuple[mx.array, ...]


@dataclass(frozen=True, slots=True)
class Mixer:
    """Weights of one read.

    Attributes:
        gain: float32 [streams * hidden].
        down: [streams * hidden, rank].
        up: [rank, streams * hidden].
        inject: [streams * hidden, streams]; None for the final mixer, which writes nothing back.
    """

    gain: mx.array
    down: mx.array
    up: mx.array
    inject: mx.array | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """What was read, float32.

    Attributes:
        normed: [token, streams * hidden].
        mix: gates before the sigmoid, [token, streams * hidden].
        value: block input [token, hidden].
        injection: weights of the block output [token, streams]; None for the final mixer.
    """

    normed: mx.array
    mix: mx.array
    value: mx.array
    injection: mx.array | None


def read(wide: mx.array, mixer: Mixer, streams: int, eps: float, numerics: Numerics) -> Read:
    """Returns the block input and the injection weights, which are computed before the block.

    Args:
        wide: float32 [token, streams * hidden].
        mixer: weights.
        streams: number of streams.
        eps: of the norm.
        numerics: how products are made.

    Source: facts 2.2.
    """
    if mixer.inject is None:
        normed, mix, value = numerics.halves(partial(_mixed, mixer, streams, eps, numerics), wide)
        return Read(normed, mix, value, None)
    normed, mix, value, injection = numerics.halves(partial(_injected, mixer, streams, eps, numerics), wide)
    return Read(normed, mix, value, injection)


def apply(wide: mx.array, block: mx.array, injection: mx.array) -> mx.array:
    """Returns the streams with the block output added to each by its weight, float32 [token, streams * hidden]."""
    return wide + (injection[:, :, None] * block[:, None, :]).reshape(wide.shape)


def _mixed(mixer: Mixer, streams: int, eps: float, numerics: Numerics, wide: mx.array) -> Rows:
    """Returns normed rows, gates before the sigmoid, and the block input."""
    tokens, width = wide.shape
    split = norms.grouped(wide, mixer.gain, streams, eps)
    normed = split.reshape(tokens, width)
    mix = numerics.linear(numerics.silu(numerics.linear(normed, mixer.down) / streams), mixer.up)
    gates = numerics.sigmoid(mix).reshape(tokens, streams, width // streams)
    return normed, mix, mx.mean(gates * split, axis=1)


def _injected(mixer: Mixer, streams: int, eps: float, numerics: Numerics, wide: mx.array) -> Rows:
    """Returns what `_mixed` does, and the injection weights."""
    normed, mix, value = _mixed(mixer, streams, eps, numerics, wide)
    injection = 2 * mx.sigmoid(numerics.linear(normed, _given(mixer.inject)) / streams)
    return normed, mix, value, injection


def _given(matrix: mx.array | None) -> mx.array:
    if matrix is None:
        raise AssertionError("a layer's mixer has injection weights")
    return matrix
