"""Depthwise causal convolution over the tokens of one sequence, with its past given and handed back."""

import mlx.core as mx

from assay.impl.model.numerics import Numerics


def causal(
    x: mx.array, taps: mx.array, past: mx.array, dilation: int, numerics: Numerics
) -> tuple[mx.array, mx.array]:
    """Returns SiLU of the convolution, and the past of the next token.

    Args:
        x: float32 [token, channel], one sequence, one chunk of any length.
        taps: float32 [kernel, channel]; the last one belongs to the current token.
        past: float32 [dilation * (kernel - 1), channel], oldest first: the whole receptive field, not the number of
            taps, and never reset at a chunk.
        dilation: tokens between two taps.
        numerics: how the activation is made.

    Returns:
        float32 [token, channel], and float32 shaped as `past`.

    Order: products added tap by tap, oldest first, for each token alone.
    Source: facts 2.3 and 2.7; AFN-012; bug report A26.
    """
    tokens, span = x.shape[0], past.shape[0]
    line = mx.concatenate([past, x])
    total = line[:tokens] * taps[0]
    for tap in range(1, taps.shape[0]):
        total = total + line[tap * dilation : tap * dilation + tokens] * taps[tap]
    (activated,) = numerics.halves(lambda rows: (numerics.silu(rows),), total)
    return activated, line[line.shape[0] - span :]
