"""The arithmetic that the oracles stand on, with its rounding said out loud.

One rule for every reduction: the products and the sum are formed in float64 and rounded once to the working type.
So a float32 oracle is nearer to the real number than any float32 implementation, its result doesn't depend on an
order of summation, and a difference from it is the implementation's own rounding. Element-wise steps are done in
the working type. With float64 as the working type the same code is a second opinion.
"""

import numpy as np
from numpy.typing import DTypeLike

from assay.oracles.checks import Array

L2_EPS = 1e-6
SOFTPLUS_THRESHOLD = 20.0


def narrow(array: Array, dtype: DTypeLike) -> Array:
    """Rounds a float64 result to the working type; an overflow becomes an infinity, which the caller refuses."""
    with np.errstate(over="ignore"):
        return np.asarray(array, dtype=dtype)


def linear(weight: Array, x: Array) -> Array:
    """Returns `weight @ x` over the last axis of `x`, in the type of `x`.

    Args:
        weight: [output, input].
        x: [..., input].

    Returns:
        [..., output].

    Order: products and sum in float64, rounded once.
    """
    return narrow(x.astype(np.float64) @ weight.astype(np.float64).T, x.dtype)


def dot(left: Array, right: Array) -> Array:
    """Returns the sum of products over the last axis, broadcasting the others.

    Order: products and sum in float64, rounded once to the type of `left`.
    """
    return narrow((left.astype(np.float64) * right.astype(np.float64)).sum(axis=-1), left.dtype)


def inverse_rms(x: Array, eps: float) -> Array:
    """Returns 1 / sqrt(mean(x^2) + eps) over the last axis, that axis kept with extent 1.

    Order: squares, mean, root and quotient in float64, rounded once to the type of `x`; so squares can't overflow.
    """
    return narrow(1 / np.sqrt(np.square(x.astype(np.float64)).mean(axis=-1, keepdims=True) + eps), x.dtype)


def sigmoid(x: Array) -> Array:
    """Returns 1 / (1 + exp(-x)) without overflow: the exponent never exceeds 0."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)


def silu(x: Array) -> Array:
    """Returns x * sigmoid(x)."""
    return np.asarray(x * sigmoid(x), dtype=x.dtype)


def softplus(x: Array) -> Array:
    """Returns log(1 + exp(x)): x itself above 20, exp(x) below -20.

    Source: facts 2.3; torch `softplus` with its default threshold.
    """
    inner = np.clip(x, -SOFTPLUS_THRESHOLD, SOFTPLUS_THRESHOLD)
    low = np.exp(np.minimum(x, -SOFTPLUS_THRESHOLD))
    middle = np.log1p(np.exp(inner))
    return np.where(x > SOFTPLUS_THRESHOLD, x, np.where(x < -SOFTPLUS_THRESHOLD, low, middle)).astype(x.dtype)


def softmax(x: Array) -> Array:
    """Returns exp(x - max) / sum over the last axis; a -inf gets weight 0.

    Order: exponentials in the working type, their sum in float64 rounded once, then one division each.
    """
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    total = narrow(powers.astype(np.float64).sum(axis=-1, keepdims=True), x.dtype)
    return np.asarray(powers / total, dtype=x.dtype)


def l2_normalise(x: Array) -> Array:
    """Returns x / sqrt(sum(x^2) + 1e-6) over the last axis; the constant stands inside the root.

    Order: squares, sum, root and quotient in float64, rounded once; one product in the working type.
    Source: facts 2.3.
    """
    total = np.square(x.astype(np.float64)).sum(axis=-1, keepdims=True)
    return np.asarray(x * narrow(1 / np.sqrt(total + L2_EPS), x.dtype), dtype=x.dtype)
