"""Root-mean-square norms. The plain ones store gains around zero and apply 1 + w; the gated one stores the gain itself.

The two conventions are told apart once, when weights are loaded (`loader`): every function here takes the gain.
"""

import mlx.core as mx

from assay.impl.model.numerics import Numerics


def rms(x: mx.array, gain: mx.array, eps: float) -> mx.array:
    """Returns x / sqrt(mean(x^2) + eps) * gain over the last axis, float32.

    Args:
        x: float32 [..., width].
        gain: float32 [width], what is multiplied: 1 + w where the checkpoint stores w around zero.
        eps: added to the mean.

    Source: facts 2.1; bug report A17.
    """
    return mx.fast.rms_norm(x, None, eps) * gain


def grouped(wide: mx.array, gain: mx.array, streams: int, eps: float) -> mx.array:
    """Returns the norm of each stream by itself, float32 [token, streams, hidden].

    Args:
        wide: float32 [token, streams * hidden].
        gain: float32 [streams * hidden].
        streams: groups of the last axis.
        eps: added to the mean.
    """
    tokens, width = wide.shape
    return rms(wide.reshape(tokens, streams, width // streams), gain.reshape(streams, -1), eps)


def gated(
    x: mx.array, gain: mx.array, gate: mx.array, eps: float, activation: str, numerics: Numerics
) -> mx.array:
    """Returns the norm with the stored gain, times the activated gate, float32 [..., width].

    Source: facts 2.3; the configuration's output_gate_type; bug report A16.
    """
    opened = numerics.sigmoid(gate) if activation == "sigmoid" else numerics.silu(gate)
    return rms(x, gain, eps) * opened
