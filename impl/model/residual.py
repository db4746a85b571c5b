"""Gated residual streams: what a block reads out of the four streams, and how its output is written back."""

from dataclasses import dataclass

import mlx.core as mx

from assay.impl.model import norms
from assay.impl.model.numerics import Numerics


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
    tokens, width = wide.shape
    split = norms.grouped(wide, mixer.gain, streams, eps)
    normed = split.reshape(tokens, width)
    mix = numerics.linear(numerics.silu(numerics.linear(normed, mixer.down) / streams), mixer.up)
    gates = numerics.sigmoid(mix).reshape(tokens, streams, width // streams)
    value = mx.mean(gates * split, axis=1)
    injection = None
    if mixer.inject is not None:
        injection = 2 * mx.sigmoid(numerics.linear(normed, mixer.inject) / streams)
    return Read(normed, mix, value, injection)


def apply(wide: mx.array, block: mx.array, injection: mx.array) -> mx.array:
    """Returns the streams with the block output added to each by its weight, float32 [token, streams * hidden]."""
    return wide + (injection[:, :, None] * block[:, None, :]).reshape(wide.shape)
