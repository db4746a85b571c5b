"""Depthwise causal convolution with an explicit past: a chunk boundary is not a sequence boundary.

The state holds every past value that a later output can still read: dilation * (kernel - 1) of them for each
channel, oldest first. To keep only kernel - 1 is the fault of AFN-012.
"""

from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from assay.oracles.arithmetic import narrow, silu
from assay.oracles.checks import Array, integer, real, refuse, working
from assay.oracles.clauses import DOMAIN

LARGEST_DILATION: Final = 1024


class Convolved(NamedTuple):
    """Outputs [token, channel] and the past [channel, dilation * (kernel - 1)], oldest first."""

    y: Array
    state: Array


def causal(
    x: Array,
    weight: Array,
    state: Array | None = None,
    dilation: int = 1,
    activation: Literal["none", "silu"] = "none",
    dtype: DTypeLike = np.float32,
) -> Convolved:
    """Returns the convolution of the tokens after the past, and the past of the next token.

    Args:
        x: [token, channel].
        weight: [channel, kernel]; the last tap belongs to the current token.
        state: [channel, dilation * (kernel - 1)], oldest first; zeros when absent.
        dilation: distance in tokens between two taps.
        activation: `none` or `silu`, applied to the sum.
        dtype: float32 or float64.

    Returns:
        `y` [token, channel] and `state`, shaped as the argument.

    Order: products and sum over the taps in float64, rounded once; then the activation.
    Source: facts 2.3 and 2.7; AFN-012; bug report A26.
    """
    kind = working(dtype)
    values = real("x", x, kind, (None, None))
    taps = real("weight", weight, kind, (values.shape[1], None))
    kernel = taps.shape[1]
    if kernel == 0:
        raise refuse(DOMAIN, "weight", expected="at least one tap", got="none")
    span = integer("dilation", dilation, 1, LARGEST_DILATION) * (kernel - 1)
    past = np.zeros((values.shape[1], span), kind) if state is None else state
    past = real("state", past, kind, (values.shape[1], span))
    if activation not in ("none", "silu"):
        raise refuse(DOMAIN, "activation", expected="none or silu", got=activation)
    line = np.concatenate([past, values.T], axis=1)
    wide = np.zeros(values.shape, np.float64)
    for tap in range(kernel):
        start = tap * dilation
        wide += (line[:, start : start + values.shape[0]].astype(np.float64) * taps[:, tap, None]).T
    y = narrow(wide, kind)
    return Convolved(silu(y) if activation == "silu" else y, line[:, line.shape[1] - span :].copy())
